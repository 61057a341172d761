"""From bytes to records: the single pass over a source.

The needles of all dialects are searched for at once, and only the surroundings of hits are
examined. A line without a needle costs no more than the search.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

import numpy as np

from dsprof.grammar import Grammar
from dsprof.logs.prefixes import wrappers
from dsprof.logs.prefixes.senders import NOBODY
from dsprof.logs.scanning.bars import Bars
from dsprof.logs.scanning.blocks import Blocks
from dsprof.logs.scanning.coverage import Unread
from dsprof.logs.scanning.hits import Hits, Mask, each_of
from dsprof.logs.scanning.last_line import LastLine
from dsprof.logs.scanning.piece import Piece
from dsprof.logs.scanning.records import Records
from dsprof.logs.scanning.search import search_of
from dsprof.logs.scanning.singly import Singly
from dsprof.logs.scanning.together import Together
from dsprof.logs.sources.lines import Lines

_LINE_ENDS: Final = b"\n\r"
_NEWLINE, _RETURN = _LINE_ENDS
_FEW: Final = 256  # hits per piece; fewer are cheaper to read one by one than as columns


class Scanner:
    """Reads one source. `feed` it bytes in portions of any size, then call `finish`.

    Attributes:
        records: what was found so far.
        lines: line ends seen so far.
        unread: lines that look like metrics but were read by no pattern.
        begins: whether the first bytes fed are the beginning of the source.
    """

    def __init__(self, grammar: Grammar, *, first_line: int = 0, month: int | None = 0) -> None:
        """`month` is None if an earlier part of the source, read elsewhere, may state it."""
        self.records = Records(grammar, month)
        self.lines = first_line
        self.unread = Unread()
        self.begins = True
        self._grammar = grammar
        self._search = search_of(grammar)
        self._bars = Bars(grammar)
        self._last = LastLine(grammar)
        self._pieces = Lines()
        self._mask = Mask()
        self._offset = 0  # of the next piece, in the source or its range
        self._begin()
        self._unended = False  # the piece being read is a last line without its end
        self._returns = 0  # carriage returns before the first newline
        self._is_open = False  # the last line read so far has no end yet

    @property
    def all_lines(self) -> int:
        """Lines including a last one without an end; if there are no newlines, those that end in
        `\\r`.
        """
        return (self.lines or self._returns) + self._is_open

    @property
    def month(self) -> int:
        """The month of the first full date, 0 if there was none (see `Senders`)."""
        return self.records.senders.month

    @property
    def headers(self) -> Counter[bytes]:
        """How often each `file:line` of a logger header occurred."""
        return self.records.senders.headers

    def feed(self, data: bytes) -> None:
        piece = self._pieces.feed(data)
        if piece and piece[-1] not in _LINE_ENDS:
            piece = self._cut_between_records(piece)
        if piece:
            self._scan(piece)

    def finish(self, *, is_end: bool = True) -> None:
        """Read what is left: a last line without an end.

        Args:
            is_end: whether the source ends here; False if more of it is read elsewhere, and open
                blocks may continue in `follow`.
        """
        rest = self._pieces.take()
        if rest:
            self._unended = True
            self._scan(rest)
            self._unended = False
        if is_end:
            self._blocks.close()
            self._add_bar(b"", 0, self.lines + 1, NOBODY)
            self._add_last_line()
        self.records.flush()

    def look_at(self, before: bytes) -> None:
        """Read bytes before what will be fed, into which a record may look back.

        Their records, and the bars that these look back for, are found by whoever reads them.
        """
        text = wrappers.without_colours(before)
        self._offset = -len(text)
        piece = Piece(text, self._offset, self.lines)
        self._read_hits(piece, self._found(text), self._mask.of(_NEWLINE, text))
        self._bars.remember(text)
        self._offset = 0
        self.records = Records(self._grammar, None)
        self._begin()

    def follow(self, behind: Iterable[bytes]) -> None:
        """Read lines after the end of this range, as long as a block that began in it is open.

        Other records there are read but not kept: they may end a block, and the lines they take up
        are not gaps in one.
        """
        other = Scanner(self._grammar, first_line=self.lines)
        other.records.senders = self.records.senders.apart()
        other.begins, other._offset = False, self._offset
        other._begin(self._blocks)
        for lines in behind:
            if not self._blocks.of(self.records):
                break
            other.feed(lines)
        other.finish()
        self.records.flush()

    def join(self, later: Scanner) -> None:
        """Add what was found in the range right after this one."""
        self.records.join(later.records, self.lines, self._offset)
        self._offset += later._offset
        self.lines += later.lines
        self._is_open = later._is_open
        self.unread.join(later.unread, self.lines - later.lines)

    def __getstate__(self) -> dict[str, object]:
        """What another process needs: the results, not the means of finding them."""
        kept = ("records", "lines", "unread", "_offset", "_returns", "_is_open")
        return {name: getattr(self, name) for name in kept}

    def _cut_between_records(self, piece: bytes) -> bytes:
        """The part of a very long line that consists of whole records; the rest is held back."""
        needles, starts, stops = self._found(piece).tolist()
        cut = max(len(piece) - self._search.longest, 0)
        for i in range(len(starts) - 1, 0, -1):
            if starts[i] < len(piece) // 2:
                break
            if self._search.begins_record(needles[i], piece, starts[i], len(piece)):
                cut = wrappers.header_start(piece, stops[i - 1], starts[i])
                break
        self._pieces.give_back(piece[cut:])
        return piece[:cut]

    def _begin(self, blocks: Blocks | None = None) -> None:
        """Set up the readers that fill `records`; blocks may already be open."""
        self._blocks = Blocks() if blocks is None else blocks
        self._together = Together(self._grammar, self._search, self.records)
        self._singly = Singly(self._grammar, self._search, self.records, self._blocks)

    def _scan(self, data: bytes) -> None:
        text = wrappers.without_colours(data)
        piece = Piece(text, self._offset, self.lines, self._unended)
        newline = self._mask.of(_NEWLINE, text)
        lines = int(np.count_nonzero(newline))
        self._read_hits(piece, self._found(text), newline)
        if self._blocks:
            self._blocks.feed(text, self._offset, self.lines, piece.taken, unended=self._unended)
        self._last.remember(piece)
        if self.unread.wants(text):
            self.unread.look(text, piece.taken, self.lines)
        self.lines += lines
        if not self.lines:
            self._returns += text.count(b"\r")
        self._is_open = bool(text) and text[-1:] not in (b"\n", b"\r")
        self._offset += len(text)
        self._bars.remember(text)
        self.records.flush_if_full()

    def _found(self, text: bytes) -> np.ndarray:
        return self._search.find(text, self._offset if self.begins else None)

    def _read_hits(self, piece: Piece, found: np.ndarray, newline: np.ndarray) -> None:
        """Read the records of a piece, whose line ends are given as the mask `newline`."""
        text = piece.text
        if found.shape[1] < _FEW or piece.unended:
            few = found.tolist()
            self._singly.read(piece, each_of(text, few, newline, piece.lines), few)
        else:
            ends = np.flatnonzero(newline)
            returns = np.flatnonzero(self._mask.of(_RETURN, text)) if b"\r" in text else None
            hits = Hits.of(text, found, ends, returns, piece.lines)
            which = hits.each(np.flatnonzero(~self._together.read(piece, hits)))
            self._singly.read(piece, which, found)
        for begin, number, who in sorted(piece.numbered):
            self._add_bar(text, begin, number, who)

    def _add_last_line(self) -> None:
        """Add what the last line of the source says as such."""
        last = self._last.record()
        if last is not None:
            alike = self.records.new[self._search.shapes[last.pattern]]
            alike.add(last.offset, last.number, last.prefix, last.groups, None)

    def _add_bar(self, text: bytes, begin: int, number: int, who: int) -> None:
        """Add the progress bar before a record that has no step number of its own."""
        found = self._bars.before(text, begin, self._offset)
        if found is not None:
            p, groups, offset, lines_back = found
            alike = self.records.new[self._search.shapes[p]]
            alike.add(offset, number - lines_back, (who, None, None), groups, None)
