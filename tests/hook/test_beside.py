"""Two models in one loop: whose a backward is, whose a loss, and what was waited for once."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.hook.rows import Rows

JOB = ("beside",)
STEPS = 5
LONG, SHORT = 0.06, 0.02  # seconds that a backward sleeps
FOUND = "adversaries that are found"
KINDS = ("adversaries", "beside an engine", "through an engine", "fsdp2 and ddp", FOUND)
TWO_LOSSES = KINDS[:2]


def backwards(rank: Rows, engine: int) -> list[float]:
    """Seconds of each step's."""
    found = [row for row in rank.spans if (row.path, row.engine) == ("backward", engine)]
    steps = sorted({row.step for row in found})
    return [sum(row.length for row in found if row.step == step) * 1e-9 for step in steps]


@pytest.mark.parametrize("kind", KINDS)
def test_losses_are_the_same_to_the_last_bit(results: list[dict[str, Any]], kind: str) -> None:
    for result in results:
        assert result[kind]["watched"] == result[kind]["plain"]


@pytest.mark.parametrize("kind", ["adversaries"])
def test_of_several_models_none_has_the_job_s_number_of_parameters(
    rows: list[Rows], kind: str
) -> None:
    for rank in rows:
        assert math.isnan(float(rank.config["parameters"])), kind
        assert rank.config["data_parallel_size"] == 2


@pytest.mark.parametrize("kind", TWO_LOSSES)
def test_each_model_has_the_losses_that_it_learns_from(
    results: list[dict[str, Any]], rows: list[Rows], kind: str
) -> None:
    for result, rank in zip(results, rows, strict=True):
        for engine in range(2):
            told = [row.value for row in rank.metrics if (row.name, row.engine) == ("loss", engine)]
            assert told == [float.fromhex(losses[engine]) for losses in result[kind]["watched"]]


@pytest.mark.parametrize("kind", [FOUND])
def test_a_loss_that_came_before_its_model_was_found_is_no_other_model_s(
    results: list[dict[str, Any]], rows: list[Rows], kind: str
) -> None:
    """The discriminator is found first: of its second step, which began with the generator's loss
    through it, none is told."""
    for result, rank in zip(results, rows, strict=True):
        for engine, (at, first) in enumerate(((1, 3), (0, 2))):
            told = [row for row in rank.metrics if (row.name, row.engine) == ("loss", engine)]
            assert [row.step for row in told] == list(range(first, STEPS + 1)), kind
            for row in told:
                assert row.value == float.fromhex(result[kind]["watched"][row.step - 1][at])


@pytest.mark.parametrize("kind", TWO_LOSSES)
def test_each_model_has_its_own_backward(rows: list[Rows], kind: str) -> None:
    for rank in rows:
        for engine, least in enumerate((0 if kind == "adversaries" else LONG, SHORT)):
            steps = [row.step for row in rank.steps if row.engine == engine]
            assert steps == list(range(1, STEPS + 1))
            assert min(backwards(rank, engine)[:STEPS]) >= least
        for step in rank.steps:
            assert sum(step.classes) == pytest.approx(step.length * 1e-9, rel=1e-3)
            assert all(seconds >= -1e-6 for seconds in step.classes), kind


@pytest.mark.parametrize("kind", ["through an engine"])
def test_what_a_backward_through_an_engine_is_made_of_is_unknown(
    rows: list[Rows], kind: str
) -> None:
    for rank in rows:
        assert len(rank.steps) == 2 * STEPS, kind
        assert all(math.isnan(seconds) for step in rank.steps for seconds in step.classes)


@pytest.mark.parametrize("kind", ["fsdp2 and ddp"])
def test_what_fsdp2_waits_for_in_ddps_wait_counts_once(rows: list[Rows], kind: str) -> None:
    for rank in rows:
        assert {row.op for row in rank.collectives} >= {"all_reduce", "reduce_scatter_tensor"}, kind
        waited = sum(row.blocked for row in rank.collectives if row.path == "backward")
        assert 0 < waited < sum(row.length for row in rank.spans if row.path == "backward")
        for step in rank.steps:
            assert all(seconds >= -1e-6 for seconds in step.classes)
