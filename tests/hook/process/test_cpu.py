"""What the training thread waits for a CPU, by a file of the kernel with planted numbers."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from dsprof.hook.process.cpu import Cpu, Limit
from dsprof.recording import Writer
from tests.hook.rows import read


def written(writer: Writer, name: str = "cpu_wait") -> list[float]:
    writer.flush()
    return [round(row.value, 9) for row in read(writer.path).metrics if row.name == name]


def plant(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="ascii")


def test_what_a_thread_has_waited_is_told_since_the_first_sample(
    writer: Writer, tmp_path: Path
) -> None:
    counted = tmp_path / "schedstat"
    cpu = Cpu(writer, counted)
    for at, waited in [(1_000, 5_000_000_000), (2_000, 5_250_000_000), (3_000, 5_260_000_000)]:
        counted.write_text(f"700000 {waited} 12\n")
        cpu.sample(at)
    assert written(writer) == [0.0, 0.25, 0.26]


def test_a_long_run_is_asked_seldom(writer: Writer, tmp_path: Path) -> None:
    counted = tmp_path / "schedstat"
    counted.write_text("1 1 1\n")
    cpu = Cpu(writer, counted)
    for second in range(2_000):
        cpu.sample(second * 1_000_000_000)
    assert 400 < len(written(writer)) < 500


@pytest.mark.parametrize("told", [None, "0 0 0\n", "", "7", "not here"])
def test_a_kernel_that_does_not_count_leaves_no_row(
    writer: Writer, tmp_path: Path, told: str | None
) -> None:
    counted = tmp_path / "schedstat"
    if told is None:
        counted.mkdir()  # opens, and cannot be read
    else:
        counted.write_text(told)
    Cpu(writer, counted).sample(1_000)
    Cpu(writer, tmp_path / "missing").sample(1_000)
    assert written(writer) == []


def test_another_thread_that_trains_goes_on_counting_from_its_own_count(
    writer: Writer, tmp_path: Path
) -> None:
    counted = tmp_path / "schedstat"
    cpu = Cpu(writer, counted)
    for at, waited in [(1_000, 0), (2_000, 100_000_000)]:
        counted.write_text(f"1 {waited} 1\n")
        cpu.sample(at)

    def another() -> None:
        for at, waited in [(3_000, 9_000_000_000), (4_000, 9_500_000_000)]:
            counted.write_text(f"1 {waited} 1\n")
            cpu.sample(at)

    thread = threading.Thread(target=another)
    thread.start()
    thread.join()
    assert written(writer) == [0.0, 0.1, 0.1, 0.6]


V2 = {
    "sys/fs/cgroup/pod/box/cpu.max": "150000 100000\n",
    "sys/fs/cgroup/pod/box/cpu.stat": "usage_usec 7\nnr_throttled 3\nthrottled_usec 2500000\n",
    "sys/fs/cgroup/pod/cpu.max": "max 100000\n",
    "sys/fs/cgroup/pod/cpu.stat": "usage_usec 7\nnr_throttled 9\nthrottled_usec 9000000\n",
}
V1 = {
    "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "150000\n",
    "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
    "sys/fs/cgroup/cpu,cpuacct/cpu.stat": "nr_throttled 3\nthrottled_time 2500000000\n",
}


@pytest.mark.parametrize(
    ("own", "files"), [("0::/pod/box\n", V2), ("4:cpu,cpuacct:/pod/box\n0::/\n", V1)]
)
def test_a_limit_of_cpu_time_is_that_of_the_container(
    tmp_path: Path, own: str, files: dict[str, str]
) -> None:
    plant(tmp_path, {"proc/self/cgroup": own} | files)
    limit = Limit(tmp_path)
    assert limit.cpus == 1.5
    assert limit.stopped() == pytest.approx(2.5)


@pytest.mark.parametrize(
    "files",
    [
        {"sys/fs/cgroup/cpu.max": "max 100000\n"},
        {"sys/fs/cgroup/cpu.max": "nonsense\n"},
        {"sys/fs/cgroup/cpu.max": "1 0\n"},
        {
            "proc/self/cgroup": "4:cpu:/\n:\n\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
        },
        {},
    ],
)
def test_where_no_limit_is_told_none_is_written(
    writer: Writer, tmp_path: Path, files: dict[str, str]
) -> None:
    plant(tmp_path, files | {"schedstat": "1 1 1\n"})
    limit = Limit(tmp_path)
    assert limit.cpus is None
    Cpu(writer, tmp_path / "schedstat", limit).sample(1)
    assert written(writer, "cpu_throttled") == []
    assert written(writer) == [0.0]


def test_a_group_whose_name_is_no_text_raises_nothing_into_training(tmp_path: Path) -> None:
    plant(tmp_path, V2)
    own = tmp_path / "proc/self/cgroup"
    own.parent.mkdir(parents=True)
    own.write_bytes(b"0::/pod/box/\xff\n")
    assert Limit(tmp_path).cpus == 1.5


def test_for_how_long_a_limit_stopped_the_container_is_told_since_recording_began(
    writer: Writer, tmp_path: Path
) -> None:
    plant(tmp_path, {"proc/self/cgroup": "0::/pod/box\n", "schedstat": "1 1 1\n"} | V2)
    cpu = Cpu(writer, tmp_path / "schedstat", Limit(tmp_path))
    for at, stopped in [(1_000, 2_500_000), (2_000, 4_000_000)]:
        plant(tmp_path, {"sys/fs/cgroup/pod/box/cpu.stat": f"throttled_usec {stopped}\n"})
        cpu.sample(at)
    assert written(writer, "cpu_throttled") == [0.0, 1.5]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts it")
def test_the_kernel_counts_while_two_threads_want_one_cpu(writer: Writer) -> None:
    cpus = os.sched_getaffinity(0)
    cpu = Cpu(writer)
    os.sched_setaffinity(0, {min(cpus)})
    busy = "print(flush=True)\nwhile True: pass"
    beside = subprocess.Popen([sys.executable, "-c", busy], stdout=subprocess.PIPE)
    try:
        assert beside.stdout is not None
        beside.stdout.readline()
        begun = time.monotonic()
        cpu.sample(1)
        while time.monotonic() < begun + 0.5:
            pass
        cpu.sample(2)
        passed = time.monotonic() - begun
    finally:
        beside.kill()
        beside.wait()
        os.sched_setaffinity(0, cpus)
    told = written(writer)
    if not told:
        pytest.skip("this kernel does not count it")
    assert 0.1 < told[-1] < passed
