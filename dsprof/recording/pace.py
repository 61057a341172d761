"""How recently a recorded process trained: a thread of it samples GPUs whether or not it does."""

from __future__ import annotations

import struct
from typing import Final

from dsprof.recording.layout import ROW, RowKind

#: Kinds of rows that training writes → where a row has its duration in ns, if any.
_TRAINING: Final = {
    RowKind.SPAN: 24, RowKind.STEP: 24, RowKind.COLLECTIVE: 40,
    RowKind.METRIC: 0, RowKind.MEMORY: 0, RowKind.PROBLEM: 0,
}  # fmt: skip
_BESIDE: Final = (RowKind.GPU, RowKind.CLOCK)
_TIME: Final = 16  # where all of them have theirs
_WORD: Final = struct.Struct("<q")


class Pace:
    """The newest row, and the newest one of training, in ns of `perf_counter`."""

    def __init__(self, begun: int) -> None:
        self._trained = self._newest = begun

    def see(self, rows: bytes, kinds: bytes) -> None:
        """Rows in the order in which they were written, and their kinds."""
        ends = (_end(rows, kinds.rfind(kind), place) for kind, place in _TRAINING.items())
        self._trained = max(self._trained, *ends)
        beside = (_end(rows, kinds.rfind(kind), 0) for kind in _BESIDE)
        self._newest = max(self._newest, self._trained, *beside)

    def behind(self, seen: int) -> float:
        """Seconds from the newest row of training, or from `seen`, to the newest of all."""
        return max(0, self._newest - max(self._trained, seen)) * 1e-9


def _end(rows: bytes, row: int, duration: int) -> int:
    """When a row ended; 0 of none. `duration`: where it has its own."""
    if row < 0:
        return 0
    begin = int(_WORD.unpack_from(rows, row * ROW + _TIME)[0])
    return begin + max(0, _WORD.unpack_from(rows, row * ROW + duration)[0] if duration else 0)
