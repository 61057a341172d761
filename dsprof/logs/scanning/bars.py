"""Progress bars, read only where one is wanted.

A job redraws its bar many times a second; as records they would outnumber everything
else and say nothing. But a record that has no step number of its own is printed next
to the bar that shows it, and the last bar of a source says how far it came, as does the one in
front of a failure.
"""

from __future__ import annotations

from typing import Final

from dsprof.grammar import Grammar
from dsprof.logs.columns.measures import Groups
from dsprof.logs.scanning.singly import with_lead

LOOK_BACK: Final = 4096  # bytes before a record in which its bar must stand
_TRIES: Final = 64


class Bars:
    """Looks back for bars, across the pieces a source is read in."""

    def __init__(self, grammar: Grammar) -> None:
        behind = [(i, p) for i, p in enumerate(grammar.patterns) if p.behind]
        self._needles = sorted({needle for _, p in behind for needle in p.needles})
        self._regexes = [(i, p.regex, p.lead) for i, p in behind if p.regex]
        self._others = {i for i, p in behind if not p.rows}  # what they count tells nothing
        self._tail = b""
        self._looked = -LOOK_BACK  # place in the source up to which bars were looked for

    def remember(self, piece: bytes) -> None:
        """Call with each piece once it is read."""
        self._tail = (
            piece[-LOOK_BACK:] if len(piece) >= LOOK_BACK else (self._tail + piece)[-LOOK_BACK:]
        )

    def before(self, piece: bytes, begin: int, offset: int) -> tuple[int, Groups, int, int] | None:
        """The last bar before `piece[begin]`: pattern, groups, place in the source, and how
        many lines back it stands. None if there is none, or if it was given before.

        Args:
            offset: place of the piece in the source.
        """
        text, end = piece, begin
        low = max(begin - LOOK_BACK, self._looked - offset)  # what lies before was looked at
        self._looked = offset + begin
        if low < 0:
            text = (self._tail[low:] if -low < len(self._tail) else self._tail) + piece[:begin]
            low, end = 0, len(text)
        found = self._last_in(text, low, end)
        if found is None:
            return None
        number, groups, start = found
        return number, groups, offset + begin - (end - start), text.count(b"\n", start, end)

    def _last_in(self, text: bytes, low: int, high: int) -> tuple[int, Groups, int] | None:
        """The last bar that may be of training, else the last one that counts something else."""
        end, other = high, None
        for _ in range(_TRIES):
            at = -1
            for needle in self._needles:
                at = max(at, text.rfind(needle, low, end))
            if at < 0:
                break
            end = at
            found = self._at(text, end, high)
            if found is not None and found[0] not in self._others:
                return found
            other = other or found
        return other

    def _at(self, text: bytes, start: int, high: int) -> tuple[int, Groups, int] | None:
        for number, regex, lead in self._regexes:
            match = regex.match(text, start, high)
            if match is not None and lead is None:
                return number, match.groups(), start
            if match is not None and lead is not None:
                begin, groups = with_lead(lead, match.groups(), text, 0, start)
                return number, groups, begin
        return None
