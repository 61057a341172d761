"""InstructLab's metrics of a step, as JSON over several lines."""

from __future__ import annotations

import pytest

from tests.loaded import run_of_text


def _step(number: int, loss: float) -> str:
    return (
        f"Epoch: 0, Step: {number}, Rank: 1, loss = 0.5Epoch: 0, Step: {number}, Rank: 0, "
        f"loss = 0.25\nEpoch 0:  97%|█████████▋| {number}/78 [03:54<00:05,  2.94s/it]{{\n"
        f'    "epoch": 0,\n    "step": {number},\n    "rank": 0,\n    "overall_throughput": 44.5,\n'
        f'    "lr": 2e-06,\n    "cuda_malloc_retries": 0,\n    "total_loss": {loss},\n}}\n'
    )


def test_a_step_has_the_loss_of_all_ranks_and_the_job_is_not_taken_for_deepspeed_chat() -> None:
    run = run_of_text(_step(76, 3.75), _step(77, 4.25))
    assert run.steps["step"].tolist() == [76, 77]
    assert run.steps["loss"].tolist() == pytest.approx([3.75, 4.25])
    assert run.meta["framework"] == "instructlab"
