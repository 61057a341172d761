"""What looks like a failure and ended no training."""

from __future__ import annotations

import pytest

from tests.loaded import run_of_text

STEP = (
    "Training epoch 0, iteration {0}/99 | global_step: {0} | reduced_train_loss: 9.5 | "
    "train_step_timing in s: 27.5\n"
)
OVER = "`Trainer.fit` stopped: `max_steps=30` reached.\n"
LIMIT = (
    "slurmstepd: error: *** STEP 7.2 ON node7 CANCELLED AT 2026-03-25T18:00:12 DUE TO TIME "
    "LIMIT ***\n"
)


@pytest.mark.parametrize(
    ("lines", "ended"),
    [
        ([STEP.format(29), OVER, LIMIT], False),
        ([STEP.format(29), LIMIT], True),
        ([STEP.format(29), OVER, STEP.format(30), LIMIT], True),
        ([STEP.format(29), LIMIT, OVER], True),
    ],
    ids=["over", "not-over", "trains-again", "over-behind-it"],
)
def test_a_time_limit_behind_a_training_that_was_over_ended_no_training(
    lines: list[str], *, ended: bool
) -> None:
    run = run_of_text(*lines)
    assert ("rank-died" in {one.rule for one in run.findings}) is ended
    assert bool(run.problems["severity"].eq("info").all()) is not ended
