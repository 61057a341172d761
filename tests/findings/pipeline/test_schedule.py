"""What a pipeline's schedule implies where no timer shows its stages."""

from __future__ import annotations

from typing import Any

import pytest

from dsprof.events import Severity
from tests.findings.plants import alone, metric, one, run_of, silent, steps, why

TIMES = [metric("step_seconds", step, 2.0) for step in range(1, 4)]
SHAPE: dict[str, Any] = {"pipeline_parallel_size": 5, "gradient_accumulation_steps": 5}


def test_a_bubble_that_no_timer_shows_follows_from_stages_and_micro_batches() -> None:
    found = one(run_of(TIMES, **SHAPE, virtual_pipeline_parallel_size=1), "pipeline-bubble")
    assert found.title == (
        "At least 44 % of forward and backward is a pipeline bubble: 5 stages, 5 micro-batches per "
        "step"
    )
    assert found.severity is Severity.CRITICAL
    assert found.confidence == "high"
    assert found.advice[0][:3] == ("gradient_accumulation_steps", "5", "20")
    assert [line for _, line, _ in found.evidence] == [1, 2, 3]


def test_its_price_is_unknown_because_forward_and_backward_are_not_timed() -> None:
    found = one(run_of(TIMES, **SHAPE), "pipeline-bubble")
    assert (found.share, found.seconds_per_step, found.gain) == (None, None, None)
    assert "What it costs of a step is unknown." in found.summary


def test_stages_that_may_be_interleaved_have_medium_confidence() -> None:
    found = one(run_of(TIMES, **SHAPE, framework="megatron"), "pipeline-bubble")
    assert found.confidence == "medium"
    assert "whether the stages are interleaved is not in this log" in found.summary
    assert one(run_of(TIMES, **SHAPE, framework="gpt-neox"), "pipeline-bubble").confidence == "high"


def test_interleaved_stages_idle_for_less() -> None:
    found = alone(run_of(TIMES, **SHAPE, virtual_pipeline_parallel_size=4), "pipeline-bubble")
    assert found.title.startswith("At least 17 % of forward and backward")  # 4 / (4 x 5 + 4)
    assert "5 stages, interleaved in 4 chunks each, 5 micro-batches" in found.title
    assert "(p-1)/(vm+p-1)" in found.summary


@pytest.mark.parametrize(
    "settings",
    [
        {"pipeline_parallel_size": 5},
        {"pipeline_parallel_size": 1, "gradient_accumulation_steps": 5},
        {"pipeline_parallel_size": 5, "gradient_accumulation_steps": 60},  # 6 %
        {**SHAPE, "pipeline_schedule": "zero-bubble"},
    ],
    ids=["unknown number of micro-batches", "one stage", "small", "a schedule without a bubble"],
)
def test_nothing_is_claimed_of_a_bubble_that_is_unknown_or_small(
    settings: dict[str, Any],
) -> None:
    assert why(run_of(TIMES, **settings), "pipeline-bubble")


def test_a_log_that_times_computation_but_no_waiting_is_left_to_its_timers() -> None:
    rows = steps(3, {"forward": 0.6, "backward_inner": 1.2, "reduce_grads": 0.1}, 2.0)
    assert why(run_of(rows, **SHAPE), "pipeline-bubble") == "no pipeline timers in this run"


def test_a_log_without_steps_is_told_nothing_of_its_pipeline() -> None:
    run = run_of([metric("loss", None, 2.0)], **SHAPE)
    assert not silent(run, "pipeline-bubble")
    assert why(run, "pipeline-bubble")
