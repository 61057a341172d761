"""Progress bars, read only where one is wanted.

A job redraws its bar many times a second; as records they would outnumber everything
else and say nothing. But a record that has no step number of its own is printed next
to the bar that shows it, and the last bar of a source says how far it came.
"""

from __future__ import annotations

from typing import Final

from dsprof.grammar import Grammar
from dsprof.logs.records import Groups

LOOK_BACK: Final = 4096  # bytes before a record in which its bar must stand
_TRIES: Final = 4


class Bars:
    """Looks back for bars, across the pieces a source is read in."""

    def __init__(self, grammar: Grammar) -> None:
        self._patterns = [(i, p) for i, p in enumerate(grammar.patterns) if p.behind]
        self._needles = {needle for _, p in self._patterns for needle in p.needles}
        self._tail = b""
        self._last = -1

    def remember(self, piece: bytes) -> None:
        """Call with each piece once it is read."""
        self._tail = piece[-LOOK_BACK:] if len(piece) >= LOOK_BACK else (self._tail + piece)[-LOOK_BACK:]

    def before(
        self, piece: bytes, begin: int, offset: int
    ) -> tuple[int, Groups, int, int] | None:
        """The last bar before `piece[begin]`: pattern, groups, place in the source, and how
        many lines back it stands. None if there is none, or if it was given before.

        Args:
            offset: place of the piece in the source.
        """
        if begin >= LOOK_BACK:
            text = piece[begin - LOOK_BACK : begin]
        else:
            text = (self._tail + piece[:begin])[-LOOK_BACK:]
        found = self._last_in(text)
        if found is None:
            return None
        number, groups, start = found
        place = offset + begin - len(text) + start
        if place <= self._last:
            return None
        self._last = place
        return number, groups, place, text.count(b"\n", start)

    def _last_in(self, text: bytes) -> tuple[int, Groups, int] | None:
        end = len(text)
        for _ in range(_TRIES):
            end = max((text.rfind(needle, 0, end) for needle in self._needles), default=-1)
            if end < 0:
                return None
            for number, pattern in self._patterns:
                match = pattern.regex.match(text, end) if pattern.regex else None
                if match is not None:
                    return number, match.groups(), end
        return None
