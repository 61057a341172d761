"""One rank of a node samples its GPUs, whoever dies; what NVML refuses costs a note at most."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dsprof.hook.on_gpu.sampler import Sampler, Turn
from dsprof.recording import Writer
from tests.gpu import fake
from tests.gpu.fake import WHOLE, Fake, Key
from tests.hook.rows import Rows, read

ROOT = Path(__file__).parents[3]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run's folder; the lock lies beside it instead of in the machine's own /tmp."""
    (tmp_path / "node").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "node"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "node"))
    return tmp_path / "run"


@pytest.fixture
def writer(run: Path) -> Iterator[Writer]:
    writer = Writer.create(run, {"rank": 0})
    yield writer
    writer.close()


def until(what: Callable[[], bool]) -> None:
    """Patient, for the machine may be busy: what never comes fails by its deadline."""
    deadline = time.monotonic() + 60
    while not what():
        assert time.monotonic() < deadline, "nothing came"
        time.sleep(0.01)


def rows(writer: Writer) -> Rows:
    writer.flush()
    return read(writer.path)


def sampled(writer: Writer, run: Path, enough: Callable[[Rows], bool], **more: int) -> Rows:
    """What a sampler writes until there is `enough` of it."""
    sampler = Sampler(writer, run, lambda: 7, every=0.01, **more)
    sampler.start()
    until(lambda: enough(rows(writer)))
    sampler.stop()
    return rows(writer)


def test_every_gpu_of_the_node_is_sampled_under_its_uuid(writer: Writer, run: Path) -> None:
    node = Fake(2)
    node.plant(0, WHOLE)
    node.plant(1, {Key.TEMPERATURE: 50})
    found = sampled(writer, run, lambda told: len(told.gpu) > 40).gpu
    assert {row.text for row in found} == {"GPU-0a0", "GPU-1a1"}
    assert {(row.name, row.value) for row in found if row.text == "GPU-1a1"} == {
        ("temperature", 50)
    }
    power = {row.value for row in found if row.name == "power"}
    assert (power, {row.step for row in found}) == ({655.25}, {7})
    assert {row.name for row in found if "memory_process" in row.name} == {
        "pid 4242/memory_process"
    }


def test_a_lost_gpu_is_a_problem_once_and_the_others_are_sampled_on(
    writer: Writer, run: Path
) -> None:
    node = Fake(2)
    for number in (0, 1):
        node.plant(number, {Key.TEMPERATURE: 50})
    sampler = Sampler(writer, run, lambda: 7, every=0.01)
    sampler.start()
    until(lambda: len(rows(writer).gpu) > 4)
    node.plant(0, {Key.IS_LOST: 1})
    until(lambda: bool(rows(writer).problems))
    before = len(rows(writer).gpu)
    until(lambda: len(rows(writer).gpu) > before + 5)
    sampler.stop()
    (problem,) = rows(writer).problems
    assert (problem.name, problem.text, problem.step) == ("gpu-lost", "GPU-0a0", 7)
    assert {row.text for row in rows(writer).gpu[before:]} == {"GPU-1a1"}


@pytest.mark.parametrize(("error", "words"), [(9, "Driver Not Loaded"), (999, "Unknown Error")])
def test_a_driver_that_refuses_is_a_note_in_the_recording_and_nothing_else(
    writer: Writer, run: Path, capfd: pytest.CaptureFixture[str], error: int, words: str
) -> None:
    Fake(error=error)
    told = sampled(writer, run, lambda told: "gpu_counters" in told.config)
    assert words in str(told.config["gpu_counters"])
    assert (told.gpu, told.problems) == ([], [])
    assert capfd.readouterr().err == ""


def test_a_bug_of_ours_is_said_in_one_line_and_ends_the_sampling_alone(
    writer: Writer, run: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    Fake().plant(0, WHOLE)
    sampler = Sampler(writer, run, lambda: 1 // 0, every=0.01)
    sampler.start()
    until(lambda: "gpu_counters" in rows(writer).config)
    sampler.stop()
    (line,) = capfd.readouterr().err.splitlines()
    assert "sampling GPUs stopped, training goes on: ZeroDivisionError" in line


def test_a_rank_whose_uuid_torch_does_not_tell_finds_it_in_cudas_order(
    writer: Writer, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Fake(3)
    node.plant(1, {Key.MIG_MODE: 1, Key.MIG_USED_0: 7, Key.TOTAL: 9})
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,0")
    told = sampled(writer, run, lambda told: "gpu" in told.config, unnamed=1)
    assert told.config["gpu"] == "GPU-0a0"


def test_a_rank_on_a_mig_instance_has_that_one(
    writer: Writer, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Fake(2).plant(1, {Key.MIG_MODE: 1, Key.MIG_USED_0: 7, Key.TOTAL: 9})
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-1a0")
    told = sampled(writer, run, lambda told: bool(told.gpu) and "gpu" in told.config, unnamed=0)
    assert told.config["gpu"] == "MIG-1a0"
    assert {(row.name, row.value) for row in told.gpu if row.text == "MIG-1a0"} == {
        ("memory_used", 7),
        ("memory_total", 9),
    }


def test_samples_reach_the_file_although_no_step_ends(writer: Writer, run: Path) -> None:
    Fake().plant(0, WHOLE)
    writer.flushed_ns -= 10**12
    sampler = Sampler(writer, run, lambda: -1, every=0.01)
    sampler.start()
    until(lambda: bool(read(writer.path).gpu))
    sampler.stop()


@pytest.mark.usefixtures("run")
def test_a_turn_goes_back_when_it_is_released_and_leaves_no_file(run: Path) -> None:
    turn = Turn(run)
    assert turn.taken()
    assert turn.taken()
    assert list((run.parent / "node").iterdir())
    turn.release()
    assert not list((run.parent / "node").iterdir())
    again = Turn(run)
    assert again.taken()
    again.release()


@pytest.mark.usefixtures("run")
def test_a_turn_is_lost_with_its_descriptor_and_what_has_the_number_then_stays_open(
    run: Path,
) -> None:
    """Training may close all descriptors, which lets go of the lock."""
    turn = Turn(run)
    number = os.dup(0)  # the one that it will have
    os.close(number)
    assert turn.taken()
    os.close(number)
    with (run.parent / "checkpoint").open("wb") as theirs:
        assert theirs.fileno() == number
        turn.release()
        assert turn.taken()
        turn.release()
        theirs.write(b"weights")
    assert (run.parent / "checkpoint").read_bytes() == b"weights"


class Ranks:
    """Processes that sample one node's GPUs."""

    def __init__(self, run: Path) -> None:
        self.run = run
        library = fake.folder()
        self.environment = os.environ | {
            "LD_LIBRARY_PATH": str(library), "PYTHONPATH": str(ROOT), "FAKE_NVML_GPUS": "1",
        }  # fmt: skip
        self.processes: dict[int, subprocess.Popen[str]] = {}

    def start(self, rank: int) -> None:
        command = [sys.executable, str(Path(__file__).parents[1] / "sampling.py"), str(self.run)]
        process = subprocess.Popen(
            [*command, str(rank)], env=self.environment, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        self.processes[rank] = process

    def kill(self, rank: int) -> None:
        process = self.processes.pop(rank)
        process.kill()
        process.communicate()

    def samples(self, rank: int) -> int:
        (file,) = self.run.glob(f"rank-{rank:05}.*.dsprof")
        return len(read(file).gpu)


def test_another_rank_goes_on_when_the_one_that_samples_is_killed(run: Path) -> None:
    ranks = Ranks(run)
    try:
        ranks.start(0)
        until(lambda: ranks.samples(0) > 0)
        ranks.start(1)
        before = ranks.samples(0)
        until(lambda: ranks.samples(0) > before + 20)
        assert ranks.samples(1) == 0
        ranks.kill(0)
        until(lambda: ranks.samples(1) > 0)
    finally:
        for rank in list(ranks.processes):
            ranks.kill(rank)
