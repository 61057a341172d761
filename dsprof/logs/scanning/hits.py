"""The hits of a piece in columns: the lines they stand on, and which of them may be read at once.

Most needles are the first on their line, and what stands behind them belongs to their record.
Those of one needle are read together; the others one by one, as what they are depends on
the record in front of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

(_RETURN,) = b"\r"

#: A hit's number, and the columns of `Hits` in their order.
One = tuple[int, int, int, int, int, int, int, int, bool]


class Mask:
    """Where a byte stands. Keeps its memory: fresh memory costs more than filling it."""

    def __init__(self) -> None:
        self._mask = np.empty(0, bool)

    def of(self, byte: int, piece: bytes) -> np.ndarray:
        """A mask of the piece; the next one lies in the same memory."""
        if len(self._mask) < len(piece):
            self._mask = np.empty(len(piece), bool)
        mask = self._mask[: len(piece)]
        return np.equal(np.frombuffer(piece, np.uint8), byte, out=mask)


@dataclass(slots=True)
class Hits:
    """Hits of one piece in order: parallel arrays.

    Attributes:
        needle: its number.
        start, stop: its first byte and the byte behind its last.
        line: where its line begins.
        low, high: where the text between line ends or carriage returns begins and ends that
            it stands in: a bar's redrawing ends lines too.
        number: its line's number in the source.
        behind_bar: something that a carriage return took back stands in front on the line.
    """

    needle: np.ndarray
    start: np.ndarray
    stop: np.ndarray
    line: np.ndarray
    low: np.ndarray
    high: np.ndarray
    number: np.ndarray
    behind_bar: np.ndarray

    @classmethod
    def of(
        cls,
        piece: bytes,
        found: np.ndarray,
        ends: np.ndarray,
        returns: np.ndarray | None,
        before: int,
    ) -> Hits:
        """Hits of a piece.

        Args:
            found: as `find.Finder` gives them.
            ends: where its lines end.
            returns: where its carriage returns stand, None if there are none.
            before: lines that went before it.
        """
        needle, start, stop = found
        index = np.searchsorted(ends, start)
        line, high = _bounds(ends, index, len(piece))
        low, behind_bar = line, np.zeros(len(start), bool)
        if returns is not None:
            cuts = np.sort(np.concatenate([ends, returns]), kind="stable")
            low, high = _bounds(cuts, np.searchsorted(cuts, start), len(piece))
            behind_bar = (low != line) & (np.frombuffer(piece, np.uint8)[line] != _RETURN)
        return cls(needle, start, stop, line, low, high, index + before + 1, behind_bar)

    def segments(self) -> tuple[np.ndarray, np.ndarray]:
        """Numbers of the first and of the last hit of each text that holds any."""
        first = np.flatnonzero(np.diff(self.low, prepend=-1))
        return first, np.append(first[1:], len(self.low)) - 1

    def each(self, which: np.ndarray) -> Iterator[One]:
        """Number of some hits, and what is known of each."""
        names = ("needle", "start", "stop", "line", "low", "high", "number", "behind_bar")
        columns = [getattr(self, name)[which].tolist() for name in names]
        return zip(which.tolist(), *columns, strict=True)


def each_of(
    piece: bytes, found: Sequence[Sequence[int]], newline: np.ndarray, before: int
) -> Iterator[One]:
    """All hits of a piece as `Hits.each` gives them: quicker where they are few.

    Args:
        found: needle numbers, first bytes and bytes behind the last.
        newline: mask of its line ends.
        before: lines that went before it.
    """
    returns = b"\r" in piece
    number, line, end, low, high, behind_bar = before + 1, 0, -1, 0, -1, False
    for i, (needle, start, stop) in enumerate(zip(*found, strict=True)):
        if start >= end:
            low = piece.rfind(b"\n", 0, start) + 1
            number += int(np.count_nonzero(newline[line:low]))
            line, end = low, _find(piece, b"\n", start, len(piece))
            high = start if returns else end
        if start >= high:
            low = max(piece.rfind(b"\r", line, start) + 1, line)
            high = _find(piece, b"\r", start, end)
            behind_bar = low != line and piece[line] != _RETURN
        yield i, needle, start, stop, line, low, high, number, behind_bar


def _find(piece: bytes, byte: bytes, start: int, end: int) -> int:
    """Where it stands next; `end` if it does not."""
    at = piece.find(byte, start, end)
    return at if at >= 0 else end


def _bounds(ends: np.ndarray, index: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    bounds = np.concatenate([[-1], ends, [size]])
    return bounds[index] + 1, bounds[index + 1]
