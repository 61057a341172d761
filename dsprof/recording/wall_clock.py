"""The wall clock of a recorded process, which may be set while it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from dsprof.recording.layout import CLOCK, ROW, RowKind

if TYPE_CHECKING:
    from dsprof.recording.table import Array

#: What a wall clock moves against the other without being set: time servers slew by at most 500 ppm
#: (adjtimex), and a reading may be interrupted.
_DRIFT: Final = 0.001
_JITTER: Final = 10_000_000  #: ns


class Clock:
    """Converts `perf_counter` to UTC with the readings of both clocks.

    Interpolates linearly between readings, which spreads out a drift of the wall clock. If the wall
    clock was set in between, nobody knows when: then the earlier reading holds up to the later one,
    so that no duration in between changes. A host that was suspended looks alike: the other clock
    stood still.

    `was_set` is by how many ns the wall clock was set in all; negative if back.
    """

    def __init__(self, perf: int, wall: int) -> None:
        self._perf, self._offset = [perf], [wall - perf]
        self.was_set = 0

    def define(self, rows: bytes, kinds: bytes) -> None:
        """Read the CLOCK rows among `rows`, whose kinds are given."""
        at = kinds.find(RowKind.CLOCK)
        while at >= 0:
            _, perf, wall, _ = CLOCK.unpack_from(rows, at * ROW)
            if perf > self._perf[-1]:
                self._read(perf, wall - perf)
            at = kinds.find(RowKind.CLOCK, at + 1)

    def _read(self, perf: int, offset: int) -> None:
        moved = offset - self._offset[-1]
        if abs(moved) > _JITTER + _DRIFT * (perf - self._perf[-1]):
            self.was_set += moved
            self._perf.append(perf - 1)
            self._offset.append(self._offset[-1])
        self._perf.append(perf)
        self._offset.append(offset)

    @property
    def last(self) -> int:
        """The last reading, in ns since 1970; for a recording that ended, its end."""
        return self._perf[-1] + self._offset[-1]

    def utc(self, perf: Array) -> Array:
        """Convert `perf` to nanoseconds since 1970 (int64)."""
        first = self._offset[0]
        drift = [float(offset - first) for offset in self._offset]
        return perf + first + np.interp(perf, self._perf, drift).astype(np.int64)
