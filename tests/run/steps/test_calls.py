"""What logged calls tell of the timers they lie in."""

from __future__ import annotations

from typing import Any

import pytest

from dsprof.analysis.breakdown import breakdown_of
from dsprof.run import Run, from_events
from tests.run.run_rows import config, events, grammar_with, timers


def call(name: str, seconds: float, size: float) -> dict[str, Any]:
    return {
        "kind": "comm", "name": name, "step": 1, "rank": 0, "bytes": size, "count": 1,
        "seconds": seconds, "pattern": "deepspeed_comms.op",
    }  # fmt: skip


def run_of(stage: int, *rows: dict[str, Any]) -> Run:
    return from_events(events([config("zero_stage", stage), *rows]), grammar=grammar_with())


ENGINE: dict[str, Any] = {
    "forward": 0.3,
    "backward": 1.4,
    "backward_inner": 0.2,
    "backward_allreduce": 0.1,
}


def test_calls_that_divide_a_mixture_take_nothing_from_other_timers() -> None:
    run = run_of(3, call("all_gather", 0.4, 1024.0), *timers("zero", 1, **ENGINE, step=0.2))
    mean = breakdown_of(run.steps, run.phases)
    assert mean is not None
    shown = mean.phases["seconds"].to_dict()
    assert shown == pytest.approx(
        {"backward": 1.1, "forward": 0.3, "step": 0.2, "backward_inner": 0.2,
         "backward_allreduce": 0.1}
    )  # fmt: skip
    assert sum(shown.values()) == pytest.approx(mean.seconds)
    assert mean.classes["other"] == pytest.approx(1.1 + 0.2)
    assert mean.classes["compute"] == pytest.approx(0.3 + 0.2 - 0.4)


def zero_1(*calls: dict[str, Any]) -> Run:
    parts = timers("zero-optimizer", 1, optimizer_allgather=0.1, optimizer_step=0.05)
    return run_of(1, *calls, *parts, *timers("zero", 1, **ENGINE, step=0.5))


def test_reductions_of_single_numbers_inside_step_are_communication() -> None:
    run = zero_1(
        call("all_reduce", 0.1, 4e6), call("all_reduce", 0.12, 1.0), call("all_reduce", 0.08, 4.0)
    )
    own = dict(zip(run.phases["name"], run.phases["self_seconds"], strict=True))
    assert own["step_all_reduce"] == pytest.approx(0.2)
    assert own["step"] == pytest.approx(0.5 - 0.15 - 0.2)
    step = run.steps.iloc[0]
    assert step["communication"] == pytest.approx(0.1 + 0.1 + 0.2)
    assert step["optimizer"] == pytest.approx(0.05 + 0.15)


def test_single_numbers_take_no_more_of_step_than_it_has() -> None:
    run = zero_1(call("all_reduce", 9.0, 4.0))
    own = dict(zip(run.phases["name"], run.phases["self_seconds"], strict=True))
    assert (own["step_all_reduce"], own["step"]) == (pytest.approx(0.35), 0.0)


def test_what_is_no_single_number_is_not_laid_to_step() -> None:
    run = zero_1(call("all_reduce", 0.2, 8.0), call("broadcast", 0.2, 4.0))
    assert "step_all_reduce" not in set(run.phases["name"])
