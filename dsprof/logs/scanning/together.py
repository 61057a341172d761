"""Hits of each needle read together, in columns: those that are what they are whatever record
stands in front of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress, repeat
from operator import methodcaller
from typing import Final

import numpy as np

from dsprof.grammar import Grammar, Regex
from dsprof.logs.columns.codes import groups_of
from dsprof.logs.columns.measures import Groups
from dsprof.logs.prefixes.senders import Sender
from dsprof.logs.scanning.bodies import bodies_of, tells_of
from dsprof.logs.scanning.hits import Hits
from dsprof.logs.scanning.piece import Piece
from dsprof.logs.scanning.records import Records
from dsprof.logs.scanning.search import Search

_END: Final = methodcaller("end")
_GROUPS: Final = methodcaller("groups")


class Together:
    """Adds the records of hits that are alike to `records`."""

    def __init__(self, grammar: Grammar, search: Search, records: Records) -> None:
        self._patterns = grammar.patterns
        self._search = search
        self._records = records

    def read(self, piece: Piece, hits: Hits) -> np.ndarray:
        """Reads the hits whose needles may be read at once.

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
                fits, ends, groups = self._matches(needle, regex, piece.text, hits, first[left])
                if len(ends):
                    read = left[fits]
                    at = first[read], last[read]
                    whole = self._add(p, ends, groups, piece, hits, *at)
                    settled[read[whole]] = True
                left = left[~fits]
                if not len(left):
                    break
        mask: np.ndarray = np.repeat(settled, last - first + 1)
        return mask

    def _matches(
        self, needle: int, regex: Regex, text: bytes, hits: Hits, at: np.ndarray
    ) -> tuple[np.ndarray, list[int], list[Groups]]:
        """Which hits of a needle begin a match, and where those end and what they hold."""
        if regex.pattern == self._search.sure[needle]:
            return np.ones(len(at), bool), hits.stop[at].tolist(), [()] * len(at)
        starts, highs = hits.start[at].tolist(), hits.high[at].tolist()
        matches = [*map(regex.match, repeat(text), starts, highs)]
        fits = np.fromiter(map(bool, matches), bool, len(at))
        some = [*filter(None, matches)]
        return fits, [*map(_END, some)], [*map(_GROUPS, some)]

    def _add(  # noqa: PLR0917  # parallel
        self,
        p: int,
        ends: list[int],
        groups: list[Groups],
        piece: Piece,
        hits: Hits,
        at: np.ndarray,
        last: np.ndarray,
    ) -> np.ndarray:
        """Adds the records of one pattern whose text holds all hits up to the `last` one.

        Returns:
            Mask of the matches that were read.
        """
        pairs = self._patterns[p].pairs
        whole: np.ndarray = at == last
        if pairs is None:
            whole |= hits.start[last] < np.maximum(hits.stop[at], ends)
        told = whole
        bodies: list[bytes] = []
        if pairs is not None:
            starts, highs = compress(ends, whole.tolist()), hits.high[at[whole]].tolist()
            bodies = bodies_of(pairs, piece.text, [*starts], highs)
            told = whole.copy()
            told[whole] = tells = tells_of(bodies, self._patterns[p])
            kept = bodies if tells.all() else compress(bodies, tells.tolist())
            bodies = [*map(bytes.strip, kept, repeat(self._search.blanks[p]))]
        at = at[told]
        if not len(at):
            return whole
        alike = self._records.new[self._search.shapes[p]]
        alike.offsets += (hits.start[at] + piece.offset).tolist()
        alike.lines += hits.number[at].tolist()
        alike.senders += self._senders_of(p, piece, hits, at)
        alike.groups += groups if told.all() else compress(groups, told.tolist())
        alike.bodies += bodies
        piece.taken.update(hits.low[at].tolist())
        return whole

    def _senders_of(
        self, p: int, piece: Piece, hits: Hits, at: np.ndarray
    ) -> Sequence[Sender | bytes]:
        """Who printed the records of one pattern, or the prefixes that tell."""
        text, read = piece.text, self._records.senders.read
        starts = hits.start[at].tolist()
        prefixes = [
            text[low:start] for low, start in zip(hits.low[at].tolist(), starts, strict=True)
        ]
        senders: list[Sender | bytes] = [*prefixes]
        began: dict[bytes, Sender] = {}
        behind = np.flatnonzero(hits.behind_bar[at])
        for i, line in zip(behind.tolist(), hits.line[at[behind]].tolist(), strict=True):
            before = self._records.senders.who_began(text, line, began)
            senders[i] = read(prefixes[i], before) if prefixes[i] else before
        if self._search.looks_back[p]:
            known = [read(who) if isinstance(who, bytes) else who for who in senders]
            whos = [who for who, *_ in known]
            piece.numbered += zip(starts, hits.number[at].tolist(), whos, strict=True)
            return known
        return senders
