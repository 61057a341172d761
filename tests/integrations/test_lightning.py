"""Lightning's own Trainer: on one process, which calls no forward, and under DDP."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import dsprof
from tests.hook.jobs_of import launch
from tests.hook.rows import folder
from tests.integrations.conftest import Trained

JOB, LIBRARY = "lightning_fit", "lightning"
STEPS, ACCUMULATION, EVALUATED = 6, 2, 4
KINDS = {"auto": 1, "ddp": 2}


@pytest.fixture(params=KINDS)
def trained(request: pytest.FixtureRequest, trainings: dict[str, Trained]) -> Trained:
    return trainings[request.param]


def test_weights_are_the_same_to_the_last_bit(trained: Trained) -> None:
    for result in trained.results:
        assert result["watched"] == result["plain"]


def test_every_step_and_micro_batch_is_recorded_on_every_rank(trained: Trained) -> None:
    assert len(trained.ranks) == KINDS[trained.kind]
    for rank in trained.ranks:
        assert [row.step for row in rank.steps] == list(range(1, STEPS + 1))
        paths = Counter(row.path for row in rank.spans)
        assert paths["forward"] == paths["backward"] == STEPS * ACCUMULATION
        assert rank.ended


def test_the_optimizers_phase_holds_no_forward_though_lightning_calls_it_inside(
    trained: Trained,
) -> None:
    for rank in trained.ranks:
        optimizer = [
            (row.begin, row.begin + row.length) for row in rank.spans if row.path == "step"
        ]
        for row in rank.spans:
            if row.path in {"forward", "backward"}:
                assert all(row.begin >= end or row.begin < begin for begin, end in optimizer)


def test_each_batch_that_lightning_evaluates_is_an_evaluation(trained: Trained) -> None:
    """Also on one process, where it calls no forward."""
    for rank in trained.ranks:
        asked = [row.step for row in rank.spans if row.path == "evaluation"]
        assert asked == [EVALUATED + 1] * (6 // KINDS[trained.kind])


def test_communication_is_seen_where_there_is_any(trained: Trained) -> None:
    for rank in trained.ranks:
        reduced = [row for row in rank.collectives if row.op == "all_reduce"]
        assert len(reduced) == (STEPS if trained.kind == "ddp" else 0)


def test_an_exception_that_ends_training_and_the_process_is_told(tmp_path: Path) -> None:
    assert not launch(JOB, (1, tmp_path, "failing"), needs=LIBRARY)
    problems = dsprof.load(str(tmp_path / "run")).problems
    assert list(problems["text"]) == ["ValueError: planted"]


def test_a_training_behind_one_that_failed_is_recorded_in_its_own_folder(tmp_path: Path) -> None:
    assert launch(JOB, (1, tmp_path, "failed"), needs=LIBRARY)
    for name, last in (("run", STEPS // ACCUMULATION), ("behind", STEPS)):
        (rank,) = folder(tmp_path / name)
        assert [row.step for row in rank.steps] == list(range(1, last + 1))
