"""Hugging Face's own Trainer, with DeepSpeed, with DDP and alone."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.hook.rows import folder
from tests.integrations.conftest import Trained

JOB, LIBRARY = "hf_train", "transformers"
STEPS, SAVED, ACCUMULATION = 6, 3, 2
KINDS = {"deepspeed": 2, "ddp": 2, "plain": 1}


@pytest.fixture(params=KINDS)
def trained(request: pytest.FixtureRequest, trainings: dict[str, Trained]) -> Trained:
    return trainings[request.param]


def test_weights_are_the_same_to_the_last_bit(trained: Trained) -> None:
    for result in trained.results:
        assert result["watched"] == result["plain"]


def test_every_step_of_the_trainer_is_recorded_on_every_rank(trained: Trained) -> None:
    """But the first under DDP, at whose end the model is found."""
    assert len(trained.ranks) == KINDS[trained.kind]
    for rank in trained.ranks:
        steps = [row.step for row in rank.steps]
        assert steps == list(range(2 if trained.kind == "ddp" else 1, STEPS + 1))
        for path in ("forward", "backward"):
            assert sum(row.path == path for row in rank.spans) == ACCUMULATION * len(steps)


def test_the_recording_ends_with_the_training(trained: Trained) -> None:
    assert all(rank.ended for rank in trained.ranks)


def test_losses_and_learning_rates_are_recorded(trained: Trained) -> None:
    for rank in trained.ranks:
        steps = {row.step for row in rank.steps}
        assert set(rank.metric("loss")) == set(rank.metric("lr")) == steps


def test_the_loss_is_the_one_that_the_trainer_logs(trained: Trained) -> None:
    """It divides each micro-batch's by their number, and logs the mean over the ranks."""
    logged = trained.results[0]["logged"]
    for step in trained.ranks[0].metric("loss"):
        told = [rank.metric("loss")[step] for rank in trained.ranks]
        assert sum(told) / len(told) == pytest.approx(logged[step - 1], rel=1e-3)


def test_what_the_trainer_evaluates_and_saves_is_one_phase_each_of_the_step_that_follows(
    trained: Trained,
) -> None:
    """It asks what DDP holds, whose forward is not seen, and an engine saves inside of its save."""
    for rank in trained.ranks:
        for path in ("evaluation", "checkpoint"):
            steps = [row.step for row in rank.spans if row.path == path]
            assert [step for step in steps if step <= STEPS] == [SAVED + 1]


def test_communication_is_seen_where_there_is_any(trained: Trained) -> None:
    for rank in trained.ranks:
        seen = any("backward" in row.path for row in rank.collectives)
        assert seen == (trained.kind != "plain")


def test_a_trainer_that_resumes_has_the_steps_behind_its_checkpoint_and_no_other(
    trained: Trained,
) -> None:
    logged = trained.results[0]["logged"]
    ranks = folder(trained.out / "resumed")
    assert len(ranks) == KINDS[trained.kind]
    for rank in ranks:
        steps = [row.step for row in rank.steps]
        assert steps == list(range(SAVED + 1 + (trained.kind == "ddp"), STEPS + 1))
        forwards = [row.step for row in rank.spans if row.path == "forward"]
        assert sorted(forwards) == sorted(steps * ACCUMULATION)
        assert list(rank.metric("loss")) == steps
    for step in rank.metric("loss"):
        told = [rank.metric("loss")[step] for rank in ranks]
        assert sum(told) / len(told) == pytest.approx(logged[step - 1], rel=1e-3)
    for result in trained.results:
        assert result["resumed"] == result["plain"]


def test_an_optimizer_that_only_the_state_tells_of_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in transformers 4.49, whose callbacks are given None."""
    torch = pytest.importorskip("torch")
    monkeypatch.setitem(sys.modules, "transformers", SimpleNamespace(TrainerCallback=object))
    monkeypatch.delitem(sys.modules, "dsprof.integrations.hf", raising=False)
    callback = importlib.import_module("dsprof.integrations.hf").DsprofCallback(out=tmp_path)
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    state = SimpleNamespace(global_step=0, optimizer=optimizer)
    callback.on_train_begin(SimpleNamespace(world_size=1), state, model=model, optimizer=None)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    callback.on_train_end()
    callback._search.detach()
    monkeypatch.delitem(sys.modules, "dsprof.integrations.hf")
    (rank,) = folder(tmp_path)
    assert [step.step for step in rank.steps] == [1]
