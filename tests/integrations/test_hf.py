"""Hugging Face's own Trainer, with DeepSpeed, with DDP and alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.hook.jobs_of import run
from tests.hook.rows import Rows, folder

STEPS, ACCUMULATION = 6, 2
RANKS = {"deepspeed": 2, "ddp": 2, "plain": 1}


@pytest.fixture(scope="module", params=RANKS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory, kind: str) -> Path:
    return tmp_path_factory.mktemp(kind)


@pytest.fixture(scope="module")
def results(out: Path, kind: str) -> list[dict[str, Any]]:
    return run("hf_train", out, kind, ranks=RANKS[kind], needs="transformers")


@pytest.fixture
def rows(results: list[dict[str, Any]], out: Path) -> list[Rows]:
    ranks = folder(out / "run")
    assert len(ranks) == len(results)
    return ranks


def test_weights_are_the_same_to_the_last_bit(results: list[dict[str, Any]]) -> None:
    for result in results:
        assert result["watched"] == result["plain"]


def test_every_step_of_the_trainer_is_recorded(rows: list[Rows], kind: str) -> None:
    """But the first under DDP, at whose end the model is found."""
    for rank in rows:
        steps = [row.step for row in rank.steps]
        assert steps == list(range(1, STEPS if kind == "ddp" else STEPS + 1))
        for path in ("forward", "backward"):
            assert sum(row.path == path for row in rank.spans) == ACCUMULATION * len(steps)


def test_the_recording_ends_with_the_training(rows: list[Rows]) -> None:
    assert all(rank.ended for rank in rows)


def test_losses_and_learning_rates_are_recorded(rows: list[Rows]) -> None:
    for rank in rows:
        steps = {row.step for row in rank.steps}
        assert set(rank.metric("loss")) == set(rank.metric("lr")) == steps


def test_communication_is_seen_where_there_is_any(rows: list[Rows], kind: str) -> None:
    for rank in rows:
        assert any("backward" in row.path for row in rank.collectives) == (kind != "plain")
