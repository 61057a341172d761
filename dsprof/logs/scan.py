"""Bytes to records: the one pass over a source.

Every dialect's needles are searched at once; only what stands around a hit is looked at
closely. A line without a needle costs nothing but its search.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

import numpy as np

from dsprof.grammar import Grammar
from dsprof.logs import clocks, wrappers
from dsprof.logs.blocks import OpenBlock
from dsprof.logs.coverage import Unread
from dsprof.logs.find import finder
from dsprof.logs.lines import Lines
from dsprof.logs.pairs import end_of_pairs
from dsprof.logs.records import Records
from dsprof.logs.wrappers import Plan, Prefixes

_NEWLINE: Final = 10
_RETURN: Final = 13
_NOBODY: Final = (-1, -1, -1)
_LEAD: Final = 64  # bytes before a needle that a pattern's lead may reach back


@dataclass(frozen=True, slots=True)
class _Told:
    """What the prefix of the record before on the same line told."""

    line: int
    end: int
    who: tuple[int, int, int]
    at: bytes | None


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
        self.headers: Counter[str] = Counter()
        self.unread = Unread()
        self._patterns = grammar.patterns
        needles = grammar.needles
        self._find = finder(needles)
        self._longest = max(map(len, needles), default=0)
        number = {needle: i for i, needle in enumerate(needles)}
        self._of_needle: list[list[int]] = [[] for _ in needles]
        for i, pattern in enumerate(grammar.patterns):
            for needle in pattern.needles:
                self._of_needle[number[needle]].append(i)
        self._pieces = Lines()
        self._offset = 0  # of the next piece in the source
        self._prefixes = Prefixes()
        self._blocks: list[OpenBlock] = []
        self._year = 0

    def feed(self, data: bytes) -> None:
        piece = self._pieces.feed(data)
        if piece and piece[-1] not in (_NEWLINE, _RETURN):
            piece = self._cut_between_records(piece)
        if piece:
            self._scan(piece)

    def finish(self) -> None:
        """Reads what is left: a last line without an end."""
        rest = self._pieces.take()
        if rest:
            self._scan(rest)
        for block in self._blocks:
            self._close(block)
        self._blocks = []
        self.records.flush()

    @property
    def waiting(self) -> bool:
        """Whether a block is still open: its lines may lie ahead."""
        return bool(self._blocks)

    def follow_blocks(self, data: bytes) -> None:
        """Reads lines for open blocks only: they lie behind the end of this scanner's range."""
        self._feed_blocks(data, *_line_bounds(data), taken=frozenset())

    def _cut_between_records(self, piece: bytes) -> bytes:
        """The part of an endless line that holds whole records; the rest is held back."""
        hits = self._find(piece)
        cut = max(len(piece) - self._longest, 0)
        if hits and hits[-1][1] > len(piece) // 2:
            start = hits[-1][1]
            before = hits[-2][2] if len(hits) > 1 else max(0, start - 400)
            cut = wrappers.header_start(piece, before, start)
        self._pieces.give_back(piece[cut:])
        return piece[:cut]

    def _scan(self, piece: bytes) -> None:
        hits = self._find(piece)
        if hits or self._blocks:
            self._scan_hits(piece, hits)
        else:
            self.unread.look(piece, frozenset(), self.lines)
            self.lines += piece.count(b"\n")
        self._offset += len(piece)
        self.records.flush_if_full()

    def _scan_hits(self, piece: bytes, hits: list[tuple[int, int, int]]) -> None:
        lows, highs, ends = _line_bounds(piece)
        needles, starts, _ = zip(*hits, strict=True) if hits else ((), (), ())
        where = np.array(starts, np.int64)
        line_of = np.searchsorted(highs, where)
        numbers = self.lines + 1 + np.searchsorted(ends, where)
        open_before = len(self._blocks)
        taken = self._read_hits(
            piece,
            needles,
            starts,
            line_of.tolist(),
            lows[line_of].tolist(),
            highs[line_of].tolist(),
            numbers.tolist(),
        )
        if self._blocks:
            self._feed_blocks(piece, lows, highs, ends, taken=taken, carried=open_before)
        self.unread.look(piece, taken, self.lines)
        self.lines += len(ends)

    def _read_hits(
        self,
        piece: bytes,
        needles: tuple[int, ...],
        starts: tuple[int, ...],
        lines: list[int],
        lows: list[int],
        highs: list[int],
        numbers: list[int],
    ) -> set[int]:
        """Records of a piece; gives the lines (counted in the piece) that hold one."""
        taken: set[int] = set()
        told = _Told(-1, 0, _NOBODY, None)
        last = len(needles) - 1
        add, patterns, of_needle = self.records.add, self._patterns, self._of_needle
        for i, (needle, start, line, low, high, number) in enumerate(
            zip(needles, starts, lines, lows, highs, numbers, strict=True)
        ):
            if line == told.line and start < told.end:
                continue  # inside the record before
            for p in of_needle[needle]:
                pattern = patterns[p]
                groups: tuple[bytes | None, ...] = ()
                end = start
                if pattern.regex is not None:
                    match = pattern.regex.match(piece, start, high)
                    if match is None:
                        match = self._rejoined(pattern.regex, piece, start, high)
                    if match is None:
                        continue
                    groups, end = match.groups(), min(match.end(), high)
                    if match.string is not piece:
                        end = high
                begin = start
                if pattern.lead is not None:
                    lead = pattern.lead.search(piece, max(low, start - _LEAD), start)
                    groups = (*(lead.groups() if lead else (None,) * pattern.lead.groups), *groups)
                    begin = lead.start() if lead else start
                body = None
                if pattern.pairs is not None:
                    body_from = end if pattern.regex else start + len(pattern.needles[0])
                    body = piece[body_from:high]
                    alone = (i == last or lines[i + 1] != line) and told.line != line
                    end = high
                    if pattern.pairs.end or not alone:
                        length = self._length_of_pairs(body, pattern)
                        body, end = body[:length], body_from + length
                    body = body.strip(b" |\t")
                elif end == start:
                    end = start + 1
                if told.line == line:
                    who, at = self._who(piece[told.end : begin], told)
                else:
                    if low and piece[low - 1] == _RETURN:
                        told = self._of_whole_line(piece, low)
                        who, at = self._who(piece[low:begin], told)
                    else:
                        who, at = self._who(piece[low:begin], None)
                told = _Told(line, end, who, at)
                add(p, self._offset + begin, number, who, at, groups, body)
                taken.add(line)
                if pattern.block is not None:
                    self._blocks.append(
                        OpenBlock(p, pattern.block, line, begin > low, who, piece[end:high], at)
                    )
                break
        return taken

    def _length_of_pairs(self, body: bytes, pattern: object) -> int:
        pairs = pattern.pairs  # type: ignore[attr-defined]
        if not pairs.end:
            header = wrappers.header_start(body, 0, len(body))
            body = body[:header]
        return end_of_pairs(body, pairs)

    def _rejoined(self, regex: object, piece: bytes, start: int, high: int) -> object:
        """A record that a hard line wrap went through: tried again with the next line glued on."""
        text = piece[start:high]
        if len(text) > 4096 or text.count(b"[") == text.count(b"]") or high + 1 >= len(piece):
            return None
        stop = piece.find(b"\n", high + 1)
        glued = text.rstrip(b"\r") + piece[high + 1 : stop if stop >= 0 else len(piece)][:4096]
        return regex.match(glued)  # type: ignore[attr-defined]

    def _of_whole_line(self, piece: bytes, low: int) -> _Told:
        """A `\\r` segment belongs to whoever began its line."""
        begin = piece.rfind(b"\n", 0, low) + 1
        if begin == low:
            return _Told(-1, 0, _NOBODY, None)
        prefix, plan = self._prefixes.plan(piece[begin : min(low, begin + 200)])
        return _Told(-1, 0, self._identity(prefix, plan, _NOBODY), None)

    def _who(self, prefix: bytes, told: _Told | None) -> tuple[tuple[int, int, int], bytes | None]:
        """Rank, local rank, host and time from a prefix, falling back on the record before it."""
        known = told.who if told else _NOBODY
        if not prefix:
            return known, told.at if told else None
        prefix, plan = self._prefixes.plan(prefix)
        at = None
        if plan.at is not None:
            at = prefix[plan.at[0] : plan.at[1]]
            if not self._year and at[:4].isdigit():
                self._year = int(at[:4])
        elif plan.clock is not None and self._year:
            at = clocks.with_year(prefix[plan.clock[0] : plan.clock[1]], self._year)
        elif told:
            at = told.at
        if plan.where is not None:
            self.headers[prefix[plan.where[0] : plan.where[1]].decode("ascii", "replace")] += 1
        return self._identity(prefix, plan, known), at

    def _identity(
        self, prefix: bytes, plan: Plan, known: tuple[int, int, int]
    ) -> tuple[int, int, int]:
        rank, local, host = known
        if plan.rank is not None:
            rank = int(prefix[plan.rank[0] : plan.rank[1]][:9])
        if plan.local is not None:
            local = int(prefix[plan.local[0] : plan.local[1]])
        if plan.host is not None:
            host = self.records.hosts(prefix[plan.host[0] : plan.host[1]].decode("ascii", "replace"))
        elif plan.task is not None and host < 0:
            task = prefix[plan.task[0] : plan.task[1]].decode("ascii")
            host = self.records.hosts(f"task {task}")
        return rank, local, host

    def _feed_blocks(
        self,
        piece: bytes,
        lows: np.ndarray,
        highs: np.ndarray,
        ends: np.ndarray,
        *,
        taken: set[int] | frozenset[int],
        carried: int | None = None,
    ) -> None:
        """Gives open blocks the lines behind their opening one."""
        carried = len(self._blocks) if carried is None else carried
        still_open = []
        low_list, high_list = lows.tolist(), highs.tolist()
        number_of = self.lines + 1 + np.searchsorted(ends, lows)
        for i, block in enumerate(self._blocks):
            first = 0 if i < carried else block.opened_at + 1
            for line in range(first, len(high_list)):
                low, high = low_list[line], high_list[line]
                if low == high and high < len(piece) and piece[high - 1 : high] == b"\r":
                    continue  # the empty segment inside \r\n
                found = self._block_line(block, piece[low:high])
                if found is not None:
                    shape, groups = found
                    number = int(number_of[line])
                    offset = self._offset + low
                    self.records.add(
                        block.pattern, offset, number, block.who, block.at, groups, None, shape
                    )
                elif line in taken:
                    block.missed -= block.missed > 0  # another pattern's line is no gap
                if block.done:
                    break
            if not block.done:
                still_open.append(block)
        self._blocks = still_open

    def _block_line(
        self, block: OpenBlock, line: bytes
    ) -> tuple[int, tuple[bytes | None, ...]] | None:
        text = wrappers.ANSI.sub(b"", line) if b"\x1b" in line else line
        if block.wrapped:
            plan = wrappers.study(text[:400], whole=False, outer=True)
            who = self._identity(text, plan, _NOBODY)
            if any(w >= 0 and w != mine for w, mine in zip(who, block.who, strict=True)):
                return block.miss()
            text = text[plan.end :]
        return block.read(text)

    def _close(self, block: OpenBlock) -> None:
        block.done = True


def _line_bounds(piece: bytes) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """First and last bytes of each logical line (they end at `\\n` and at `\\r`), and where
    the `\\n` are."""
    flat = np.frombuffer(piece, np.uint8)
    newlines = np.flatnonzero(flat == _NEWLINE)
    breaks = newlines
    if b"\r" in piece:
        breaks = np.flatnonzero((flat == _NEWLINE) | (flat == _RETURN))
    if not len(breaks) or breaks[-1] != len(piece) - 1:
        highs = np.append(breaks, len(piece))
    else:
        highs = breaks
    lows = np.empty_like(highs)
    lows[0] = 0
    lows[1:] = highs[:-1] + 1
    return lows, highs, newlines
