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
from dsprof.logs import clocks, wrappers
from dsprof.logs.bars import Bars
from dsprof.logs.blocks import OpenBlock
from dsprof.logs.coverage import Unread
from dsprof.logs.find import Hit
from dsprof.logs.lines import Lines
from dsprof.logs.pairs import end_of_pairs
from dsprof.logs.records import NOBODY, Groups, Records, shape_of_record
from dsprof.logs.search import Candidate, search_of
from dsprof.logs.torn import whole_groups, whole_pairs
from dsprof.logs.wrappers import Plan, Prefixes

_LINE_ENDS: Final = b"\n\r"
_LEAD: Final = 64  # bytes before a needle that a pattern's lead may reach back
_LONGEST_WRAPPED: Final = 4096
_LONGEST_RECORD: Final = 1 << 14
_MOST_ON_A_LINE: Final = 256  # needles looked at for the end of one record's pairs
_MOST_OPEN: Final = 32

_KEPT_WHO: Final = 4096
_NEWLINE: Final = 10


class Scanner:
    """Reads one source. Feed it bytes in any portions, then `finish`.

    Attributes:
        records: what was found so far.
        lines: line ends seen.
        headers: how often each `file:line` of a logger header was seen.
        unread: lines that look like metrics and that no pattern read.
    """

    def __init__(self, grammar: Grammar, *, first_line: int = 0) -> None:
        self.records = Records(grammar)
        self.lines = first_line
        self.headers: Counter[bytes] = Counter()
        self.unread = Unread()
        self._patterns = grammar.patterns
        self._search = search_of(grammar)
        self._shapes = [shape_of_record(number) for number in range(len(grammar.patterns))]
        self._bars = Bars(grammar)
        self._pieces = Lines()
        self._offset = 0  # of the next piece in the source
        self._prefixes = Prefixes()
        self._who: dict[bytes, int] = {}  # by the words that name a process
        self._blocks: list[OpenBlock] = []
        self._unended = False  # what is read now is a last line without its end
        self._followed = 0  # lines read behind the end, for blocks only
        self.year = 0  # of the first full date; clocks without a year take it

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
            self._blocks = []
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
        self._offset, self._blocks = 0, []
        self._who.clear()
        self.headers.clear()
        self.records = Records(self.records.grammar)

    def follow_blocks(self, data: bytes) -> None:
        """Reads whole lines for open blocks only: they lie behind the end of this range."""
        self._feed_blocks(wrappers.without_colours(data), set(), len(self._blocks))
        self._followed += data.count(b"\n")
        self._offset += len(data)

    def join(self, later: Scanner) -> None:
        """Adds what was found in the range right behind this one."""
        self.records.join(later.records, self.lines)
        self.lines += later.lines
        self.headers += later.headers
        self.unread.join(later.unread, self.lines - later.lines)

    def __getstate__(self) -> dict[str, object]:
        """What another process needs: what was found, not the means of finding."""
        return {name: getattr(self, name) for name in ("records", "lines", "headers", "unread")}

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
        return any(
            regex is None or regex.match(piece, start, high)
            for _, regex in self._search.of_needle[needle]
        )

    def _scan(self, piece: bytes) -> None:
        piece = wrappers.without_colours(piece)
        hits = self._search.find(piece)
        ends = _ends_of(piece)
        carried = len(self._blocks)
        taken = self._read_hits(piece, hits, ends)
        if self._blocks:
            self._feed_blocks(piece, taken, carried)
        if self.unread.wants(piece):
            self.unread.look(piece, taken, self.lines)
        self.lines += len(ends)
        self._offset += len(piece)
        self._bars.remember(piece)
        self.records.flush_if_full()

    def _read_hits(  # noqa: C901, PLR0912, PLR0915
        self, piece: bytes, hits: list[Hit], ends: np.ndarray
    ) -> set[int]:
        """Records of a piece whose lines end at `ends`; gives where the lines begin that
        hold one.

        The hot loop of dsprof: one round a hit. What it calls, it calls only for hits that
        are records, or for the few that are odd.
        """
        taken: set[int] = set()
        if not hits:
            return taken
        search, patterns = self._search, self._patterns
        of_needle, simple = search.of_needle, search.simple
        shapes = self._shapes
        add, offset = self.records.new.append, self._offset
        returns = b"\r" in piece
        last = len(hits) - 1
        open_end = len(piece) if self._unended else -1
        here, reached, who = -1, 0, NOBODY  # of the record before
        at: bytes | None = None
        groups: Groups
        lines = _lines_of(hits, ends, self.lines, len(piece))
        for i, ((needle, start, stop), line_start, line_end, number) in enumerate(lines):
            low, high = line_start, line_end
            if returns:  # a progress bar's carriage returns end lines too
                low = piece.rfind(b"\r", line_start, start) + 1 or line_start
                high = piece.find(b"\r", stop, line_end)
                if high < 0:
                    high = line_end
            if low != here:
                begin_of_prefix = low
            elif start < reached:
                continue  # inside the record before
            else:
                begin_of_prefix = reached
            for p, regex in of_needle[needle]:  # noqa: B007  # p is the pattern found
                if regex is None:
                    groups, end = (), stop
                    break
                match = regex.match(piece, start, high)
                if match is not None:
                    groups, end = match.groups(), match.end()
                    break
            else:
                found = self._rejoined(of_needle[needle], piece, start, high)
                if found is None:
                    continue
                p, groups = found
                end = high
            begin, body, is_torn = start, None, False
            if end == open_end and groups:
                match = regex.match(piece, start, high) if regex else None
                told = whole_groups(match, patterns[p].rows) if match else groups
                if told is None:
                    continue
                groups, is_torn = told, told != groups
            if not simple[p]:
                pattern = patterns[p]
                if pattern.lead is not None:
                    begin, groups = _with_lead(pattern.lead, groups, piece, begin_of_prefix, start)
                if pattern.pairs is not None:
                    alone = low != here and (i == last or hits[i + 1][1] >= high)
                    if not alone or pattern.pairs.end:
                        stop_at = (
                            high if alone else self._next_record(hits, i + 1, piece, end, high)
                        )
                        body, end = _body_of(pattern.pairs, piece, end, stop_at)
                    else:
                        body, end = piece[end:high], high
                    if pattern.pairs.assign not in body and _is_bare(pattern):
                        continue  # a head that was torn off, or prose
                    if end == open_end or (not alone and end < high):
                        whole = whole_pairs(body, pattern.pairs)
                        is_torn |= pattern.pairs.timers or len(whole) < len(body)
                        body = whole
                    body = body.strip(search.blanks[p])
            if low != here:
                who, at = NOBODY, None
                if low != line_start:
                    who = self._who_began(piece, line_start, low)
            if begin > begin_of_prefix:
                who, at = self._read_prefix(piece[begin_of_prefix:begin], who, at)
            if not simple[p]:
                if search.looks_back[p]:
                    self._add_bar(piece, begin, number, who)
                if pattern.block is not None:
                    opening = piece[end:high][:_LONGEST_WRAPPED]
                    margin = wrappers.margin_of(piece[low:begin])
                    block = OpenBlock(p, pattern.block, high, begin > low, margin, who, opening, at)
                    self._open(block, low)
            add((shapes[p], offset + begin, number, who, at, groups, body))
            if is_torn:
                self.records.torn.add(offset + begin)
            taken.add(low)
            here, reached = low, (max(stop, end))
        return taken

    def _next_record(self, hits: list[Hit], first: int, piece: bytes, begin: int, high: int) -> int:
        """Where, behind `begin`, the next record on the line starts: a needle alone may be
        part of a key."""
        for needle, start, _ in hits[first : first + _MOST_ON_A_LINE]:
            if start >= high:
                break
            if start < begin:
                continue  # inside the head
            if self._begins_record(needle, piece, start, high):
                return start
        return high

    def _open(self, block: OpenBlock, low: int) -> None:
        """Whoever opens a block again has ended the one before. A few can be open at once:
        several ranks print tables and tracebacks side by side."""
        rivals = [b for b in self._blocks if b.until < 0]
        same = [b for b in rivals if b.pattern == block.pattern and b.who == block.who]
        for ended in same or rivals[:-_MOST_OPEN]:
            ended.until = low
        self._blocks.append(block)

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
            match = regex.match(glued[:_LONGEST_WRAPPED]) if regex else None
            if match is not None and self._patterns[p].pairs is None:
                return p, match.groups()
        return None

    def _add_bar(self, piece: bytes, begin: int, number: int, who: int) -> None:
        """The progress bar in front of a record that has no step number of its own."""
        found = self._bars.before(piece, begin, self._offset)
        if found is not None:
            p, groups, offset, lines_back = found
            self.records.add(p, offset, number - lines_back, who, None, groups)

    def _who_began(self, piece: bytes, line_start: int, low: int) -> int:
        r"""A `\r` segment belongs to whoever began its line."""
        first = piece[line_start : piece.find(b"\r", line_start, low)]
        return self._who_of(*self._prefixes.plan(first[:_LONGEST_WRAPPED])) if first else NOBODY

    def _read_prefix(self, prefix: bytes, who: int, at: bytes | None) -> tuple[int, bytes | None]:
        """Who printed a record, and when; what the prefix does not tell stays."""
        prefix, plan = self._prefixes.plan(prefix)
        if plan.at is not None:
            at = prefix[plan.at[0] : plan.at[1]]
            if not self.year and at[:4].isdigit():
                self.year = int(at[:4])
        elif plan.clock is not None and self.year:
            at = clocks.with_year(prefix[plan.clock[0] : plan.clock[1]], self.year)
        if plan.where is not None:
            self.headers[prefix[plan.where[0] : plan.where[1]]] += 1
        if who != NOBODY:
            return self._identity(prefix, plan, who), at
        return self._who_of(prefix, plan), at

    def _who_of(self, prefix: bytes, plan: Plan) -> int:
        """Who printed what stands behind a prefix; the same words name the same process."""
        kinds, spans = plan.names
        if not spans:
            return NOBODY
        words = kinds
        for begin, end in spans:
            words += prefix[begin:end] + b" "
        known = self._who.get(words)
        if known is None:
            if len(self._who) >= _KEPT_WHO:
                self._who.clear()
            known = self._who[words] = self._identity(prefix, plan, NOBODY)
        return known

    def _identity(self, prefix: bytes, plan: Plan, known: int) -> int:
        """Rank, local rank and host of a prefix, as a code; what it does not tell stays."""
        rank, local, host = self.records.whos.values[known]
        if plan.rank is not None:
            rank = int(prefix[plan.rank[0] : plan.rank[1]][:9])
        if plan.local is not None:
            local = int(prefix[plan.local[0] : plan.local[1]])
        if plan.host is not None:
            host = self.records.hosts(
                prefix[plan.host[0] : plan.host[1]].decode("ascii", "replace")
            )
        elif plan.task is not None and host < 0:
            task = prefix[plan.task[0] : plan.task[1]].decode("ascii")
            host = self.records.hosts(f"task {task}")
        return self.records.whos((rank, local, host))

    def _feed_blocks(self, piece: bytes, taken: set[int], carried: int) -> None:
        """Gives open blocks the lines behind their opening one; `carried` of them were
        opened in an earlier piece."""
        still_open = []
        lines: dict[int, tuple[int, bytes]] = {}  # several blocks read the same line
        for i, block in enumerate(self._blocks):
            low = 0 if i < carried else block.opened_at + 1
            number = self.lines + self._followed + 1 + piece.count(b"\n", 0, low)
            until = len(piece) if block.until < 0 else block.until
            while low < until and not block.done:
                high = piece.find(b"\n", low)
                high = len(piece) if high < 0 else high
                missed = block.missed
                found = self._block_line(block, piece, low, high, lines)
                if block.missed <= missed:
                    taken.add(low)  # understood, whether or not it says anything
                if found is not None:
                    shape, groups = found
                    at = self._offset + low
                    self.records.add(block.pattern, at, number, block.who, block.at, groups, shape)
                elif low in taken and block.missed > missed:
                    block.missed -= 1  # another pattern's line is no gap
                low, number = high + 1, number + 1
            if not block.done and block.until < 0:
                still_open.append(block)
        self._blocks = still_open

    def _block_line(
        self,
        block: OpenBlock,
        piece: bytes,
        low: int,
        high: int,
        lines: dict[int, tuple[int, bytes]],
    ) -> tuple[int, Groups] | None:
        text = piece[low:high].rstrip(b"\r")
        if block.wrapped:
            if low not in lines:
                margin = block.margin.match(text) if block.margin else None
                text = text[margin.end() :] if margin else text
                plan = wrappers.study(text[:400], whole=False, outer=True)
                lines[low] = self._identity(text, plan, NOBODY), text[plan.end :]
            who, text = lines[low]
            if not self.records.may_be(who, block.who):
                block.miss()
                return None
        return block.read(text, is_open=self._unended and high == len(piece))


def _with_lead(
    lead: re.Pattern[bytes], groups: Groups, piece: bytes, reached: int, start: int
) -> tuple[int, Groups]:
    """Where a record begins whose first word no needle can hold, and its groups."""
    match = lead.search(piece, max(reached, start - _LEAD), start)
    if match is None:
        return start, ((None,) * lead.groups + groups)
    return match.start(), (match.groups() + groups)


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


def _body_of(pairs: Pairs, piece: bytes, start: int, high: int) -> tuple[bytes, int]:
    """The text of a record's pairs and where it ends; another record may follow on the line."""
    body = piece[start : min(high, start + _LONGEST_RECORD)]
    if not pairs.end:
        body = body[: wrappers.header_start(body, 0, len(body))]
    body = body[: end_of_pairs(body, pairs)]
    return body, start + len(body)
