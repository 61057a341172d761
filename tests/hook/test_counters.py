"""From the driver to the verdict: counters of a fake driver, sampled, recorded, read, judged."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsprof.events import Severity
from dsprof.findings import Finding
from dsprof.hook.on_gpu.sampler import Sampler
from dsprof.recording import Writer
from dsprof.run import Run, load
from tests.gpu.fake import WHOLE, Fake, Key
from tests.hook.on_gpu.test_sampler import rows, until
from tests.recording.recorded import header, write_steps

HOT, HARDWARE, CAP, IDLE = 0x20 | 0x40, 0x08, 0x04, 0x01


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "node").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "node"))
    return tmp_path / "run"


def recorded(folder: Path, reasons: list[int]) -> Run:
    """Two ranks on two GPUs, each with its reason; rank 0 samples both, rank 1 runs on the first.

    `CUDA_VISIBLE_DEVICES` may order GPUs otherwise than the driver.
    """
    node = Fake(2)
    for number, bits in enumerate(reasons):
        node.plant(number, WHOLE | {Key.REASONS: bits, Key.TEMPERATURE: 60 + 30 * (bits == HOT)})
    for rank, uuid in enumerate(("GPU-1a1", "GPU-0a0")):
        writer = Writer.create(folder, header(rank))
        writer.config("gpu", uuid)
        write_steps(writer, 1, 30)
        if rank == 0:
            sampler = Sampler(writer, folder, lambda: 30, every=0.01)
            sampler.start()
            until(lambda: len(rows(writer).gpu) > 200)  # noqa: B023 - asked at once
            sampler.stop()
        writer.close()
    return load(folder)


def throttled(run: Run) -> list[Finding]:
    return [finding for finding in run.findings if finding.rule == "gpu-throttled"]


@pytest.mark.parametrize("bits", [HOT, HARDWARE])
def test_a_gpu_that_is_held_back_is_found_and_its_rank_named(folder: Path, bits: int) -> None:
    (found,) = throttled(recorded(folder, [bits, 0]))
    assert found.ranks == (1,)
    assert found.severity is not Severity.INFO


@pytest.mark.parametrize("bits", [0, IDLE, CAP])
def test_a_gpu_that_works_as_it_should_is_not(folder: Path, bits: int) -> None:
    run = recorded(folder, [bits, bits])
    assert throttled(run) == []
    assert set(run.gpu["rank"]) == {0, 1}
