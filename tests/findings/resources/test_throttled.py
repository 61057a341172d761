"""GPUs that slow themselves down."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsprof.events import Severity
from dsprof.recording.writer import Writer
from dsprof.run import load
from tests.findings.plants import Row, alone, one, quiet, run_of, steps, why


def sample(name: str, rank: int, step: int, value: float) -> Row:
    return {"kind": "gpu", "name": name, "raw": name, "rank": rank, "step": step, "value": value,
            "text": f"GPU-{rank}", "host": "w1"}  # fmt: skip


def test_a_gpu_that_is_too_hot_is_named() -> None:
    rows = [
        sample(name, rank, step, value)
        for step in range(1, 21)
        for rank in range(2)
        for name, value in (
            ("throttled_power", 1),
            ("throttled_hardware", 0),
            ("throttled_thermal", int(rank == 1 and step > 15)),
            ("temperature", 70 + 19 * rank),
        )
    ]
    found = one(run_of(steps(20, {}) + rows), "gpu-throttled")
    assert found.ranks == (1,)
    assert found.severity is Severity.WARNING
    assert found.title == ("The GPU of rank 1 runs below its clock in 25 % of its samples: too hot")
    assert "5 of 20 samples of it say so, at up to 89 °C. Of 2 sampled GPUs" in found.summary
    assert found.gain is None


@pytest.mark.parametrize(
    ("hot", "words"),
    [
        ((0, 1, 2), "All 3 sampled GPUs are held back in as large a share of theirs."),
        ((1, 2), "2 of 3 sampled GPUs are held back in as large a share of theirs."),
    ],
)
def test_of_gpus_that_are_all_too_hot_none_is_said_to_be_held_back_most(
    hot: tuple[int, ...], words: str
) -> None:
    rows = [
        sample("throttled_thermal", rank, step, int(rank in hot))
        for step in range(1, 21)
        for rank in range(3)
    ]
    found = alone(run_of(steps(20, {}) + rows), "gpu-throttled")
    assert found.summary == f"20 of 20 samples of it say so. {words}"


def test_a_gpu_at_its_power_limit_works_as_it_should() -> None:
    rows = [sample(name, 0, step, value) for step in range(20)
            for name, value in (("throttled_power", 1), ("throttled_thermal", 0))]  # fmt: skip
    assert quiet(run_of(steps(20, {}) + rows), "gpu-throttled")


def test_gpu_samples_of_a_recording_are_judged(tmp_path: Path) -> None:
    clock = {"perf_ns": 1, "wall_ns": 2, "error_ns": 0}
    job = {"rank": 3, "host": "w1", "world": 8, "clock": clock, "config": {"gpu": "GPU-5d1a"}}
    writer = Writer.create(tmp_path, job)
    uuid, hot = writer.name("GPU-5d1a"), writer.name("throttled_thermal")
    for _ in range(10):
        writer.gpu(hot, 1.0, gpu=uuid)
    writer.close()
    found = one(load(tmp_path), "gpu-throttled")
    assert found.severity is Severity.CRITICAL
    assert found.title.startswith("The GPU of rank 3 runs below its clock in 100 %")
    assert found.summary == "10 of 10 samples of it say so."


def test_a_log_cannot_tell_of_throttling() -> None:
    assert "no samples of the GPUs" in (why(run_of(steps(30, {})), "gpu-throttled") or "")
