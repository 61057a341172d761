"""Backward through several models: each has the part of it that goes through its own layers."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.hook.rows import Rows

JOB = ("chained",)
STEPS = 4
KINDS = ("one loss", "two losses", "of objects", "hidden")
SEEN = KINDS[:-1]
LONG, SHORT = 0.06, 0.02  # seconds that the first and the second model's backward sleeps


def backwards(rank: Rows, engine: int) -> list[float]:
    return [
        row.length * 1e-9 for row in rank.spans if (row.path, row.engine) == ("backward", engine)
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_losses_are_the_same_to_the_last_bit(results: list[dict[str, Any]], kind: str) -> None:
    for result in results:
        assert result[kind]["watched"] == result[kind]["plain"]


@pytest.mark.parametrize("kind", SEEN)
def test_backward_is_of_the_model_that_the_gradient_goes_through(
    rows: list[Rows], kind: str
) -> None:
    """Not of the one whose forward ran last: in two losses that is the second in both."""
    for rank in rows:
        first, second = backwards(rank, 0), backwards(rank, 1)
        assert len(first) == len(second) == STEPS, kind
        assert min(first) >= LONG
        assert min(second) >= SHORT
        assert min(second) < LONG


@pytest.mark.parametrize("kind", SEEN)
def test_what_two_reducers_wait_in_one_backward_counts_once(
    results: list[dict[str, Any]], rows: list[Rows], kind: str
) -> None:
    for result, rank in zip(results, rows, strict=True):
        waited = sum(row.blocked for row in rank.collectives)
        assert 0 < waited < sum(row.length for row in rank.spans if row.path == "backward"), kind
        assert sum(row.calls for row in rank.collectives) == result[kind]["issued"]["all_reduce"]
        for step in rank.steps:
            assert all(seconds >= -1e-6 for seconds in step.classes)
            assert sum(step.classes) == pytest.approx(step.length * 1e-9, rel=1e-3)


@pytest.mark.parametrize("kind", ["one loss", "of objects"])
def test_one_loss_is_of_all_models_that_learn_from_it(
    results: list[dict[str, Any]], rows: list[Rows], kind: str
) -> None:
    for result, rank in zip(results, rows, strict=True):
        losses = [float.fromhex(loss) for loss in result[kind]["watched"]]
        for engine in range(2):
            told = [row.value for row in rank.metrics if (row.name, row.engine) == ("loss", engine)]
            assert told == losses


@pytest.mark.parametrize("kind", ["two losses"])
def test_each_loss_is_of_its_own_model(
    results: list[dict[str, Any]], rows: list[Rows], kind: str
) -> None:
    for result, rank in zip(results, rows, strict=True):
        told = [(row.engine, row.value) for row in rank.metrics if row.name == "loss"]
        losses = [float.fromhex(loss) for loss in result[kind]["watched"]]
        assert told == [(n % 2, loss) for n, loss in enumerate(losses)]


@pytest.mark.parametrize("kind", ["hidden"])
def test_where_no_output_is_a_tensor_the_split_is_unknown(rows: list[Rows], kind: str) -> None:
    for rank in rows:
        assert len(rank.steps) == 2 * STEPS, kind
        assert all(math.isnan(seconds) for step in rank.steps for seconds in step.classes)
