"""Which code a process stood in at the end, of rows made by hand."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from dsprof.analysis.standing import Standing, standing
from tests.findings.plants import Row, metric, run_of

START = pd.Timestamp("2026-01-01 12:00:00")
MS = 1_000_000
STACK = "wait (torch/work.py) < all_reduce (torch/c10d.py) < log (./train.py:30) < main (./a.py:9)"


def row(stack: str | None = STACK, at: float = 0.0, **more: Any) -> Row:
    moment = START + pd.Timedelta(seconds=at)
    return metric("standing", None, None, seconds=20.0, text=stack, at=moment, **more)


def found(*rows: Row, source: str = "r0") -> Standing | None:
    return standing(run_of([{"source": "r0", **one} for one in rows]).told).get(source)


def test_the_innermost_call_is_told_with_the_jobs_own_that_made_it() -> None:
    one = found(row())
    assert one is not None
    assert (one.line, one.seconds) == ("log (train.py:30)", 20.0)
    assert one.told == "wait (torch/work.py), called by log (train.py:30)"


def test_the_jobs_own_code_is_told_alone_where_it_is_the_innermost() -> None:
    one = found(row("read (/data/set.py:7) < main (./a.py:9)"))
    assert one is not None
    assert (one.told, one.line) == ("read (set.py:7)",) * 2


def test_where_libraries_alone_were_seen_the_innermost_is_told() -> None:
    one = found(row("wait (torch/work.py) < f (torch/a.py)"))
    assert one is not None
    assert (one.told, one.line) == ("wait (torch/work.py)",) * 2


def test_a_script_is_told_by_its_line() -> None:
    one = found(row("wait (torch/work.py) < <module> (./train.py:5)"))
    assert one is not None
    assert one.told == "wait (torch/work.py), called by train.py:5"


def test_the_last_row_counts_and_that_of_another_process_does_not() -> None:
    one = found(row(), row("read (./b.py:1)", at=1.0), row("f (./c.py:1)", at=2.0, source="r1"))
    assert one is not None
    assert one.line == "read (b.py:1)"
    assert found(row(), source="r1") is None


@pytest.mark.parametrize("stack", [None, "", "x" * 10_000, "no frame"])
def test_what_is_no_stack_tells_nothing(stack: str | None) -> None:
    assert found(row(stack)) is None


def test_what_has_no_length_or_no_time_tells_nothing() -> None:
    assert found(row() | {"seconds": None}) is None
    assert found(row() | {"at": pd.NaT}) is None
