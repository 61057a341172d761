"""The last line of a source, which may say what nothing would follow from further up."""

from __future__ import annotations

from typing import Final, NamedTuple

from dsprof.grammar import Grammar
from dsprof.logs.columns.measures import Groups
from dsprof.logs.scanning.piece import Piece

_LONGEST: Final = 4096  # bytes of it that are looked at


class Last(NamedTuple):
    """A record that is the last line of its source.

    Attributes:
        prefix: what stands in front of it on its line.
        offset, number: its place in the source, and its line's number.
    """

    pattern: int
    groups: Groups
    prefix: bytes
    offset: int
    number: int


class LastLine:
    """Remembers the last line of what was read, if nothing has read it."""

    def __init__(self, grammar: Grammar) -> None:
        self._patterns = [(i, p) for i, p in enumerate(grammar.patterns) if p.at_end]
        self._line: tuple[bytes, int, int] | None = None

    def remember(self, piece: Piece) -> None:
        """Call with each piece once all of it is read."""
        text = piece.text
        high = len(text.rstrip())
        if not high:
            return  # blank lines say nothing
        low = text.rfind(b"\n", 0, high) + 1
        line = text[low : min(high, low + _LONGEST)]
        number = piece.lines + text.count(b"\n", 0, low) + 1
        self._line = None if low in piece.taken else (line, piece.offset + low, number)

    def record(self) -> Last | None:
        """Its record, if it is one; None of a line that another pattern or a block has read."""
        if self._line is None:
            return None
        line, offset, number = self._line
        for p, pattern in self._patterns:
            for needle in pattern.needles:
                at = line.find(needle)
                match = pattern.regex.match(line, at) if pattern.regex and at >= 0 else None
                if match is not None:
                    return Last(p, match.groups(), line[:at], offset + at, number)
        return None
