"""A launch that is slower than the one before it, at the same settings."""

from __future__ import annotations

import pandas as pd
import pytest

from dsprof.events import Severity
from tests.findings.plants import (
    WELL,
    Row,
    alone,
    config,
    metric,
    one,
    problem,
    rules,
    run_of,
    steps,
)

SLOW = WELL | {"backward_allreduce": 0.56}


def launched(segment: int, rows: list[Row], *settings: Row, samples: float = 64) -> list[Row]:
    seconds = {row["step"]: row["seconds"] for row in rows if row["name"] == "step_seconds"}
    rates = [
        metric("samples_per_second", step, samples / took)
        for step, took in seconds.items()
        if samples
    ]
    return [row | {"segment": segment} for row in (*settings, *rows, *rates)]


def test_a_slower_launch_of_the_same_layout_is_told_with_what_grew() -> None:
    run = run_of(launched(0, steps(40, WELL)) + launched(1, steps(40, SLOW, 1.5)))
    found = one(run, "slowdown")
    assert found.title == (
        "A step of launch 2 takes 50 % longer than one of launch 1, which had the same layout"
    )
    assert found.severity is Severity.WARNING
    assert "1.00 s per step became 1.50 s" in found.summary
    assert "Of what was added, 100 % is communication." in found.summary
    assert (found.share, found.seconds_per_step, found.gain) == (None, None, None)
    segments = dict(zip(run.told["line"], run.told["segment"], strict=True))
    assert [segments[proof.line] for proof in found.evidence] == [0, 1]


def test_a_timer_of_no_class_of_its_own_is_named_where_it_is_what_grew() -> None:
    slow = WELL | {"synchronize": 0.5}
    run = run_of(launched(0, steps(40, WELL)) + launched(1, steps(40, slow, 1.5)))
    assert "Of what was added, 100 % is synchronize." in alone(run, "slowdown").summary


def test_a_class_that_only_one_launch_times_has_not_grown() -> None:
    more = SLOW | {"data": 0.2}
    run = run_of(launched(0, steps(40, WELL)) + launched(1, steps(40, more, 1.7)))
    assert "Of what was added" not in alone(run, "slowdown").summary


@pytest.mark.parametrize(
    "rows",
    [
        launched(0, steps(40, WELL)) + launched(1, steps(40, WELL, 1.05)),  # as quick, nearly
        launched(0, steps(40, SLOW, 1.5)) + launched(1, steps(40, WELL)),  # quicker
        launched(0, steps(40, WELL)) + launched(1, steps(40, SLOW, 1.5), samples=128),
        launched(0, steps(40, WELL), samples=0) + launched(1, steps(40, SLOW, 1.5), samples=0),
        launched(0, steps(40, WELL)) + launched(1, steps(40, SLOW, 1.5), config("world_size", 8)),
        launched(0, steps(10, WELL)) + launched(1, steps(40, SLOW, 1.5)),  # too few
    ],
)
def test_other_launches_are_not_compared(rows: list[Row]) -> None:
    assert "slowdown" not in rules(run_of(rows))


def test_launches_whose_steps_are_timed_in_other_ways_are_not_compared() -> None:
    """One by its own timers, the other by the clock of its lines, which pauses lengthen."""
    world = config("world_size", 8)
    start = pd.Timestamp("2026-01-01")
    marks = [
        metric("loss", step, 2.0, at=start + pd.Timedelta(seconds=1.5 * step))
        for step in range(1, 41)
    ]
    rows = launched(0, steps(40, WELL), world, samples=0)
    run = run_of(rows + launched(1, marks, world, samples=0))
    assert set(run.steps["seconds_from"].dropna()) == {"logged", "clock"}
    assert "slowdown" not in rules(run)


def test_settings_that_both_are_told_make_them_alike() -> None:
    settings = (config("world_size", 8), config("train_batch_size", 64))
    rows = launched(0, steps(40, WELL), *settings, samples=0)
    rows += launched(1, steps(40, SLOW, 1.5), *settings, samples=0)
    assert "slowdown" in rules(run_of(rows))


def test_who_did_not_come_is_sought_among_the_ranks_of_the_launch_that_hung() -> None:
    """The one before, on more ranks, took more time: reports are of that."""
    waiting = [problem("watchdog", "timeout", rank=rank) for rank in (0, 2, 3)]
    ended = problem("launcher", "exits with return code = 1")
    last = [*steps(2, WELL), config("world_size", 4), *waiting, ended]
    hung = launched(1, last, samples=0)
    run = run_of([*steps(9, WELL), *hung], world_size=8)
    assert run.config["world_size"] == 8
    assert alone(run, "hang").ranks == (1,)
