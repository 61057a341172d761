"""Bytes to records: the one pass over a source.

Every dialect's needles are searched at once; only what stands around a hit is looked at
closely. A line without a needle costs nothing but its search.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import compress
from typing import Final

import numpy as np

from dsprof.grammar import Grammar, Pattern
from dsprof.logs import wrappers
from dsprof.logs.bars import Bars
from dsprof.logs.blocks import Blocks, OpenBlock
from dsprof.logs.bodies import body_of, tells, tells_of, whole_body
from dsprof.logs.coverage import Unread
from dsprof.logs.find import Hit
from dsprof.logs.hits import Hits, Mask, One, each_of, groups_of
from dsprof.logs.lines import Lines
from dsprof.logs.measures import Groups
from dsprof.logs.records import Records, shape_of_record
from dsprof.logs.search import Candidate, search_of
from dsprof.logs.senders import NOBODY, Sender
from dsprof.logs.torn import whole_groups

_LINE_ENDS: Final = b"\n\r"
_LEAD: Final = 64  # bytes before a needle that a pattern's lead may reach back
_LONGEST_WRAPPED: Final = 4096
_MOST_ON_A_LINE: Final = 256  # needles looked at for the end of one record's pairs
_NEWLINE, _RETURN = b"\n\r"
_FEW: Final = 256  # hits in a piece that cost less one by one than in columns


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
        self._mask = Mask()
        self._offset = 0  # of the next piece in the source
        self._blocks = Blocks(self.records)
        self._unended = False  # what is read now is a last line without its end
        self._followed = 0  # lines read behind the end, for blocks only
        self._numbered: list[tuple[int, int, int]] = []  # by bars: where, line number, who

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
        self._read_hits(text, self._search.find(text), self._mask.of(_NEWLINE, text))
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
        newline = self._mask.of(_NEWLINE, piece)
        lines = int(np.count_nonzero(newline))
        taken = self._read_hits(piece, hits, newline)
        if self._blocks:
            self._blocks.feed(piece, self._offset, self.lines, taken, unended=self._unended)
        if self.unread.wants(piece):
            self.unread.look(piece, taken, self.lines)
        self.lines += lines
        self._offset += len(piece)
        self._bars.remember(piece)
        self.records.flush_if_full()

    def _read_hits(self, piece: bytes, found: list[Hit], newline: np.ndarray) -> set[int]:
        """Records of a piece whose line ends `newline` masks; gives where the lines begin that
        hold one."""
        taken: set[int] = set()
        if len(found) < _FEW or self._unended:
            each = each_of(piece, found, newline, self.lines)
        else:
            ends = np.flatnonzero(newline)
            returns = np.flatnonzero(self._mask.of(_RETURN, piece)) if b"\r" in piece else None
            hits = Hits.of(piece, found, ends, returns, self.lines)
            each = hits.each(np.flatnonzero(~self._read_alike(piece, hits, taken)))
        self._read_each(piece, each, found, taken)
        for begin, number, who in sorted(self._numbered):
            self._add_bar(piece, begin, number, who)
        self._numbered.clear()
        return taken

    def _read_alike(self, piece: bytes, hits: Hits, taken: set[int]) -> np.ndarray:
        """Reads the hits of each needle at once, where what they are depends on no other record.

        Returns:
            Mask of the hits that need no other look.
        """
        first, last = hits.segments()
        settled = np.zeros(len(first), bool)
        for alike in groups_of(hits.needle[first]):
            needle = int(hits.needle[first[alike[0]]])
            if self._search.apart[needle]:
                continue
            left = alike
            for p, regex in self._search.of_needle[needle]:
                fits, ends, groups = self._match_all(needle, regex, piece, hits, first[left])
                if len(ends):
                    read = left[fits]
                    at = first[read], last[read]
                    whole = self._read_matches(p, ends, groups, piece, hits, *at, taken)
                    settled[read[whole]] = True
                left = left[~fits]
                if not len(left):
                    break
        mask: np.ndarray = np.repeat(settled, last - first + 1)
        return mask

    def _match_all(
        self, needle: int, regex: re.Pattern[bytes], piece: bytes, hits: Hits, at: np.ndarray
    ) -> tuple[np.ndarray, list[int], list[Groups]]:
        """Which hits of a needle begin a match, and where those end and what they hold."""
        if regex == self._search.sure[needle]:
            return np.ones(len(at), bool), hits.stop[at].tolist(), [()] * len(at)
        bounds = zip(hits.start[at].tolist(), hits.high[at].tolist(), strict=True)
        matches = [regex.match(piece, start, high) for start, high in bounds]
        some = [match for match in matches if match is not None]
        fits = np.fromiter((match is not None for match in matches), bool, len(at))
        return fits, [match.end() for match in some], [match.groups() for match in some]

    def _read_matches(  # noqa: PLR0917  # parallel
        self,
        p: int,
        ends: list[int],
        groups: list[Groups],
        piece: bytes,
        hits: Hits,
        at: np.ndarray,
        last: np.ndarray,
        taken: set[int],
    ) -> np.ndarray:
        """Adds the records of one pattern whose text holds all hits up to the `last` one.

        Returns:
            Mask of the matches that were read.
        """
        pairs = self._patterns[p].pairs
        whole: np.ndarray = at == last
        if pairs is None:
            whole |= hits.start[last] < np.maximum(hits.stop[at], ends)
        kept = np.flatnonzero(whole)
        bodies: list[bytes] = []
        if pairs is not None:
            bounds = zip(
                (ends[i] for i in kept.tolist()), hits.high[at[kept]].tolist(), strict=True
            )
            bodies = [body_of(pairs, piece, end, high, alone=True)[0] for end, high in bounds]
            told = tells_of(bodies, self._patterns[p])
            bodies = [body.strip(self._search.blanks[p]) for body in compress(bodies, told)]
            kept = kept[told]
        if not len(kept):
            return whole
        begins = hits.start[at[kept]]
        alike = self.records.new[self._shapes[p]]
        alike.offsets += (begins + self._offset).tolist()
        alike.lines += hits.number[at[kept]].tolist()
        alike.senders += self._senders_of(p, piece, hits, at[kept])
        alike.groups += [groups[i] for i in kept.tolist()]
        alike.bodies += bodies
        taken.update(hits.low[at[kept]].tolist())
        return whole

    def _senders_of(
        self, p: int, piece: bytes, hits: Hits, at: np.ndarray
    ) -> Sequence[Sender | bytes]:
        """Who printed the records of one pattern, or the prefixes that tell."""
        starts = hits.start[at].tolist()
        bounds = zip(hits.low[at].tolist(), starts, strict=True)
        prefixes = [piece[low:start] for low, start in bounds]
        senders: list[Sender | bytes] = [*prefixes]
        began: dict[bytes, Sender] = {}
        behind = np.flatnonzero(hits.behind_bar[at])
        for i, line in zip(behind.tolist(), hits.line[at[behind]].tolist(), strict=True):
            before = self._who_began(piece, line, began)
            prefix = prefixes[i]
            senders[i] = self.records.senders.read(prefix, before) if prefix else before
        if self._search.looks_back[p]:
            known = [self._known(sender) for sender in senders]
            whos = [who for who, _ in known]
            self._numbered += zip(starts, hits.number[at].tolist(), whos, strict=True)
            return known
        return senders

    def _known(self, sender: Sender | bytes) -> Sender:
        return self.records.senders.read(sender) if isinstance(sender, bytes) else sender

    def _read_each(
        self, piece: bytes, each: Iterator[One], found: list[Hit], taken: set[int]
    ) -> None:
        """Reads hits one by one: what each is may depend on the record in front of it."""
        here, reached = -1, 0  # line of the record before, and where that record ends
        sender: Sender | bytes = b""
        for one in each:
            _, _, start, _, _, low, _, _, _ = one
            if low == here and start < reached:
                continue  # inside the record before
            behind, before = (reached, sender) if low == here else (low, None)
            read = self._read_one(piece, one, found, behind, before)
            if read is not None:
                sender, reached = read
                here = low
                taken.add(low)

    def _read_one(
        self,
        piece: bytes,
        one: One,
        found: list[Hit],
        behind: int,
        before: Sender | bytes | None,
    ) -> tuple[Sender | bytes, int] | None:
        """Adds the record of one hit, if there is one; gives its sender and where it ends.

        Args:
            behind: where the record's prefix begins.
            before: sender of the record in front on the line, None if there is none.
        """
        i, needle, start, stop, line, low, high, number, behind_bar = one
        matched = self._match(needle, piece, start, high)
        if matched is None:
            return None
        p, groups, end, torn = matched
        begin, body = start, None
        if self._search.more[p]:
            pattern = self._patterns[p]
            if pattern.lead is not None:
                begin, groups = _with_lead(pattern.lead, groups, piece, behind, start)
            if pattern.pairs is not None:
                alone = before is None and (i + 1 == len(found) or found[i + 1][1] >= high)
                stop_at = high if alone else self._next_record(found, i + 1, piece, end, high)
                told = self._body(pattern, piece, end, stop_at, high, alone=alone)
                if told is None:
                    return None
                body, end, cut = told
                body, torn = body.strip(self._search.blanks[p]), torn or cut
        sender: Sender | bytes = piece[behind:begin]
        if before is not None or behind_bar:
            before = before if before is not None else self._who_began(piece, line, {})
            sender = self.records.senders.read(piece[behind:begin], before)
        if self._search.around[p]:
            sender = self._look_around(p, piece, sender, (low, begin, end, high), number)
        offset = self._offset + begin
        self.records.new[self._shapes[p]].add(offset, number, sender, groups, body)
        if torn:
            self.records.torn.add(offset)
        return sender, max(stop, end)

    def _match(
        self, needle: int, piece: bytes, start: int, high: int
    ) -> tuple[int, Groups, int, bool] | None:
        """Pattern, groups and end of the record at a needle, and whether it lost some groups."""
        for p, regex in self._search.of_needle[needle]:
            match = regex.match(piece, start, high)
            if match is None:
                continue
            groups, end = match.groups(), match.end()
            if not self._unended or end < len(piece):
                return p, groups, end, False
            whole = whole_groups(match, self._patterns[p].rows)
            return None if whole is None else (p, whole, end, whole != groups)
        found = self._rejoined(self._search.of_needle[needle], piece, start, high)
        return None if found is None else (*found, high, False)

    def _body(
        self, pattern: Pattern, piece: bytes, start: int, stop: int, high: int, *, alone: bool
    ) -> tuple[bytes, int, bool] | None:
        """Text of the pairs that begin at `start`, where they end, and whether they lost some;
        None if they make no record."""
        pairs = pattern.pairs
        assert pairs is not None
        body, end = body_of(pairs, piece, start, stop, alone=alone)
        if not tells(body, pattern):
            return None
        open_end = self._unended and end == len(piece)
        if not open_end and (alone or end == high):
            return body, end, False
        kept = whole_body(body, pairs, piece[end:stop])
        return kept, end, pairs.timers or len(kept) < len(body)

    def _look_around(
        self,
        p: int,
        piece: bytes,
        sender: Sender | bytes,
        bounds: tuple[int, int, int, int],
        number: int,
    ) -> Sender:
        """Notes that a progress bar numbers a record, and opens its block.

        Args:
            bounds: where its line begins, itself begins and ends, and where its line ends.
        """
        if isinstance(sender, bytes):
            sender = self.records.senders.read(sender)
        low, begin, end, high = bounds
        if self._search.looks_back[p]:
            self._numbered.append((begin, number, sender[0]))
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
            alike = self.records.new[self._shapes[p]]
            alike.add(offset, number - lines_back, (who, None), groups, None)

    def _who_began(self, piece: bytes, line: int, kept: dict[bytes, Sender]) -> Sender:
        r"""A `\r` segment belongs to whoever began its line, at another time.

        Args:
            kept: those who began lines like it.
        """
        first = piece[line : piece.find(b"\r", line)][:_LONGEST_WRAPPED]
        if first not in kept:
            kept[first] = self.records.senders.known(first)[0], None
        return kept[first]


def _with_lead(
    lead: re.Pattern[bytes], groups: Groups, piece: bytes, behind: int, start: int
) -> tuple[int, Groups]:
    """Where a record begins whose first word no needle can hold, and its groups."""
    match = lead.search(piece, max(behind, start - _LEAD), start)
    if match is None:
        return start, (None,) * lead.groups + groups
    return match.start(), match.groups() + groups
