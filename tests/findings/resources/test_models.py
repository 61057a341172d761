"""GPUs of several models in one job."""

from __future__ import annotations

import pytest

from dsprof.run import Run
from tests.findings.plants import Row, metric, one, phase, run_of


def late(*models: str) -> Run:
    """Rank 2 of three is late, and each rank's GPU of such a model, where one is told."""
    rows: list[Row] = [
        {"kind": "config", "name": "gpu_model", "raw": "gpu_model", "text": model, "rank": rank}
        for rank, model in enumerate(models)
        if model
    ]
    for step in range(1, 31):
        rows.append(metric("step_seconds", step, 1.0))
        for rank in range(3):
            computes = 0.9 if rank == 2 else 0.5
            rows.append(phase("forward", step, computes, rank))
            rows.append(phase("backward_allreduce", step, 1.0 - computes, rank))
    return run_of(rows, world_size=3)


def test_a_late_rank_whose_gpu_is_of_another_model_is_told_so() -> None:
    found = one(late("NVIDIA A100", "NVIDIA A100", "NVIDIA V100"), "straggler-rank")
    assert found.ranks == (2,)
    assert " It runs on NVIDIA V100, the others on NVIDIA A100." in found.summary
    setting, now, to, why = found.advice[0]
    assert (setting, now, to) == ("the GPU of rank 2", "NVIDIA V100", "NVIDIA A100, or none")
    assert why == "each step takes as long as on the slowest GPU"


@pytest.mark.parametrize(
    "models", [("A100", "A100", "A100"), ("A100", "V100", "V100"), ("A100", "A100", ""), ()]
)
def test_a_model_that_others_have_or_that_nothing_tells_is_not_named(
    models: tuple[str, ...],
) -> None:
    found = one(late(*models), "straggler-rank")
    assert "runs on" not in found.summary
    assert found.advice[0].setting != "the GPU of rank 2"
