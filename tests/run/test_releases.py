"""When DeepSpeed's versions were released, and what that says of a log."""

from __future__ import annotations

import pandas as pd
import pytest

from dsprof.run import releases
from dsprof.run.releases import LAST, Version, newest, parse


def printed_on(*days: str | None) -> pd.DataFrame:
    """Events of these days."""
    return pd.DataFrame({"at": pd.DatetimeIndex(days, tz="UTC")})


def test_a_later_version_was_released_later() -> None:
    said = releases._RELEASES.split()
    versions, days = [parse(one) for one in said[::2]], said[1::2]
    assert len(versions) > 100
    assert versions == sorted(set(versions))
    assert days == sorted(days)


@pytest.mark.parametrize(
    ("day", "version"),
    [
        ("2020-01-01", LAST),  # before the first of them: a clock that is not set, or another one's
        ("2020-09-01", (0, 3, 1)),
        ("2021-05-27", (0, 4, 0)),  # released on 2021-06-08, and printed on this day
        ("2024-09-04", (0, 15, 1)),
        ("2024-09-05", (0, 15, 2)),
        ("2024-09-05 10:11:12.345678", (0, 15, 2)),
        ("2099-01-01", LAST),
    ],
)
def test_the_newest_version_of_a_day_is_the_one_in_the_making(day: str, version: Version) -> None:
    assert newest(printed_on(None, day)) == version


def test_without_dates_it_may_be_any() -> None:
    assert newest(printed_on(None)) == LAST
