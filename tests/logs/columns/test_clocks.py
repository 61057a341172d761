"""Time stamps as logs write them."""

# ruff: noqa: DTZ001  # a log seldom names its zone
from __future__ import annotations

from datetime import datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsprof.logs.columns.clocks import (
    UNKNOWN,
    as_logged,
    in_year,
    microseconds,
    seconds_of_clock,
    seconds_of_clocks,
    undated,
)

STAMPS = {
    b"2023-03-15 13:21:52,800": datetime(2023, 3, 15, 13, 21, 52, 800000),
    b"2023-03-15 13:21:52.800": datetime(2023, 3, 15, 13, 21, 52, 800000),
    b"2023-03-15 13:21:52, 800": datetime(2023, 3, 15, 13, 21, 52, 800000),
    b"2023-03-15 13:21:52": datetime(2023, 3, 15, 13, 21, 52),
    b"2024-02-29T23:59:59.123456789Z": datetime(2024, 2, 29, 23, 59, 59, 123456),
    b"2024-01-02T05:04:05+02:00": datetime(2024, 1, 2, 3, 4, 5),
    b"2024-01-02T05:04:05.250+00:00": datetime(2024, 1, 2, 5, 4, 5, 250000),
    b"20261121 05:33:09": datetime(2026, 11, 21, 5, 33, 9),
    b"11/21/2026 05:33:09": datetime(2026, 11, 21, 5, 33, 9),
    b"2026/11/21 05:33:09.5": datetime(2026, 11, 21, 5, 33, 9, 500000),
    b"1969-12-31 23:59:59,999": datetime(1969, 12, 31, 23, 59, 59, 999000),
}
WRONG = (
    b"2023-13-15 13:21:52,800",
    b"2023-02-29 13:21:52,800",
    b"2023-03-15 25:21:52,800",
    b"2023-03-15 13:61:52,800",
    b"2023-03-1x 13:21:52,800",
    b"2023+03-15 13:21:52,800",
    b"yesterday",
    b"20231315 13:21:52",
    b"\xff" * 23,
    b"",
)


@pytest.mark.parametrize("stamp", STAMPS)
def test_a_stamp_is_read(stamp: bytes) -> None:
    assert microseconds([stamp]).astype("datetime64[us]").item() == STAMPS[stamp]


@pytest.mark.parametrize("stamp", [*WRONG, None])
def test_what_is_no_date_is_unknown(stamp: bytes | None) -> None:
    assert microseconds([stamp]).tolist() == [UNKNOWN]


def test_a_column_may_mix_them() -> None:
    stamps = [None, *STAMPS, *WRONG, b"2023-03-15 13:21:52,800"]
    alone = [microseconds([stamp])[0] for stamp in stamps]
    assert microseconds(stamps).tolist() == alone


@given(st.lists(st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1)), max_size=20))
def test_every_date_is_read_as_the_calendar_has_it(moments: list[datetime]) -> None:
    moments = [m.replace(microsecond=m.microsecond // 1000 * 1000) for m in moments]
    stamps = [m.isoformat(" ", "milliseconds").replace(".", ",").encode() for m in moments]
    assert microseconds(stamps).tolist() == np.array(moments, "datetime64[us]").astype(int).tolist()


@given(st.lists(st.one_of(st.none(), st.binary(max_size=30)), max_size=5))
def test_no_bytes_are_too_strange(stamps: list[bytes | None]) -> None:
    assert len(microseconds(stamps)) == len(stamps)


def test_a_clock_without_a_year_is_given_one() -> None:
    clocks = [b"1121 05:58:21.685000", b"321 02:07:08.408271257", b"229 00:00:00.000000"]
    waiting = microseconds([*map(undated, clocks), b"2023-03-15 13:21:52,800", None])
    assert in_year(waiting, 2025).astype("datetime64[us]").tolist() == [
        datetime(2025, 11, 21, 5, 58, 21, 685000),
        datetime(2025, 3, 21, 2, 7, 8, 408271),
        None,
        datetime(2023, 3, 15, 13, 21, 52, 800000),
        None,
    ]
    assert in_year(waiting, 2024)[2] == microseconds([b"2024-02-29 00:00:00,000"])[0]
    assert in_year(waiting, 0)[:3].tolist() == [UNKNOWN] * 3


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("16:10", 970), ("1:22:01", 4921), ("2 days, 3:04:05", 183845), ("1 day, 0:00:00", 86400),
     ("11:22:33", 40953), ("999:59:59", 3599999), ("11:2:33", 39753), ("-1:22:01", None),
     ("11:-2:33", None), ("a1:22:33", None), ("1:22: 1", None), (" 1:22:01", 4921),
     (":22:01", None), ("?", None), ("", None), ("1:2", None), ("99999:99:99:99", None),
     ("43s", 43), ("25m 38s", 1538), ("1h 22m 38s", 4958), ("23d 14h 27m 6s", 2039226),
     ("12", None), ("s", None), ("5s 1m", None)],
)  # fmt: skip
def test_a_clock_is_read_in_seconds(text: str, seconds: float | None) -> None:
    assert seconds_of_clock(text) == seconds


CLOCKS = st.from_regex(r"(\d{1,2}:)?\d\d:\d\d", fullmatch=True) | st.text(
    "0129:٣ ,days", max_size=9
)


@given(st.lists(st.none() | CLOCKS))
def test_clocks_read_together_say_what_each_says(texts: list[str | None]) -> None:
    told = seconds_of_clocks([None if text is None else text.encode() for text in texts])
    each = [None if text is None else seconds_of_clock(text) for text in texts]
    assert [None if np.isnan(one) else one for one in told.tolist()] == each


@pytest.mark.parametrize(
    ("own", "wrapped", "said"),
    [
        ("10:00:00.250", "10:04:26.402", "10:00:00.250"),  # passed on four minutes later
        ("10:00:00.250", "10:40:00.000", "10:00:00.250"),
        ("18:00:00.250", "10:04:26.402", "10:00:00.250"),  # in Shanghai
        ("15:30:00.250", "10:04:26.402", "10:00:00.250"),  # in India
        ("15:45:00.250", "10:04:26.402", "10:00:00.250"),  # in Nepal
        ("03:00:00.250", "10:04:26.402", "10:00:00.250"),  # in California
        ("10:00:00.250", "10:00:00.000", "10:00:00.250"),  # a wrapper of whole seconds
        ("18:00:00.250", "10:00:00.000", "10:00:00.250"),
        ("10:00:00.000", "10:00:00.402", "10:00:00.402"),  # a logger of whole seconds
        ("10:00:00.000", "10:00:07.402", "10:00:00.000"),
        ("10:00:00.250", None, "10:00:00.250"),
        (None, "10:04:26.402", "10:04:26.402"),
    ],
)
def test_a_logger_is_asked_when_and_its_wrapper_in_which_zone(
    own: str | None, wrapped: str | None, said: str
) -> None:
    told = [f"2025-03-04 {time}".encode() if time else None for time in (own, wrapped, said)]
    times = microseconds(told)
    assert as_logged(times[:1], times[1:2]).tolist() == times[2:].tolist()


def test_a_stamp_that_no_zone_explains_is_of_another_moment() -> None:
    own, wrapped = microseconds([b"2025-03-01 10:00:00,250", b"2025-03-04 10:00:00,250"])
    assert as_logged(np.array([own]), np.array([wrapped])).tolist() == [wrapped]


@pytest.mark.parametrize(
    ("spelt", "stamp"),
    [
        (b"Nov 21 05:33:09", b"0000-11-21 05:33:09"),
        (b"Feb  2 05:33:09.123456", b"0000-02-02 05:33:09.123456"),
        (b"Tue Nov 21 05:33:09 2026", b"2026-11-21 05:33:09"),
    ],
)
def test_a_month_may_be_spelt_and_a_year_follow(spelt: bytes, stamp: bytes) -> None:
    assert undated(spelt) == stamp


@pytest.mark.parametrize(
    ("wrapped", "said"),
    [
        (b"Mar 04 10:00:07", b"2025-03-04 10:00:00"),
        (b"Mar 04 02:00:07", b"2025-03-04 02:00:00"),
        (b"Jul 04 10:00:07", b"2025-03-04 10:00:00"),
    ],
)
def test_a_wrapper_that_tells_no_year_has_that_of_the_logger_behind_it(
    wrapped: bytes, said: bytes
) -> None:
    own, told, expected = microseconds([b"2025-03-04 10:00:00,000", undated(wrapped), said])
    assert as_logged(np.array([own]), np.array([told])).tolist() == [expected]
