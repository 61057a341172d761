"""A timer that a line lacks is unknown, and so is where the time of its step went: never zero."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dsprof.events import CLASSES
from dsprof.run import Run, from_events
from tests.run.run_rows import config, events, grammar_with, metric, timers

LINE: dict[str, Any] = {
    "forward": 0.2, "backward": 0.5, "backward_inner": 0.3, "backward_allreduce": 0.2, "step": 0.1,
}  # fmt: skip
MICRO: dict[str, Any] = {
    f"{name}_microstep": LINE[name] / 2 for name in ("forward", "backward", "step")
}


def run_of(*lines: list[dict[str, Any]]) -> Run:
    rows = [config("zero_stage", 1), *(row for line in lines for row in line)]
    return from_events(events(rows), grammar=grammar_with())


def line(step: int, *lacking: str, rank: int = 0) -> list[dict[str, Any]]:
    held = {name: seconds for name, seconds in LINE.items() if name not in lacking}
    return timers("zero", step, rank=rank, **held)


@pytest.mark.parametrize("lacking", sorted(LINE))
def test_a_step_whose_line_lacks_a_timer_is_unknown_and_no_other_is(lacking: str) -> None:
    steps = run_of(line(1), line(2, lacking), line(3)).steps
    assert steps["seconds"].notna().tolist() == [True, False, True]
    assert steps.loc[1, list(CLASSES)].isna().all()
    assert np.isnan(steps["communication_share"][1])
    assert steps.loc[1, "bound"] == "unknown"
    assert steps.loc[[0, 2], "communication"].tolist() == [pytest.approx(0.2)] * 2


def test_the_missing_timer_is_a_phase_without_seconds_at_the_line_that_lacks_it() -> None:
    run = run_of(line(1), line(2, "backward_allreduce"))
    second = run.phases[run.phases["step"] == 2].set_index("name")
    assert second.index[second["seconds"].isna()].tolist() == ["backward_allreduce"]
    assert np.isnan(second["self_seconds"]["backward"])
    assert second.loc["backward", "seconds"] == 0.5
    assert second["line"]["backward_allreduce"].item() == second["line"]["forward"].item()


def test_a_step_keeps_its_length_where_the_source_says_it() -> None:
    said = [metric("step_seconds", step, 1.0) for step in (1, 2, 3)]
    steps = run_of(said, line(1), line(2, "backward_allreduce"), line(3)).steps
    assert steps["seconds"].tolist() == [1.0] * 3
    assert steps["communication"].isna().tolist() == [False, True, False]


def test_one_rank_that_lacks_a_timer_leaves_its_step_unknown() -> None:
    steps = run_of(line(1), line(1, rank=1), line(2), line(2, "step", rank=1)).steps
    assert steps["seconds"].isna().tolist() == [False, True]


def test_a_micro_batch_that_lacks_a_timer_does_not_shorten_its_step() -> None:
    part: dict[str, Any] = {
        name: seconds for name, seconds in MICRO.items() if name != "backward_microstep"
    }
    whole = timers("zero-micro", 1, None, **MICRO)
    more = [timers("zero-micro", 2, None, **each) for each in (MICRO, part)]
    done = [metric("loss", step, 1.0) for step in (1, 2)]
    steps = run_of(done, whole, timers("zero-micro", 1, None, **MICRO), *more).steps
    assert steps["seconds"].isna().tolist() == [False, True]


def test_another_line_that_tells_the_timer_is_enough() -> None:
    micro = [timers("zero-micro", step, None, **MICRO) for step in (1, 2)]
    run = run_of(micro[0], line(1), micro[1], line(2, "forward"))
    second = run.phases[run.phases["step"] == 2].set_index("name")
    assert second.loc["forward", "seconds"] == pytest.approx(0.1)


def test_timers_that_begin_or_are_rare_are_not_missing_elsewhere() -> None:
    assert run_of(line(1, "backward_allreduce"), line(2), line(3)).phases["seconds"].notna().all()
    rare = [line(step, "backward_allreduce") for step in (3, 4, 5)]
    assert run_of(line(1), line(2), *rare).phases["seconds"].notna().all()


@pytest.mark.parametrize("apart", ["engine", "segment"])
def test_an_engine_or_a_launch_that_measures_less_than_another_lacks_nothing(apart: str) -> None:
    """A critic that is not trained, say, has no backward all-reduce."""
    less = [line(step, "backward_allreduce") for step in (1, 2, 3)]
    other = [[row | {apart: 1} for row in one] for one in less]
    run = run_of(*(line(step) for step in (1, 2, 3)), *other)
    assert run.phases["seconds"].notna().all()
    assert run.steps["compute"].notna().tolist() == [True] * 6


def test_a_skipped_step_without_its_optimizers_line_lacks_nothing() -> None:
    inner = timers("zero-optimizer", 1, optimizer_step=0.02, optimizer_allgather=0.01)
    skipped = timers("zero", 2, **LINE | {"step": 0.07})
    assert run_of(inner, line(1), skipped).steps["communication"].notna().all()
    partly = timers("zero-optimizer", 2, optimizer_allgather=0.01)
    assert run_of(inner, line(1), partly, line(2)).steps["communication"].notna().all()


def inside(step: int) -> list[dict[str, Any]]:
    return timers("zero-optimizer", step, optimizer_step=0.04, optimizer_allgather=0.03)


def test_a_line_that_was_lost_whole_leaves_the_parts_of_its_step_unknown() -> None:
    """Its timers lay in `step`, which took as long as ever: they were not zero."""
    run = run_of(inside(1), line(1), line(2), inside(3), line(3))
    assert run.steps["communication"].isna().tolist() == [False, True, False]
    second = run.phases[run.phases["step"] == 2].set_index("name")
    assert np.isnan(second["seconds"]["optimizer_allgather"])
    assert np.isnan(second["self_seconds"]["step"])


def test_a_line_of_which_nothing_else_tells_the_timers_was_lost() -> None:
    """The engine's own line of a pipeline's second print is gone, that of its peers is there."""
    sums: dict[str, Any] = {"forward": 3.0, "backward": 5.0, "step": 0.1}
    rows = [
        row
        for n in (1, 2, 3)
        for row in (
            *([] if n == 2 else timers("pipeline", 10 * n, steps=10, **sums)),
            *timers("pipeline-p2p", 10 * n, steps=10, pipe_recv_grad=1.0),
            metric("step_seconds", 10 * n, 1.0),
        )
    ]
    steps = run_of(rows).steps
    assert steps["seconds"].tolist() == [1.0] * 3
    assert steps["compute"].isna().tolist() == [False, True, False]


def test_a_line_that_few_steps_have_is_lost_in_none() -> None:
    run = run_of(inside(1), line(1), *(line(step) for step in (2, 3, 4)))
    assert run.steps["communication"].notna().all()
