"""How long the training thread was ready to run and had no CPU to run on."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Final

from dsprof.hook.memory import HOST_EVERY, LOOKS
from dsprof.recording import Unit, Writer

#: Of the thread that reads it: ns on a CPU, ns of waiting for one, and how often it ran
#: (Linux, Documentation/scheduler/sched-stats.rst). All 0 if the kernel does not count.
_COUNTED: Final = Path("/proc/thread-self/schedstat")


class Cpu:
    """Writes the metric `cpu_wait`: the seconds that training has waited for a CPU since the first
    sample, of the thread that ends the steps.
    """

    def __init__(self, writer: Writer, counted: Path = _COUNTED) -> None:
        self._writer, self._counted = writer, counted
        self._name = writer.name("cpu_wait")
        self._thread = self._before = self._total = 0
        self._begun: int | None = None
        self._due = 0

    def sample(self, at: int) -> None:
        """Call from that thread; `at` is the time of `perf_counter_ns`. Of a long run seldom looks
        are enough: a count forgets nothing.
        """
        if at < self._due:
            return
        if self._begun is None:
            self._begun = at
        self._due = at + min((at - self._begun) // LOOKS, HOST_EVERY)
        waited = self._waited()
        if waited is None:
            return
        thread = threading.get_native_id()
        if thread == self._thread:  # another one has another count
            self._total += max(waited - self._before, 0)
        self._thread, self._before = thread, waited
        self._writer.metric(self._name, self._total * 1e-9, unit=Unit.SECONDS, at_ns=at)

    def _waited(self) -> int | None:
        """Nanoseconds; None where the kernel does not tell."""
        try:
            told = self._counted.read_bytes().split()
            return int(told[1]) if int(told[0]) else None
        except (OSError, IndexError, ValueError):
            return None
