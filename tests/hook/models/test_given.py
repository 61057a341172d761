"""The loss as the user's loop knows it, where a library changes it before backward."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hook.jobs_of import interpreter, run_each
from tests.hook.rows import folder

STEPS, MICROS = 4, 4


def test_the_loss_is_what_accelerate_was_given_and_not_what_it_made_of_it(tmp_path: Path) -> None:
    interpreter("accelerate")
    results = run_each("accelerated", tmp_path, {"ddp": 2}, "torch")["ddp"]
    for result, rank in zip(results, folder(tmp_path / "ddp" / "run"), strict=True):
        assert result["watched"] == result["plain"]
        told = rank.metric("loss")
        assert list(told) == list(range(2, STEPS + 1))  # the model is found at the first one's end
        for step, loss in told.items():
            micros = result["watched"][(step - 1) * MICROS : step * MICROS]
            assert loss == pytest.approx(sum(micros) / MICROS)


def test_the_loss_is_what_a_gradient_scaler_was_given_and_not_what_it_made_of_it(
    tmp_path: Path,
) -> None:
    (result,) = run_each("scaled", tmp_path, {"one": 1}, "torch")["one"]
    assert result["watched"] == result["plain"]
    (rank,) = folder(tmp_path / "one" / "run")
    losses = map(float.fromhex, result["watched"])
    assert rank.metric("loss") == dict(enumerate(losses, start=1))


def test_a_loss_that_the_loop_divided_by_its_micro_batches_is_told_whole(tmp_path: Path) -> None:
    (result,) = run_each("scaled", tmp_path, {"divided": 1}, "torch")["divided"]
    (rank,) = folder(tmp_path / "divided" / "run")
    losses = [float.fromhex(one) for one in result["watched"]]
    means = [sum(losses[:2]) / 2, sum(losses[2:]) / 2]
    told = list(rank.metric("loss").values())
    assert told == (pytest.approx(means) if result["tells"] else [])


@pytest.mark.parametrize("way", ["composer", "composer in fp16"])
def test_parts_of_a_loss_that_composer_makes_of_its_micro_batches_are_added_up(
    tmp_path: Path, way: str
) -> None:
    (result,) = run_each("scaled", tmp_path, {way: 1}, "torch")[way]
    assert result["watched"] == result["plain"]
    (rank,) = folder(tmp_path / way / "run")
    losses = [float.fromhex(one) for one in result["watched"]]
    assert list(rank.metric("loss").values()) == pytest.approx(losses)
