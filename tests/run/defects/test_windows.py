"""A pipeline's only print: how many steps it sums over follows from the log or is unknown."""

from __future__ import annotations

from typing import Any

import pytest

from dsprof.run import Run, from_events
from tests.run.run_rows import config, events, grammar_with, metric, timers


def run_of(*rows: dict[str, Any], **meta: Any) -> Run:
    return from_events(events(rows), grammar=grammar_with(), meta=meta)


def printed(step: int, seconds: float, **sums: float) -> list[dict[str, Any]]:
    """One print of the pipeline's engine, its window unknown as it is for the only one."""
    measured: dict[str, Any] = dict(sums)
    return [
        *timers("pipeline", step, steps=None, **measured),
        metric("step_seconds", step, seconds, steps=None),
    ]


def forward(run: Run) -> float:
    return float(run.phases.loc[run.phases["name"] == "forward", "seconds"].sum())


def name(run: Run) -> tuple[str, str]:
    row = run.repairs.iloc[0]
    return str(row["name"]), str(row["kind"])


def test_steps_per_print_is_the_window() -> None:
    run = run_of(config("steps_per_print", 10), *printed(30, 1.0, forward=4.0, backward=4.0))
    assert forward(run) == pytest.approx(0.4)
    assert name(run) == ("window-inferred", "repair")
    assert "10 steps, as the configured steps_per_print shows" in run.repairs["text"].iloc[0]


def test_the_fork_s_percentage_of_communication_tells_the_window() -> None:
    rows = timers("deeper", 20, steps=None, forward=10.0, comms=40.0, pipe_recv_grad=38.0)
    share = metric("communication_percent", 20, 80.0)
    run = run_of(metric("step_seconds", 20, 5.0, steps=None), share, *rows)
    assert forward(run) == pytest.approx(1.0)


def test_a_window_divides_the_step_and_holds_its_timers() -> None:
    run = run_of(*printed(2, 0.043, forward=0.028, backward=0.050))
    assert forward(run) == pytest.approx(0.014)


def test_the_first_print_since_the_start_is_of_all_steps_so_far() -> None:
    born = config("stage", 0, pattern="deepspeed_pipeline.stage")
    run = run_of(born, *printed(20, 1.0, forward=4.0, backward=4.0))
    assert forward(run) == pytest.approx(0.2)


def test_measuredof_which_nothing_tells_the_window_are_no_step_s_and_give_no_verdict() -> None:
    run = run_of(*printed(20, 1.0, forward=4.0, backward=4.0, pipe_recv_grad=1.0))
    assert run.phases.empty
    assert name(run) == ("window-unknown", "doubt")
    assert "sum to 9.00 s over an unknown number of steps" in run.repairs["text"].iloc[0]
    assert run.steps["compute"].isna().all()
    assert {found.rule for found in run.findings} <= {"untrustworthy-timers", "unaccounted-time"}


def test_timers_longer_than_all_steps_so_far_prove_no_window() -> None:
    run = run_of(*printed(2, 0.01, forward=1.0))
    assert name(run) == ("window-unknown", "doubt")


def test_counted_prints_have_no_step_that_a_window_could_divide() -> None:
    run = run_of(*printed(1, 1.0, forward=0.5), counted_steps=True)
    assert name(run) == ("window-unknown", "doubt")
