"""Bytes to records: the one pass over a source.

Every dialect's needles are searched at once; only what stands around a hit is looked at
closely. A line without a needle costs nothing but its search.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Final

import numpy as np

from dsprof.grammar import Grammar, Pairs, Pattern
from dsprof.logs import wrappers
from dsprof.logs.bars import Bars
from dsprof.logs.blocks import Blocks, OpenBlock
from dsprof.logs.coverage import Unread
from dsprof.logs.find import Hit
from dsprof.logs.lines import Lines
from dsprof.logs.measures import Groups
from dsprof.logs.pairs import end_of_pairs
from dsprof.logs.records import Records, shape_of_record
from dsprof.logs.search import Candidate, search_of
from dsprof.logs.senders import NOBODY, Sender
from dsprof.logs.torn import whole_groups, whole_pairs

_LINE_ENDS: Final = b"\n\r"
_LEAD: Final = 64  # bytes before a needle that a pattern's lead may reach back
_LONGEST_WRAPPED: Final = 4096
_LONGEST_RECORD: Final = 1 << 14
_MOST_ON_A_LINE: Final = 256  # needles looked at for the end of one record's pairs
_NEWLINE, _RETURN = b"\n\r"
_COMMA_NUMBER: Final = re.compile(rb"[:=] ?[-+]?\d[\d.]{0,20},\d{1,9}(?: *\||\s*$)")
_NUMBER: Final = re.compile(
    rb"[:=] ?'?[-+]?(?:\d[\d.]{0,60}(?:[eE][-+]?\d{1,9})?|nan|inf)(?![\d,.])"
)


class Scanner:
    """Reads one source. Feed it bytes in any portions, then `finish`.

    Attributes:
        records: what was found so far.
        lines: line ends seen.
        unread: lines that look like metrics and that no pattern read.
    """

    def __init__(self, grammar: Grammar, *, first_line: int = 0, year: int = 0) -> None:
        self.records = Records(grammar, year)
        self.lines = first_line
        self.unread = Unread()
        self._grammar = grammar
        self._patterns = grammar.patterns
        self._search = search_of(grammar)
        self._shapes = [shape_of_record(number) for number in range(len(grammar.patterns))]
        self._bars = Bars(grammar)
        self._pieces = Lines()
        self._offset = 0  # of the next piece in the source
        self._blocks = Blocks(self.records)
        self._unended = False  # what is read now is a last line without its end
        self._followed = 0  # lines read behind the end, for blocks only

    @property
    def year(self) -> int:
        """The year of the first full date, 0 if there was none: clocks without one take it."""
        return self.records.senders.year

    @property
    def headers(self) -> Counter[bytes]:
        """How often each `file:line` of a logger header was seen."""
        return self.records.senders.headers

    def feed(self, data: bytes) -> None:
        piece = self._pieces.feed(data)
        if piece and piece[-1] not in _LINE_ENDS:
            piece = self._cut_between_records(piece)
        if piece:
            self._scan(piece)

    def finish(self, *, is_end: bool = True) -> None:
        """Reads what is left: a last line without an end.

        Args:
            is_end: the source ends here; False if more of it is read elsewhere, and open
                blocks may go on in `follow_blocks`.
        """
        rest = self._pieces.take()
        if rest:
            self._unended = True
            self._scan(rest)
            self._unended = False
        if is_end:
            self._blocks.close()
            self._add_bar(b"", 0, self.lines + 1, NOBODY)
        self.records.flush()

    @property
    def waiting(self) -> bool:
        """Whether a block is still open: its lines may lie ahead."""
        return bool(self._blocks)

    def look_at(self, before: bytes) -> None:
        """Bytes in front of what will be fed, that a record may look back into.

        Whoever reads them finds their records, and the bars that those look back for.
        """
        text = wrappers.without_colours(before)
        self._offset = -len(text)
        self._read_hits(text, self._search.find(text), _ends_of(text))
        self._bars.remember(text)
        self._offset = 0
        self.records = Records(self._grammar, self.records.senders.year)
        self._blocks = Blocks(self.records)

    def follow_blocks(self, data: bytes) -> None:
        """Reads whole lines for open blocks only: they lie behind the end of this range."""
        lines = self.lines + self._followed
        self._blocks.feed(wrappers.without_colours(data), self._offset, lines, set())
        self._followed += data.count(b"\n")
        self._offset += len(data)

    def join(self, later: Scanner) -> None:
        """Adds what was found in the range right behind this one."""
        self.records.join(later.records, self.lines)
        self.lines += later.lines
        self.unread.join(later.unread, self.lines - later.lines)

    def __getstate__(self) -> dict[str, object]:
        """What another process needs: what was found, not the means of finding."""
        return {name: getattr(self, name) for name in ("records", "lines", "unread")}

    def _cut_between_records(self, piece: bytes) -> bytes:
        """The part of an endless line that holds whole records; the rest is held back."""
        hits = self._search.find(piece)
        cut = max(len(piece) - self._search.longest, 0)
        for i in range(len(hits) - 1, 0, -1):
            needle, start, _ = hits[i]
            if start < len(piece) // 2:
                break
            if self._begins_record(needle, piece, start, len(piece)):
                cut = wrappers.header_start(piece, hits[i - 1][2], start)
                break
        self._pieces.give_back(piece[cut:])
        return piece[:cut]

    def _begins_record(self, needle: int, piece: bytes, start: int, high: int) -> bool:
        """Whether a record stands at a needle: a needle alone may be part of a key."""
        return any(regex.match(piece, start, high) for _, regex in self._search.of_needle[needle])

    def _scan(self, piece: bytes) -> None:
        piece = wrappers.without_colours(piece)
        hits = self._search.find(piece)
        ends = _ends_of(piece)
        taken = self._read_hits(piece, hits, ends)
        if self._blocks:
            self._blocks.feed(piece, self._offset, self.lines, taken, unended=self._unended)
        if self.unread.wants(piece):
            self.unread.look(piece, taken, self.lines)
        self.lines += len(ends)
        self._offset += len(piece)
        self._bars.remember(piece)
        self.records.flush_if_full()

    def _read_hits(  # noqa: C901, PLR0912, PLR0915  # a call a hit costs more than all branches
        self, piece: bytes, hits: list[Hit], ends: np.ndarray
    ) -> set[int]:
        """Records of a piece whose lines end at `ends`; gives where the lines begin that
        hold one. The hot loop of dsprof: one round a hit."""
        taken: set[int] = set()
        if not hits:
            return taken
        of_needle, more, around = self._search.of_needle, self._search.more, self._search.around
        add, shapes, offset = self.records.new.append, self._shapes, self._offset
        blanks, returns, last = self._search.blanks, b"\r" in piece, len(hits) - 1
        open_end = len(piece) if self._unended else -1
        here, reached = -1, 0  # line of the record before, and where that record ends
        sender: Sender | bytes = b""
        lines = _lines_of(hits, ends, self.lines, len(piece))
        for i, ((needle, start, stop), line, high, number) in enumerate(lines):
            low = line
            if returns and piece.find(b"\r", line, high) >= 0:  # a bar's ends lines too
                low = piece.rfind(b"\r", line, start) + 1 or line
                cut = piece.find(b"\r", stop, high)
                high = cut if cut >= 0 else high  # noqa: PLW2901
            if low == here and start < reached:
                continue  # inside the record before
            for p, regex in of_needle[needle]:  # noqa: B007  # p is the pattern found
                match = regex.match(piece, start, high)
                if match is not None:
                    groups, end = match.groups(), match.end()
                    break
            else:
                found = self._rejoined(of_needle[needle], piece, start, high)
                if found is None:
                    continue
                p, groups, end = *found, high
            glued, begin, body, torn = low == here, start, None, False
            if end == open_end and match is not None:
                whole = whole_groups(match, self._patterns[p].rows)
                if whole is None:
                    continue
                groups, torn = whole, whole != groups
            behind = reached if glued else low  # where the record's prefix begins
            if more[p]:
                pattern = self._patterns[p]
                if pattern.lead is not None:
                    begin, groups = _with_lead(pattern.lead, groups, piece, behind, start)
                if pattern.pairs is not None:
                    alone = not glued and (i == last or hits[i + 1][1] >= high)
                    stop_at = high if alone else self._next_record(hits, i + 1, piece, end, high)
                    body, end = _body_of(pattern.pairs, piece, end, stop_at, alone=alone)
                    if pattern.pairs.assign not in body and _is_bare(pattern):
                        continue  # a head that was torn off, or prose
                    if b"," in body and _has_foreign_numbers(body):
                        continue
                    if end == open_end or not (alone or end == high):
                        kept = _whole_body(body, pattern.pairs, piece[end:stop_at])
                        body, torn = kept, torn or pattern.pairs.timers or len(kept) < len(body)
                    body = body.strip(blanks[p])
            if glued or (low != line and piece[line] != _RETURN):
                before = sender if glued else self._who_began(piece, line)
                sender = self.records.senders.read(piece[behind:begin], before)
            else:
                sender = piece[behind:begin]
            if around[p]:
                sender = self._look_around(p, piece, sender, (low, begin, end, high), number)
            add((shapes[p], offset + begin, number, sender, groups, body))
            if torn:
                self.records.torn.add(offset + begin)
            taken.add(low)
            here, reached = low, max(stop, end)
        return taken

    def _look_around(
        self,
        p: int,
        piece: bytes,
        sender: Sender | bytes,
        bounds: tuple[int, int, int, int],
        number: int,
    ) -> Sender:
        """Reads the progress bar that numbers a record, and opens its block.

        Args:
            bounds: where its line begins, itself begins and ends, and where its line ends.
        """
        if isinstance(sender, bytes):
            sender = self.records.senders.read(sender)
        low, begin, end, high = bounds
        if self._search.looks_back[p]:
            self._add_bar(piece, begin, number, sender[0])
        block = self._patterns[p].block
        if block is not None:
            opening = piece[end:high][:_LONGEST_WRAPPED]
            margin = wrappers.margin_of(piece[low:begin])
            self._blocks.open(OpenBlock(p, block, high, begin > low, margin, sender, opening), low)
        return sender

    def _next_record(self, hits: list[Hit], first: int, piece: bytes, begin: int, high: int) -> int:
        """Where, behind `begin`, the next record on the line starts: a needle alone may be
        part of a key."""
        for needle, start, _ in hits[first : first + _MOST_ON_A_LINE]:
            if start >= high:
                break
            if start >= begin and self._begins_record(needle, piece, start, high):
                return start
        return high

    def _rejoined(
        self, candidates: list[Candidate], piece: bytes, start: int, high: int
    ) -> tuple[int, Groups] | None:
        """A record that a hard line wrap went through: tried again with the next line glued on."""
        if high + 1 >= len(piece) or high - start > _LONGEST_WRAPPED:
            return None
        text = piece[start:high]
        if text.count(b"[") == text.count(b"]"):
            return None
        stop = piece.find(b"\n", high + 1)
        glued = text.rstrip(b"\r") + piece[high + 1 : stop if stop >= 0 else len(piece)]
        for p, regex in candidates:
            match = regex.match(glued[:_LONGEST_WRAPPED])
            if match is not None and self._patterns[p].pairs is None:
                return p, match.groups()
        return None

    def _add_bar(self, piece: bytes, begin: int, number: int, who: int) -> None:
        """The progress bar in front of a record that has no step number of its own."""
        found = self._bars.before(piece, begin, self._offset)
        if found is not None:
            p, groups, offset, lines_back = found
            record = self._shapes[p], offset, number - lines_back, (who, None), groups, None
            self.records.new.append(record)

    def _who_began(self, piece: bytes, line: int) -> Sender:
        r"""A `\r` segment belongs to whoever began its line, at another time."""
        first = piece[line : piece.find(b"\r", line)]
        return self.records.senders.known(first[:_LONGEST_WRAPPED])[0], None


def _has_foreign_numbers(body: bytes) -> bool:
    """Whether pairs write their numbers another way, `12,3`: none of them would be read."""
    if body.count(b",") == body.count(b", "):  # none stands before a digit: much the quickest
        return False
    return _COMMA_NUMBER.search(body) is not None and _NUMBER.search(body) is None


def _with_lead(
    lead: re.Pattern[bytes], groups: Groups, piece: bytes, behind: int, start: int
) -> tuple[int, Groups]:
    """Where a record begins whose first word no needle can hold, and its groups."""
    match = lead.search(piece, max(behind, start - _LEAD), start)
    if match is None:
        return start, (None,) * lead.groups + groups
    return match.start(), match.groups() + groups


def _body_of(
    pairs: Pairs, piece: bytes, start: int, high: int, *, alone: bool
) -> tuple[bytes, int]:
    """The text of a record's pairs and where it ends; another record may follow on the line,
    unless it is alone there."""
    if alone and not pairs.end:
        return piece[start:high], high
    body = piece[start : min(high, start + _LONGEST_RECORD)]
    if not pairs.end:
        body = body[: wrappers.header_start(body, 0, len(body))]
    body = body[: end_of_pairs(body, pairs)]
    return body, start + len(body)


def _whole_body(body: bytes, pairs: Pairs, behind: bytes) -> bytes:
    """What is whole of pairs that may have lost their end."""
    return body if pairs.end and behind.startswith(pairs.end) else whole_pairs(body, pairs)


def _ends_of(piece: bytes) -> np.ndarray:
    """Where the lines of a piece end."""
    return np.flatnonzero(np.frombuffer(piece, np.uint8) == _NEWLINE)


def _lines_of(
    hits: list[Hit], ends: np.ndarray, before: int, size: int
) -> Iterable[tuple[Hit, int, int, int]]:
    """Each hit with its line: where it begins and ends, and its number; `before` lines
    went before the piece."""
    index = np.searchsorted(ends, np.array([start for _, start, _ in hits]))
    bounds = np.concatenate([[-1], ends, [size]])
    numbers = (index + before + 1).tolist()
    return zip(hits, (bounds[index] + 1).tolist(), bounds[index + 1].tolist(), numbers, strict=True)


def _is_bare(pattern: Pattern) -> bool:
    """Whether a record of the pattern says nothing without its pairs."""
    assert pattern.pairs is not None
    return not pattern.pairs.end and pattern.place in ("own", "timer")
