"""Slow steps that follow a validation are said to."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsprof.page.contents import contents
from dsprof.page.validations import slowed, with_validations
from dsprof.run import Run, load
from tests.page.runs import made, validated, with_rows


@pytest.fixture
def megatron(tmp_path: Path) -> Run:
    """500 steps of 18 s; what validates every 100 steps is timed with the step that follows."""
    return load(validated(tmp_path))


def test_slow_steps_that_follow_a_validation_are_said_to(megatron: Run) -> None:
    (section,) = [s for s in contents(megatron).sections if s.name == "steps-0"]
    assert section.words.endswith(
        "Steps 101, 201, 301 and 401, slower than the others, follow a validation, "
        "which seems to be in their time."
    )
    beyond = next(t for t in section.charts[0].figure["data"] if t.get("meta") == "beyond")
    assert beyond["customdata"][0] == "step 101 after a validation"
    assert section.charts[0].note.endswith("A triangle at the top: 4 steps beyond the axis.")


def test_steps_of_the_usual_length_are_not_blamed_on_a_validation() -> None:
    told = {"kind": "metric", "name": "eval_loss", "value": 1.0, "step": 3, "line": 3}
    run = with_rows(made(9), told)
    steps = with_validations(run.steps, run.told)
    assert steps.loc[steps["validated"], "step"].tolist() == [3]
    assert slowed(steps, "step") == ""


def test_a_validation_before_the_first_step_or_behind_the_last_is_no_steps() -> None:
    told = {"kind": "metric", "name": "eval_loss", "value": 1.0, "step": 3}
    run = with_rows(made(9), told | {"line": 0}, told | {"line": 99})
    assert not with_validations(run.steps, run.told)["validated"].any()


def test_one_slow_step_is_told_in_the_singular() -> None:
    told = {"kind": "metric", "name": "eval_loss", "value": 1.0, "step": 3, "line": 3}
    run = with_rows(made(9, slow={4: 9.0}), told | {"line": 4})
    assert slowed(with_validations(run.steps, run.told), "step") == (
        " Step 4, slower than the others, follows a validation, which seems to be in its time."
    )
