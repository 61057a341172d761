"""A training that is attached to again in the process that had detached from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsprof import recording
from dsprof.run import Run, load
from tests.hook.jobs_of import run_each

KINDS = {"on": 2, "anew": 2}
STEPS = [1, 2, 3, 4, 8, 9, 10, 11, 12]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    out = tmp_path_factory.mktemp("again")
    run_each("again", out, KINDS, "torch")
    return {kind: load(out / kind / "run") for kind in KINDS}


def test_steps_that_go_on_counting_are_one_launch_with_a_gap(runs: dict[str, Run]) -> None:
    steps = runs["on"].steps
    assert steps["step"].tolist() == STEPS
    assert set(steps["segment"]) == {0}
    phases = runs["on"].phases
    for rank in (0, 1):
        own = phases[(phases["rank"] == rank) & (phases["name"] == "forward")]
        assert own["step"].tolist() == STEPS
    assert len(runs["on"].comm["step"].unique()) == len(STEPS)


def test_steps_that_are_counted_anew_are_another_launch(runs: dict[str, Run]) -> None:
    steps = runs["anew"].steps
    assert steps["segment"].tolist() == [0] * 4 + [1] * 5
    assert steps["step"].tolist() == [1, 2, 3, 4, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("kind", KINDS)
def test_a_rank_that_detached_did_not_die(runs: dict[str, Run], kind: str) -> None:
    assert runs[kind].problems.empty


def test_a_rank_that_dies_behind_a_gap_is_not_hidden_by_its_first_end(
    runs: dict[str, Run],
) -> None:
    """Readers are told of a process once, by its last recording."""
    told = runs["on"].meta["recordings"]
    assert sorted(one["rank"] for one in told) == [0, 1]
    assert all(one["source"].endswith("-2.dsprof") for one in told)


def test_all_rows_of_both_stretches_are_of_one_segment(runs: dict[str, Run]) -> None:
    folder = Path(runs["on"].meta["recordings"][0]["source"]).parent
    rows = recording.read_rows(recording.RowKind.STEP, folder)
    assert set(rows["segment"].to_pylist()) == {0}
    assert sorted(rows["step"].to_pylist()) == sorted(STEPS * 2)
