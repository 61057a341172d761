"""What a recording did not see makes what it says of a step's time doubtful."""

from __future__ import annotations

import pytest

from tests.findings.plants import Row, config, one, phase, run_of, steps

STEPS = 30


def _recorded(unseen: int) -> list[Row]:
    """Steps of compute, communication and an optimizer, and what PyTorch counted beside."""
    rows = steps(STEPS, {"forward": 0.2, "backward_allreduce": 0.35, "optimizer_step": 0.25}, 1.0)
    rows += [phase("data", step, 0.2) for step in range(1, STEPS + 1)]
    counts = {"issued": 90, "seen": 90 - unseen}
    told = [config(f"collectives_{name}", count) | {"rank": 0} for name, count in counts.items()]
    return rows + told


@pytest.mark.parametrize("unseen", [0, 2, 30, 60])
def test_a_split_of_the_step_is_told_with_low_confidence_where_collectives_went_unseen(
    unseen: int,
) -> None:
    """A few are issued before the first step, when models are wrapped."""
    run = run_of(_recorded(unseen), world_size=2)
    for rule in ("communication-bound", "optimizer-bound"):
        found = one(run, rule)
        told = f"issued {unseen} collectives that its recording did not see" in found.summary
        assert told == (found.confidence == "low") == (unseen >= STEPS)


def test_what_is_measured_without_collectives_keeps_its_confidence() -> None:
    found = one(run_of(_recorded(60), world_size=2), "data-bound")
    assert found.confidence == one(run_of(_recorded(0), world_size=2), "data-bound").confidence
    assert "did not see" not in found.summary
