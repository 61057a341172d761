"""ArcticTraining's lines of single batches."""

from __future__ import annotations

import pytest

from tests.loaded import run_of_text

_LINE = (
    "Train iter: {step:>3}/100   4% | loss: 1.7500 | iter time: 2.500s | lr: 1.000E-05 | "
    "step time: 2.250s | epoch: 0\n"
)


def test_batches_that_are_accumulated_add_up_to_their_step() -> None:
    run = run_of_text(*(_LINE.format(step=step) for step in (1, 1, 1, 1, 2, 2, 2, 2, 3)))
    assert run.steps.set_index("step").loc[2, "seconds"] == pytest.approx(10.0)


def test_a_batch_is_a_step_where_none_is_accumulated() -> None:
    run = run_of_text(*(_LINE.format(step=step) for step in (1, 2, 3)))
    assert run.steps["seconds"].tolist() == pytest.approx([2.5, 2.5, 2.5])
    assert run.meta["framework"] == "arctic-training"
