"""Clocks that run backwards within one process are not believed; different clocks are no fault."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pandas as pd
import pytest

from dsprof.run import Run, from_events
from tests.run.run_rows import events, grammar_with, metric, timers

START = pd.Timestamp("2024-05-01 00:01:00")


def run_of(*seconds: float, **more: Any) -> Run:
    return from_events(events(marks(*seconds, **more)), grammar=grammar_with())


def marks(*seconds: float, **more: Any) -> list[dict[str, Any]]:
    return [
        metric("loss", step, 1.0, at=START + pd.Timedelta(second, "s"), pattern="a.b", **more)
        for step, second in enumerate(seconds, 1)
    ]


def test_a_clock_that_falls_again_and_again_tells_no_step() -> None:
    run = run_of(0, 1, -30, 3, 34, 35, 6, 7, 38, 9)
    assert run.repairs["name"].tolist() == ["clock-runs-backwards"]
    assert run.repairs["kind"].tolist() == ["doubt"]
    assert run.steps["seconds"].isna().all()
    assert run.steps["step"].tolist() == list(range(1, 11))


def test_one_late_line_loses_its_time_and_leaves_the_others() -> None:
    run = run_of(0, 10, 5, 30, 40, 50)
    assert run.repairs["name"].tolist() == ["late-lines"]
    assert run.steps["seconds"].dropna().tolist() == [10.0, 10.0, 10.0, 10.0]
    assert run.steps["covers"][3] == 2  # the mean of the step of the late line and the next


@pytest.mark.parametrize("by", [15, 25, 3600])
def test_a_clock_that_is_set_back_loses_the_step_around_that(by: int) -> None:
    run = run_of(*range(0, 100, 10), *range(100 - by, 200 - by, 10))
    assert run.repairs["name"].tolist() == ["clock-set-back"]
    assert run.repairs["kind"].tolist() == ["repair"]
    assert run.steps["seconds"].isna().to_numpy().nonzero()[0].tolist() == [0, 10]
    assert set(run.steps["seconds"].dropna()) == {10.0}


def test_a_set_back_clock_and_a_late_line_are_told_apart() -> None:
    run = run_of(0, 10, 5, 30, 40, 50, -60, -50, -40, -30, *range(-20, 400, 10))
    assert run.repairs["name"].tolist() == ["late-lines"]
    assert run.steps["seconds"].isna().to_numpy().nonzero()[0].tolist() == [0, 2, 6]
    assert run.steps["covers"][3] == 2


def test_a_clock_that_is_set_back_within_a_window_of_steps_does_not_shorten_them() -> None:
    rows: list[dict[str, Any]] = []
    now = START
    for step in range(1, 101):
        now += pd.Timedelta(1.7 - 5 * (step % 25 == 7), "s")
        lines = timers("zero", step, forward=0.9, step=0.1)
        if step % 10 == 0:
            lines.append(metric("step_seconds", step, 1.0, pattern="a.b"))
        rows += [{"pattern": "a.timers"} | row | {"at": now} for row in lines]
    run = from_events(events(rows), grammar=grammar_with())
    assert "clock-set-back" in set(run.repairs["name"])
    whole = run.steps["whole_seconds"].dropna()
    assert whole.tolist() == pytest.approx([1.7] * 6)


def test_hosts_whose_clocks_differ_are_believed() -> None:
    rows = [
        row
        for pair in zip(
            marks(*range(10), host="a", rank=0),
            marks(*(second - 300 for second in range(10)), host="b", rank=1),
            strict=True,
        )
        for row in pair
    ]
    run = from_events(events(rows), grammar=grammar_with())
    assert run.repairs.empty


def test_ranks_that_name_themselves_nowhere_may_differ_too() -> None:
    rows = [row for one in zip(marks(0, 10, 20), marks(-5, 5, 15), strict=True) for row in one]
    assert from_events(events(rows), grammar=grammar_with()).repairs.empty


def test_a_correction_of_less_than_a_second_is_none() -> None:
    assert run_of(0, 10, 9.5, 20).repairs.empty


def test_a_process_a_rank_and_host_takes_memory_of_its_rows_alone() -> None:
    """Not of all processes that ranks, hosts and sources could make up."""
    rows = [
        row | {"rank": rank, "host": f"h{rank}", "source": f"{rank}.log"}
        for rank in range(300)
        for row in marks(0, 10)
    ]
    run = from_events(events(rows), grammar=grammar_with())
    tracemalloc.start()
    assert run.told["at"].notna().all()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50e6
