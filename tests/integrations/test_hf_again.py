"""Several trainings by Hugging Face's Trainer in one process."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hook.jobs_of import run_each
from tests.hook.rows import folder

FAILING, STEPS = 3, 4
KINDS = {"failed": 1, "smaller": 1, "within": 1, "alone": 1, "ddp": 2}


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("again")
    run_each("hf_again", made, KINDS, needs="transformers")
    return made


def steps(recorded: Path) -> list[list[int]]:
    """The steps of each recording of a folder."""
    return [[row.step for row in rank.steps] for rank in folder(recorded)]


def test_a_training_behind_one_that_an_exception_ended_is_recorded_in_its_own_folder(
    out: Path,
) -> None:
    assert steps(out / "failed" / "first") == [list(range(1, FAILING + 1))]
    assert steps(out / "failed" / "second") == [list(range(1, STEPS + 1))]


def test_a_trainer_that_begins_anew_with_a_smaller_batch_counts_its_steps_anew(out: Path) -> None:
    assert sorted(steps(out / "smaller" / "first")) == [
        list(range(1, FAILING + 1)),
        list(range(1, STEPS + 1)),
    ]


def test_a_training_inside_of_another_ends_no_recording_of_that(out: Path) -> None:
    assert steps(out / "within" / "first") == [list(range(1, STEPS + 1))]


@pytest.mark.parametrize("kind", ["alone", "ddp"])
def test_trainers_that_were_made_before_any_trained_have_recordings_of_their_own(
    out: Path, kind: str
) -> None:
    """Under DDP a model is found at its first step, so the second is the first that is recorded."""
    begin = 1 if kind == "alone" else 2
    for name, last in (("first", STEPS), ("second", STEPS - 1)):
        assert steps(out / kind / name) == [list(range(begin, last + 1))] * KINDS[kind]
