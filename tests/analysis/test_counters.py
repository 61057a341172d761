"""By how much counts of ranks grow, whatever interrupts them."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from dsprof.analysis.counters import counts, growth
from tests.findings.plants import Row, run_of

START = pd.Timestamp("2026-11-21 07:00")


def _count(at: float, seconds: float, **more: Any) -> Row:
    return {"kind": "metric", "name": "cpu_wait", "raw": "cpu_wait", "rank": 0, "seconds": seconds,
            "at": START + pd.Timedelta(seconds=at)} | more  # fmt: skip


def _grown(*rows: Row, launches: tuple[int, ...] = (0,)) -> dict[int, tuple[float, float]]:
    return growth(counts(run_of(rows).told, "cpu_wait", launches))


def test_of_each_rank_it_is_told_how_much_and_in_what_time() -> None:
    rows = [_count(0, 1.0), _count(10, 3.0), _count(0, 5.0, rank=1), _count(4, 5.5, rank=1)]
    assert _grown(*rows) == {0: pytest.approx((2.0, 10.0)), 1: pytest.approx((0.5, 4.0))}


def test_a_count_that_begins_anew_tells_nothing_of_the_time_between() -> None:
    rows = [_count(0, 1.0), _count(10, 3.0), _count(30, 0.0), _count(32, 1.5)]
    assert _grown(*rows) == {0: pytest.approx((3.5, 12.0))}


def test_other_launches_do_not_count() -> None:
    rows = [_count(0, 1.0), _count(10, 3.0), _count(40, 2.0, segment=1),
            _count(50, 9.0, segment=1)]  # fmt: skip
    assert _grown(*rows, launches=(1,)) == {0: pytest.approx((7.0, 10.0))}


def test_one_sample_shows_no_growth() -> None:
    assert _grown(_count(0, 1.0)) == {}
