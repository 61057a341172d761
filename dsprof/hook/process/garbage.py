"""How long Python collects garbage, while none of its other code runs."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Mapping
from time import perf_counter_ns as now
from typing import Any, Final

from dsprof.recording import Unit, Writer

_FULL: Final = 2  #: the generation that holds all objects; `gc.collect()` collects it


class Garbage:
    """Writes metrics since recording began: `garbage`, the seconds spent on collecting, and
    `garbage_collections`, how many of the collections searched all objects.

    Python tells `gc.callbacks` of each collection; one costs 0.3 us so.
    """

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._seconds, self._count = map(writer.name, ("garbage", "garbage_collections"))
        self._begun = self._total = self._full = 0

    def start(self) -> None:
        gc.callbacks.append(self._hear)

    def stop(self) -> None:
        with contextlib.suppress(ValueError):  # the job has removed it
            gc.callbacks.remove(self._hear)

    def write(self, at: int) -> None:
        """`at` is the time of `perf_counter_ns`."""
        self._writer.metric(self._seconds, self._total * 1e-9, unit=Unit.SECONDS, at_ns=at)
        self._writer.metric(self._count, self._full, unit=Unit.COUNT, at_ns=at)

    def _hear(self, phase: str, told: Mapping[str, Any]) -> None:
        if phase == "start":
            self._begun = now()
            return
        begun, self._begun = self._begun, 0
        if begun:  # else recording began in the middle of it
            self._total += now() - begun
            self._full += told["generation"] == _FULL
