"""A real job in device time: `tests/hook/device` checks the sums with planted times."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import pytest

from dsprof import load
from dsprof.analysis.lanes import lanes
from tests.hook.on_gpu.fakes import (
    MS,
)
from tests.hook.rows import folder

JOB = ("device",)


@pytest.mark.parametrize("stage", ["1", "3"])
def test_a_real_job_is_recorded_in_device_time_whole(
    results: list[dict[str, Any]], out: Path, stage: str
) -> None:
    """On two ranks, whose device is the host."""
    ranks = folder(out / f"stage-{stage}")
    counted = [bool(told.gpu) or "gpu_counters" in told.config for told in ranks]
    assert any(counted)  # had its turn to ask the driver
    for told, result in zip(ranks, results, strict=True):
        assert result[stage]["watched"] == result[stage]["plain"]
        assert told.ended
        assert told.config["phases_on"] == "gpu"
        assert [step.step for step in told.steps] == [1, 2, 3, 4]
        assert all(row.gpu >= 0 for row in told.spans)
        late = [row.gpu_begin - row.begin for row in told.spans]
        assert abs(statistics.median(late)) < MS, "no later than is proved"
        assert all(call.blocked >= 0 for call in told.collectives)
        assert sum(call.calls for call in told.collectives) == result[stage]["issued"]
        for step in told.steps:
            assert sum(step.classes) == pytest.approx(step.length * 1e-9)
            assert min(step.classes) >= 0
            assert step.classes[0] > 0
        assert sum(step.classes[1] for step in told.steps) > 0
        blocked = sum(call.blocked for call in told.collectives)
        assert sum(step.classes[1] for step in told.steps) == pytest.approx(blocked * 1e-9)
    run = load(out / f"stage-{stage}")
    drawn = lanes(run.moments(run.steps[run.steps["step"] == 3]))
    assert {one.path.split("/")[0] for one in drawn[0]} >= {"forward", "backward", "step"}
