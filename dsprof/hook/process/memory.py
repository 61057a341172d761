"""Memory of the process, of its host or container, and of PyTorch's allocator, sampled now and
then.

Nothing is reset: peaks are those since training itself last reset them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from dsprof.hook.process.cgroups import groups, number, table
from dsprof.recording import Unit, Writer

EARLY: Final = 50_000_000  # ns between two samples of process and allocator, at first
EVERY: Final = 500_000_000  # and at most, later in the run
LOOKS: Final = 50  # samples per elapsed time, in between: enough to show growth in a short run
HOST_EVERY: Final = 5_000_000_000  # ns between two samples of the host, by its first rank

#: Name of `events.MEMORY` → where `torch.cuda.memory_stats` keeps it.
_ALLOCATOR: Final = {
    "allocated": ("allocated_bytes", "all", "current"),
    "max_allocated": ("allocated_bytes", "all", "peak"),
    "reserved": ("reserved_bytes", "all", "current"),
    "max_reserved": ("reserved_bytes", "all", "peak"),
}
_RETRIES: Final = "num_alloc_retries"  # allocations that first had to flush the cache


class Memory:
    """Samples memory at the first end of a step at or after `due` (ns of `perf_counter_ns`).

    Args:
        allocator: nested statistics of the device's allocator; None without a device.
        host: only on the first rank of a host; the others need not read the same.
    """

    def __init__(
        self, writer: Writer, allocator: Callable[[], Mapping[str, Any]] | None, host: Host | None
    ) -> None:
        self._writer, self._allocator, self._host = writer, allocator, host
        self.due = self._next_host = 0  # when to sample next
        self._begun: int | None = None
        self._retries: int | None = None

    def sample(self, step: int, at: int) -> None:
        if self._begun is None:
            self._begun = at
        self.due = at + min(max((at - self._begun) // LOOKS, EARLY), EVERY)
        self._write("host_process", resident(), step)
        if self._allocator:
            self._sample_allocator(self._allocator(), step)
        if self._host and at >= self._next_host:
            self._next_host = at + HOST_EVERY
            used, percent = self._host.used()
            self._write("host_used", used, step)
            self._write("host_percent", percent, step, Unit.VALUE)

    def _sample_allocator(self, told: Mapping[str, Any], step: int) -> None:
        """Write the allocator's statistics. An allocator other than PyTorch's may lack
        any of them.
        """
        for name, path in _ALLOCATOR.items():
            self._write(name, _at(told, path), step)
        retries = told.get(_RETRIES)
        if retries is not None and self._retries is not None and retries > self._retries:
            self._write("cache_flushes", retries - self._retries, step, Unit.COUNT)
        self._retries = retries

    def _write(self, name: str, value: float | None, step: int, unit: Unit = Unit.BYTES) -> None:
        if value is not None:
            self._writer.memory(self._writer.name(name), value, step, unit=int(unit))


def _at(told: Mapping[str, Any], path: tuple[str, ...]) -> float | None:
    value: Any = told
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return None if value is None else float(value)


def resident() -> int | None:
    """Resident memory of this process in bytes, from /proc/self/statm; None if that is unavailable.

    The file is not kept open: training may close all descriptors and reuse their numbers.
    """
    try:
        told = Path("/proc/self/statm").read_text(encoding="ascii")
    except OSError:
        return None
    return int(told.split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Host:
    """Memory that all processes may use together: the container's limit, or else the host's.

    For a container, its working set counts, as Kubernetes defines it: usage without the file cache
    that the kernel would reclaim first.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self._meminfo = root / "proc/meminfo"
        limited = (group for group in groups(root, "memory") if number(group / "memory.max"))
        self._group = next(limited, None)

    def used(self) -> tuple[float | None, float | None]:
        """Bytes in use, and percent of the limit; None if unknown."""
        used, limit = self._of_group() if self._group else self._of_host()
        return used, 100 * used / limit if used is not None and limit else None

    def _of_group(self) -> tuple[float | None, float | None]:
        assert self._group
        used = number(self._group / "memory.current")
        idle = table(self._group / "memory.stat").get("inactive_file", 0)
        return (None if used is None else used - idle), number(self._group / "memory.max")

    def _of_host(self) -> tuple[float | None, float | None]:
        told = table(self._meminfo)
        total, free = told.get("MemTotal:"), told.get("MemAvailable:")
        if total is None or free is None:
            return None, None
        return (total - free) * 1024, total * 1024
