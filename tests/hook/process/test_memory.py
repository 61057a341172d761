"""Memory rows, from an allocator and files with planted numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dsprof.hook.process import memory
from dsprof.hook.process.memory import EARLY, EVERY, HOST_EVERY, LOOKS, Host, Memory
from dsprof.recording import Writer
from tests.hook.rows import Value, read


def written(writer: Writer) -> list[Value]:
    writer.flush()
    return read(writer.path).memory


def stats(allocated: int, retries: int | None) -> dict[str, Any]:
    """In the shape of `torch.cuda.memory.memory_stats_as_nested_dict`."""
    told: dict[str, Any] = {
        "allocated_bytes": {"all": {"current": allocated, "peak": 2 * allocated}},
        "reserved_bytes": {"all": {"current": 3 * allocated, "peak": 4 * allocated}},
    }
    return told if retries is None else told | {"num_alloc_retries": retries}


def test_the_allocator_is_read_now_and_then_and_its_retries_are_counted_since(
    writer: Writer,
) -> None:
    told = iter([stats(10, 5), stats(20, 5), stats(30, 8)])
    memory = Memory(writer, lambda: next(told), None)
    for step, at in enumerate([0, EARLY // 2, EARLY, 2 * EARLY], 1):
        if at >= memory.due:
            memory.sample(step, at)
    rows = [row for row in written(writer) if row.name != "host_process"]
    assert [(row.name, row.step, row.value) for row in rows if row.step == 3] == [
        ("allocated", 3, 20),
        ("max_allocated", 3, 40),
        ("reserved", 3, 60),
        ("max_reserved", 3, 80),
    ]
    assert {row.step for row in rows} == {1, 3, 4}
    assert [(row.step, row.value) for row in rows if row.name == "cache_flushes"] == [(4, 3)]


def test_a_run_of_seconds_is_looked_at_as_often_as_one_of_minutes(writer: Writer) -> None:
    memory, times = Memory(writer, None, None), []
    for at in range(0, 60_000_000_000, 10_000_000):
        if at >= memory.due:
            memory.sample(1, at)
            times.append(at)
    early = [at for at in times if at <= 2_500_000_000]
    assert len(early) == LOOKS + 1
    assert times[1] == EARLY
    assert times[-1] - times[-2] == EVERY
    assert len(times) < 4 * LOOKS + 60_000_000_000 // EVERY


def test_what_an_allocator_does_not_tell_is_unknown(writer: Writer) -> None:
    memory = Memory(writer, lambda: {"allocated_bytes": {"all": {"current": 7}}}, None)
    memory.sample(1, 0)
    memory.sample(2, EVERY)
    rows = [row for row in written(writer) if row.name != "host_process"]
    assert [(row.name, row.value) for row in rows] == [("allocated", 7), ("allocated", 7)]


def test_the_process_has_resident_memory(writer: Writer) -> None:
    Memory(writer, None, None).sample(1, 0)
    (row,) = written(writer)
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    assert row.name == "host_process"
    assert row.value == pytest.approx(pages * 4096, rel=0.2)


def test_the_host_is_read_less_often(writer: Writer, tmp_path: Path) -> None:
    plant(tmp_path, "proc/meminfo", "MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 250 kB\n")
    memory = Memory(writer, None, Host(tmp_path))
    for step, at in enumerate([0, EVERY, HOST_EVERY], 1):
        memory.sample(step, at)
    rows = [row for row in written(writer) if row.name != "host_process"]
    assert [(row.name, row.step, row.value) for row in rows] == [
        ("host_used", 1, 750 * 1024),
        ("host_percent", 1, 75),
        ("host_used", 3, 750 * 1024),
        ("host_percent", 3, 75),
    ]


def plant(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text, encoding="ascii")


def test_a_container_is_full_when_its_working_set_is(tmp_path: Path) -> None:
    plant(tmp_path, "proc/meminfo", "MemTotal: 1000000 kB\nMemAvailable: 900000 kB\n")
    plant(tmp_path, "sys/fs/cgroup/memory.max", "4000\n")
    plant(tmp_path, "sys/fs/cgroup/memory.current", "3900\n")
    plant(tmp_path, "sys/fs/cgroup/memory.stat", "anon 900\ninactive_file 2900\n")
    assert Host(tmp_path).used() == (1000, 25)


def test_the_nearest_limit_counts_of_groups_that_hold_each_other(tmp_path: Path) -> None:
    plant(tmp_path, "proc/self/cgroup", "0::/slurm/job/step\n")
    plant(tmp_path, "sys/fs/cgroup/slurm/job/step/memory.max", "max\n")
    plant(tmp_path, "sys/fs/cgroup/slurm/job/memory.max", "200\n")
    plant(tmp_path, "sys/fs/cgroup/slurm/job/memory.current", "50\n")
    plant(tmp_path, "sys/fs/cgroup/slurm/memory.max", "9000\n")
    assert Host(tmp_path).used() == (50, 25)


@pytest.mark.parametrize("limit", ["max\n", None])
def test_a_container_without_a_limit_may_fill_the_host(tmp_path: Path, limit: str | None) -> None:
    plant(tmp_path, "proc/meminfo", "MemTotal: 100 kB\nMemAvailable: 60 kB\n")
    if limit:
        plant(tmp_path, "sys/fs/cgroup/memory.max", limit)
        plant(tmp_path, "sys/fs/cgroup/memory.current", "5\n")
    assert Host(tmp_path).used() == (40 * 1024, 40)


def test_a_host_that_tells_nothing_is_unknown(tmp_path: Path) -> None:
    assert Host(tmp_path).used() == (None, None)


def test_a_line_of_the_kernels_that_is_not_understood_hides_no_other(tmp_path: Path) -> None:
    odd = "\nAlone:\nMemTotal: 100 kB\nWords: many\nMemAvailable: 60 kB\n"
    plant(tmp_path, "proc/meminfo", odd)
    assert Host(tmp_path).used() == (40 * 1024, 40)


def test_no_file_stays_open_for_what_training_may_close_and_open_another_by_its_number(
    writer: Writer,
) -> None:
    before = set(Path("/proc/self/fd").iterdir())
    looks = Memory(writer, None, None)
    looks.sample(1, 0)
    assert set(Path("/proc/self/fd").iterdir()) == before
    assert [row.name for row in written(writer)] == ["host_process"]


def test_where_the_system_tells_of_no_process_its_memory_is_unknown(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As beyond Linux, or where a process may open no more files."""
    monkeypatch.setattr(memory, "Path", lambda path: Path(f"{path}-missing"))
    Memory(writer, None, None).sample(1, 0)
    assert written(writer) == []
