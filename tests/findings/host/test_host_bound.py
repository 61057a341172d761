"""GPUs that wait for the host between their kernels."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsprof.events import Severity
from dsprof.recording import Writer
from dsprof.run import Run, load
from tests.findings.plants import WELL, Row, alone, one, quiet, run_of, silent, steps, why
from tests.recording.recorded import CLASSES, MS, header

UUID = "GPU-5d1a"


def record(
    folder: Path,
    *,
    behind: float = 0.02,
    busy: float | None = 60,
    data: int = 0,
    waits: float = 0.0,
    many: int = 30,
    step_of_samples: int = 0,
    **told: str,
) -> Run:
    """Steps of a forward of 30 ms, a backward of 60 and an update of 10, on a GPU.

    Args:
        behind: ms by which the GPU ends each phase after the host.
        busy: percent of the time in which NVML says that a kernel runs; None: it was not asked.
        data: ms between steps in which the GPU has nothing to do.
        waits: ms of each forward after which the host has waited for the GPU; 0: never.
        step_of_samples: the step of all samples; 0: each has one.
        told: more of the configuration.
    """
    writer = Writer.create(folder, header(world=1, config={"gpu": UUID, "phases_on": "gpu"} | told))
    uuid, utilization = writer.name(UUID), writer.name("utilization")
    phases = {
        "data": (data, "data"), "forward": (30, "compute"), "backward": (60, "compute"),
        "step": (10, "optimizer"),
    }  # fmt: skip
    at = MS
    for step in range(1, many + 1):
        began, host = at, at
        for name, (length, class_) in phases.items():
            if not length:
                continue
            phase, end = writer.name(name, 0, class_), at + length * MS
            ended = max(host + 1, end - round(behind * MS))
            if name == "forward" and waits:
                inner = writer.name("synchronize", phase, "other")
                waited = at + round(waits * MS)
                writer.span(inner, waited - 10, waited, step, -1, 10, gpu_begin_ns=waited - 10)
            writer.span(phase, host, ended, step, -1, length * MS, gpu_begin_ns=at)
            at, host = end, ended
        writer.step(step, began, at, [0.0] * len(CLASSES), 1)
        if busy is not None:
            writer.gpu(utilization, busy, step_of_samples or step, gpu=uuid)
    writer.close()
    return load(folder)


def test_gpus_that_wait_for_launches_are_told_with_what_they_idle_at_least(tmp_path: Path) -> None:
    run = record(tmp_path)
    found = one(run, "host-bound")
    assert found.title == (
        "The GPUs have nothing to run for at least 40 % of each step, while it computes"
    )
    assert (found.severity, found.confidence) == (Severity.CRITICAL, "high")
    assert found.seconds_per_step == pytest.approx(0.040)
    assert found.gain == pytest.approx((0.020, 0.040))
    assert "In 29 of 29 forwards the GPU has nothing left to do" in found.summary
    assert found.evidence[0].text.endswith("is over 20 µs after the host")
    assert run.findings[0] is found
    assert "GPU waits for the host" in str(why(run, "compute-bound"))


def test_what_a_gpu_idles_outside_of_its_phases_is_not_counted(tmp_path: Path) -> None:
    found = alone(record(tmp_path, data=25), "host-bound")
    assert found.seconds_per_step == pytest.approx(0.4 * 0.125 - 0.025)
    assert "only 20 % of a step is spent where none need run" in found.summary


def test_a_gpu_need_not_run_anything_while_the_host_updates(tmp_path: Path) -> None:
    found = alone(record(tmp_path, offload_optimizer="cpu"), "host-bound")
    assert found.seconds_per_step == pytest.approx(0.4 * 0.1 - 0.010)


def test_gpus_that_are_busy_wait_for_nobody(tmp_path: Path) -> None:
    assert quiet(record(tmp_path, busy=95), "host-bound")


def test_where_a_host_is_ahead_idle_gpus_wait_elsewhere(tmp_path: Path) -> None:
    found = one(record(tmp_path, behind=8), "host-bound")
    assert (found.confidence, found.phase, found.evidence) == ("medium", None, ())
    assert "In 0 of 29 forwards the GPU has nothing left" in found.summary
    assert "in the others the host is ahead: it is not there that the GPUs wait" in found.summary


@pytest.mark.parametrize(("behind", "told"), [(0.02, True), (8, False)])
def test_without_samples_it_is_a_note_that_the_gpu_may_idle(
    tmp_path: Path, behind: float, *, told: bool
) -> None:
    run = record(tmp_path, behind=behind, busy=None)
    if not told:
        assert silent(run, "host-bound")
        assert run.findings[0].rule == "healthy"
        return
    found = one(run, "host-bound")
    assert (found.severity, found.confidence, found.share) == (Severity.INFO, "low", None)
    assert "How long the GPU idles is unknown" in found.summary
    assert "healthy" not in {finding.rule for finding in run.findings}


def test_samples_of_other_steps_count_for_nothing(tmp_path: Path) -> None:
    run = record(tmp_path, behind=8, step_of_samples=1)  # the warm-up
    assert quiet(run, "host-bound")


def test_samples_of_another_launch_count_for_nothing() -> None:
    def sampled(launch: int, busy: float) -> list[Row]:
        sample: Row = {"kind": "gpu", "name": "utilization", "raw": "utilization", "rank": 0}
        rows = [sample | {"step": step, "value": busy} for step in range(1, 31 - 10 * launch)]
        return [row | {"segment": launch} for row in (*steps(30 - 10 * launch, WELL), *rows)]

    assert quiet(run_of([*sampled(0, 100.0), *sampled(1, 0.0)], phases_on="gpu"), "host-bound")


@pytest.mark.parametrize(("waits", "told"), [(1.0, True), (20.0, False)])
def test_a_host_that_has_waited_for_the_gpu_cannot_be_ahead_of_it_at_once(
    tmp_path: Path, waits: float, *, told: bool
) -> None:
    """DeepSpeed's throughput timer waits where a forward begins."""
    run = record(tmp_path, busy=None, waits=waits)
    assert quiet(run, "host-bound") is not told


def test_few_forwards_prove_nothing(tmp_path: Path) -> None:
    assert silent(record(tmp_path / "untold", busy=None, many=15), "host-bound")
    found = one(record(tmp_path / "told", many=15), "host-bound")
    assert found.confidence == "medium"
    assert "forward" not in found.summary


def test_a_log_cannot_tell() -> None:
    assert "only a recording" in str(why(run_of(steps(40, WELL)), "host-bound"))
