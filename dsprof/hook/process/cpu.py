"""How long the training thread was ready to run and had no CPU to run on."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Final

from dsprof.hook.process.cgroups import groups, number, table
from dsprof.hook.process.memory import HOST_EVERY, LOOKS
from dsprof.recording import Unit, Writer

#: Of the thread that reads it: ns on a CPU, ns of waiting for one, and how often it ran
#: (Linux, Documentation/scheduler/sched-stats.rst). All 0 if the kernel does not count.
_COUNTED: Final = Path("/proc/thread-self/schedstat")


class Limit:
    """CPU time that the processes of a control group may use (CFS bandwidth control), and for how
    long they were stopped because they had used it.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        of_group = {group: _allowed(group) for group in groups(root, "cpu")}
        self.cpus = min((cpus for cpus in of_group.values() if cpus), default=None)
        self._told = [group / "cpu.stat" for group, cpus in of_group.items() if cpus]

    def stopped(self) -> float:
        """Seconds until now, added up over the CPUs on which they would have run."""
        told = [table(file) for file in self._told]
        return sum(
            one["throttled_usec"] * 1e-6  # version 2
            if "throttled_usec" in one
            else one.get("throttled_time", 0) * 1e-9
            for one in told
        )


def _allowed(group: Path) -> float | None:
    """CPUs that a control group may keep busy; None if it has no limit."""
    try:
        quota, period = (group / "cpu.max").read_text(encoding="ascii").split()  # version 2
        return int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        pass
    used, of = number(group / "cpu.cfs_quota_us"), number(group / "cpu.cfs_period_us")
    return used / of if used and of and used > 0 else None


class Cpu:
    """Writes metrics in seconds since the first sample: `cpu_wait`, what training has waited for a
    CPU, of the thread that ends the steps; `cpu_throttled` where there is a limit.
    """

    def __init__(
        self, writer: Writer, counted: Path = _COUNTED, limit: Limit | None = None
    ) -> None:
        self._writer, self._counted = writer, counted
        self._limit = limit or Limit()
        self._name = writer.name("cpu_wait")
        self._throttled = writer.name("cpu_throttled") if self._limit.cpus else 0
        self._thread = self._before = self._total = 0
        self._begun: int | None = None
        self._stopped = self._limit.stopped()
        self._due = 0

    def sample(self, at: int) -> bool:
        """Call from that thread; `at` is the time of `perf_counter_ns`. Of a long run seldom looks
        are enough: a count forgets nothing. Whether it was time for one.
        """
        if at < self._due:
            return False
        if self._begun is None:
            self._begun = at
        self._due = at + min((at - self._begun) // LOOKS, HOST_EVERY)
        waited = self._waited()
        if waited is not None:
            self._tell(waited, at)
        return True

    def _tell(self, waited: int, at: int) -> None:
        thread = threading.get_native_id()
        if thread == self._thread:  # another one has another count
            self._total += max(waited - self._before, 0)
        self._thread, self._before = thread, waited
        self._write(self._name, self._total * 1e-9, at)
        if self._throttled:
            self._write(self._throttled, self._limit.stopped() - self._stopped, at)

    def _write(self, name: int, seconds: float, at: int) -> None:
        self._writer.metric(name, seconds, unit=Unit.SECONDS, at_ns=at)

    def _waited(self) -> int | None:
        """Nanoseconds; None where the kernel does not tell."""
        try:
            told = self._counted.read_bytes().split()
            return int(told[1]) if int(told[0]) else None
        except (OSError, IndexError, ValueError):
            return None
