"""Forwards in evaluation mode with gradients: evaluation, unless something learns from them."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.hook.jobs_of import run_each
from tests.hook.rows import Rows, folder

JOB = ("evaluating",)
STEPS, BATCHES, MICROS = 4, 3, 2
WAYS = ("forgotten", "tuned", "attacked", "slow", "late", "nested", "compiled", "second")


@pytest.fixture(scope="module")
def result(out: Path) -> dict[str, Any]:
    """Of one process that knows of no ranks."""
    return run_each("evaluating", out, {"all": 1}, "torch")["all"][0]


@pytest.fixture
def rows(result: dict[str, Any], out: Path, way: str) -> Rows:
    assert result
    (found,) = folder(out / "all" / way)
    return found


def steps_of(rows: Rows, path: str) -> list[int]:
    return [row.step for row in rows.spans if row.path == path]


@pytest.mark.parametrize("way", WAYS)
def test_the_losses_of_training_are_the_same_and_no_others_are_told(
    result: dict[str, Any], rows: Rows, way: str
) -> None:
    plain, watched = result[way]
    assert watched == plain
    first = 2 if way in {"late", "compiled"} else 1  # that of the first step may be divided
    known = {step: loss for step, loss in enumerate(plain, 1) if step >= first}
    assert rows.metric("loss") == pytest.approx(known)


@pytest.mark.parametrize("way", ["forgotten", "tuned"])
def test_an_evaluation_that_forgets_no_grad_is_no_training(rows: Rows) -> None:
    """Also of a model that is tuned in evaluation mode."""
    assert steps_of(rows, "evaluation") == [2] * BATCHES + [4] * BATCHES
    assert steps_of(rows, "forward") == sorted([*range(1, STEPS + 1)] * MICROS)
    assert {row.micros for row in rows.steps} == {MICROS}
    spent = {row.step: 0.0 for row in rows.steps}
    for row in rows.spans:
        if row.path in {"forward", "backward"}:
            spent[row.step] += row.length * 1e-9
    assert [row.classes[0] for row in rows.steps] == pytest.approx(list(spent.values()))


@pytest.mark.parametrize("way", ["attacked"])
def test_an_attack_on_a_model_is_training(rows: Rows) -> None:
    assert steps_of(rows, "evaluation") == []
    assert len(steps_of(rows, "forward")) == STEPS * (MICROS + 1)


@pytest.mark.parametrize("way", ["slow"])
def test_a_row_waits_for_the_gradient_that_decides_what_it_is(rows: Rows) -> None:
    assert steps_of(rows, "evaluation") == []
    assert len(steps_of(rows, "forward")) == STEPS * MICROS
    assert not any(math.isnan(row.classes[0]) for row in rows.steps)


@pytest.mark.parametrize("way", ["nested"])
def test_a_model_that_calls_itself_in_evaluation_mode_is_training(rows: Rows) -> None:
    assert steps_of(rows, "evaluation") == []
    assert len(steps_of(rows, "forward")) == STEPS * MICROS


@pytest.mark.parametrize("way", ["both"])
def test_one_gradient_that_came_too_late_suffices_if_others_come_in_time(rows: Rows) -> None:
    assert {row.step for row in rows.spans if row.path == "evaluation"} == {1}
    assert [row.step for row in rows.steps if math.isnan(row.classes[0])] == [1]


@pytest.mark.parametrize("way", ["second"])
def test_a_model_that_is_tuned_in_evaluation_mode_beside_another_has_its_own_first_step(
    rows: Rows,
) -> None:
    forwards = Counter((row.engine, row.step) for row in rows.spans if row.path == "forward")
    many = enumerate((1, MICROS))
    assert forwards == {(of, step): n for of, n in many for step in range(1, STEPS + 1)}


@pytest.mark.parametrize("way", ["compiled"])
def test_a_backward_that_is_compiled_in_one_graph_goes_on(rows: Rows) -> None:
    """Our hook would break the graph. Without it all but the first forward are training."""
    assert steps_of(rows, "evaluation") == [1]
    assert len(steps_of(rows, "forward")) == STEPS * MICROS - 1
    assert len(steps_of(rows, "backward")) == STEPS * MICROS


@pytest.mark.parametrize("way", ["late"])
def test_a_step_whose_row_was_written_too_early_is_not_divided(rows: Rows) -> None:
    """From then on such forwards are training."""
    assert steps_of(rows, "evaluation") == [1]
    assert [row.step for row in rows.steps if math.isnan(row.classes[0])] == [1]
    assert {row.micros for row in rows.steps} == {MICROS}
