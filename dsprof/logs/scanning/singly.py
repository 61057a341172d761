"""Hits read one by one: what each is may depend on the record in front of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from dsprof.grammar import Grammar, Pairs, Pattern, Regex
from dsprof.logs.columns.measures import Groups
from dsprof.logs.prefixes import wrappers
from dsprof.logs.prefixes.senders import Sender
from dsprof.logs.scanning.blocks import Blocks, OpenBlock
from dsprof.logs.scanning.bodies import body_of, closes, tells, whole_body
from dsprof.logs.scanning.hits import One
from dsprof.logs.scanning.piece import Piece
from dsprof.logs.scanning.records import Records
from dsprof.logs.scanning.search import Candidate, Search
from dsprof.logs.scanning.torn import whole_groups

#: Needle numbers, first bytes and bytes behind the last of the hits of a piece.
Found = Sequence[Sequence[int]] | np.ndarray

_LEAD: Final = 64  # bytes before a needle that a pattern's lead may reach back
_LONGEST_WRAPPED: Final = 4096
_MOST_ON_A_LINE: Final = 256  # needles looked at for the end of one record's pairs


class Singly:
    """Adds the records of hits, in their order, to `records`, and opens their blocks."""

    def __init__(self, grammar: Grammar, search: Search, records: Records, blocks: Blocks) -> None:
        self._patterns = grammar.patterns
        self._search = search
        self._records = records
        self._blocks = blocks
        self._unclosed = -1  # the line on which brackets stay open

    def read(self, piece: Piece, which: Iterable[One], found: Found) -> None:
        """Reads some of the hits that were found in a piece."""
        here, reached = -1, 0  # line of the record before, and where that record ends
        sender: Sender | bytes = b""
        for one in which:
            _, _, start, _, _, low, _, _, _ = one
            if low == here and start < reached:
                continue  # inside the record before
            behind, before = (reached, sender) if low == here else (low, None)
            read = self._read_one(piece, one, found, behind, before)
            if read is not None:
                sender, reached = read
                here = low
                piece.taken.add(low)

    def _read_one(
        self,
        piece: Piece,
        one: One,
        found: Found,
        behind: int,
        before: Sender | bytes | None,
    ) -> tuple[Sender | bytes, int] | None:
        """Adds the record of one hit, if there is one; gives its sender and where it ends.

        Args:
            behind: where the record's prefix begins.
            before: sender of the record in front on the line, None if there is none.
        """
        i, needle, start, stop, line, low, high, number, behind_bar = one
        text = piece.text
        matched = self._match(needle, piece, start, high)
        if matched is None:
            return None
        p, groups, end, torn = matched
        begin, body = start, None
        if self._search.more[p]:
            pattern = self._patterns[p]
            if pattern.lead is not None:
                begin, groups = with_lead(pattern.lead, groups, text, behind, start)
            if pattern.pairs is not None:
                starts = found[1]
                alone = before is None and (i + 1 == len(starts) or starts[i + 1] >= high)
                to_end = alone or self._closes(pattern.pairs, piece, end, low, high)
                stop_at = high if to_end else self._next_record(found, i + 1, text, end, high)
                told = self._body(pattern, piece, end, stop_at, high, alone=alone)
                if told is None:
                    return None
                body, end, cut = told
                body, torn = body.strip(self._search.blanks[p]), torn or cut
        if before is None and behind_bar:
            before = self._records.senders.who_began(text, line, {})
        sender = self._sender(text[behind:begin], before, at_once=self._search.around[p])
        if isinstance(sender, tuple) and self._search.around[p]:
            if p in self._search.early[needle] and self._blocks.had(p, sender):
                return None
            self._look_around(p, piece, sender, (low, begin, end, high), number)
        offset = piece.offset + begin
        self._records.new[self._search.shapes[p]].add(offset, number, sender, groups, body)
        if torn:
            self._records.torn.add(offset)
        return sender, max(stop, end)

    def _sender(
        self, prefix: bytes, before: Sender | bytes | None, *, at_once: bool
    ) -> Sender | bytes:
        """Who printed a record: bytes to be read later, where that is soon enough."""
        if before is None and not at_once:
            return prefix
        return self._records.senders.read(prefix, before)

    def _match(
        self, needle: int, piece: Piece, start: int, high: int
    ) -> tuple[int, Groups, int, bool] | None:
        """Pattern, groups and end of the record at a needle, and whether it lost some groups."""
        for p, regex in self._search.of_needle[needle]:
            match = regex.match(piece.text, start, high)
            if match is None:
                continue
            groups, end = match.groups(), match.end()
            if not piece.unended or end < len(piece.text):
                return p, groups, end, False
            whole = whole_groups(match, self._patterns[p].rows)
            return None if whole is None else (p, whole, end, whole != groups)
        found = self._rejoined(self._search.of_needle[needle], piece.text, start, high)
        return None if found is None else (*found, high, False)

    def _closes(self, pairs: Pairs, piece: Piece, start: int, low: int, high: int) -> bool:
        """Whether literals end on their line: whatever looks like a record before that is theirs.
        Behind one that does not end none is asked, or a line of many takes the square of its time.
        """
        line = piece.offset + low
        if not pairs.literals or line == self._unclosed:
            return False
        if closes(piece.text, start, high):
            return True
        self._unclosed = line
        return False

    def _body(
        self, pattern: Pattern, piece: Piece, start: int, stop: int, high: int, *, alone: bool
    ) -> tuple[bytes, int, bool] | None:
        """Text of the pairs that begin at `start`, where they end, and whether they lost some;
        None if they make no record."""
        pairs = pattern.pairs
        assert pairs is not None
        body, end = body_of(pairs, piece.text, start, stop, alone=alone)
        if not tells(body, pattern):
            return None
        open_end = piece.unended and end == len(piece.text)
        if not open_end and (alone or end == high):
            return body, end, False
        kept = whole_body(body, pairs, piece.text[end:stop])
        return kept, end, pairs.timers or len(kept) < len(body)

    def _look_around(
        self,
        p: int,
        piece: Piece,
        sender: Sender,
        bounds: tuple[int, int, int, int],
        number: int,
    ) -> None:
        """Notes that a progress bar numbers a record, and opens its block.

        Args:
            bounds: where its line begins, itself begins and ends, and where its line ends.
        """
        low, begin, end, high = bounds
        if self._search.looks_back[p]:
            piece.numbered.append((begin, number, sender[0]))
        block = self._patterns[p].block
        if block is not None:
            opening = piece.text[end:high][:_LONGEST_WRAPPED]
            wrapping = wrappers.Wrapping.of(piece.text[low:begin]) if begin > low else None
            self._blocks.open(
                OpenBlock(p, block, high, wrapping, sender, opening, self._records), low
            )

    def _next_record(self, found: Found, first: int, text: bytes, begin: int, high: int) -> int:
        """Where, behind `begin`, the next record on the line starts: a needle alone may be
        part of a key."""
        needles, starts, _ = (column[first : first + _MOST_ON_A_LINE] for column in found)
        for needle, start in zip(map(int, needles), map(int, starts), strict=True):
            if start >= high:
                break
            if start >= begin and self._search.begins_record(needle, text, start, high):
                return start
        return high

    def _rejoined(
        self, candidates: list[Candidate], text: bytes, start: int, high: int
    ) -> tuple[int, Groups] | None:
        """A record that a hard line wrap went through: tried again with the next line glued on."""
        if high + 1 >= len(text) or high - start > _LONGEST_WRAPPED:
            return None
        line = text[start:high]
        if line.count(b"[") == line.count(b"]"):
            return None
        stop = text.find(b"\n", high + 1)
        glued = line.rstrip(b"\r") + text[high + 1 : stop if stop >= 0 else len(text)]
        for p, regex in candidates:
            match = regex.match(glued[:_LONGEST_WRAPPED])
            if match is not None and self._patterns[p].pairs is None:
                return p, match.groups()
        return None


def with_lead(
    lead: Regex, groups: Groups, text: bytes, behind: int, start: int
) -> tuple[int, Groups]:
    """Where a record begins whose first word no needle can hold, and its groups."""
    match = lead.compiled.search(text, max(behind, start - _LEAD), start)
    if match is None:
        return start, (None,) * lead.compiled.groups + groups
    return match.start(), match.groups() + groups
