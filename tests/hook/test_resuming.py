"""Steps go by the engine's own counter, also when it loads a checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dsprof.run import Run, load

JOB = ("resuming",)
SAVED, LATER, BEHIND = 3, 4, 2


@pytest.fixture
def run(results: list[dict[str, Any]], out: Path, kind: str) -> Run:
    assert len(results) == 2
    return load(out / kind)


def forwards(run: Run) -> list[tuple[int, int, int]]:
    own = run.phases[run.phases["name"] == "forward"]
    return sorted(own[["rank", "segment", "step"]].itertuples(index=False, name=None))


def steps(run: Run) -> list[tuple[int, int]]:
    return list(run.steps[["segment", "step"]].itertuples(index=False, name=None))


@pytest.mark.parametrize("kind", ["resume", "resume sharded"])
def test_the_steps_of_a_run_that_resumes_are_those_of_its_checkpoint_and_no_other(
    run: Run, kind: str
) -> None:
    resumed = [(0, step) for step in range(SAVED + 1, SAVED + BEHIND + 1)]
    assert steps(run) == resumed, kind
    assert forwards(run) == [(rank, *one) for rank in (0, 1) for one in resumed]
    loads = run.phases.loc[run.phases["name"] == "load_checkpoint", "step"]
    assert set(loads) == {SAVED + 1}


@pytest.mark.parametrize("kind", ["resume sharded"])
def test_what_loading_a_checkpoint_gathers_is_of_the_step_that_follows(run: Run, kind: str) -> None:
    assert set(run.comm["step"]) == {step for _, step in steps(run)}, kind
    gathered = run.phases["name"] == "all_gather_into_tensor_in_load_checkpoint"
    assert set(run.phases.loc[gathered, "step"]) == {SAVED + 1}


@pytest.mark.parametrize("kind", ["rollback"])
def test_what_follows_a_rollback_is_another_launch_that_counts_from_the_checkpoint(
    run: Run, kind: str
) -> None:
    first = [(0, step) for step in range(1, SAVED + LATER + 1)]
    second = [(1, step) for step in range(SAVED + 1, SAVED + BEHIND + 1)]
    assert steps(run) == [*first, *second], kind
    assert forwards(run) == [(rank, *one) for rank in (0, 1) for one in (*first, *second)]
    assert run.problems.empty


@pytest.mark.parametrize("kind", ["set"])
def test_a_counter_that_a_script_sets_back_costs_one_step_of_the_recording(
    run: Run, kind: str
) -> None:
    """It shows when the next step is over."""
    first = [(0, step) for step in range(1, SAVED + 1)]
    assert steps(run)[: len(first)] == first, kind
    assert [one for one in steps(run) if one[0]] == [(1, step) for step in range(2, LATER + 1)]


def test_nothing_is_left_at_the_engines(results: list[dict[str, Any]]) -> None:
    for result in results:
        assert result["left"] == []
        assert result["counts"] == [LATER, SAVED + BEHIND]
