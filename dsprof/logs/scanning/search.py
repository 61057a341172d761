"""What a grammar comes to for the scanner: needles, and what may begin at each."""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import Final

import numpy as np

from dsprof.grammar import Grammar, Pattern, Regex
from dsprof.logs.scanning.find import finder, shortest
from dsprof.logs.scanning.records import shape_of_record

#: Bytes of a source that are its beginning: a paste or a tail may begin in the middle of a record.
_EARLY: Final = 64 << 10
_BESIDE: Final = 2 << 10  # bytes within which a needle's line must hold what it asks for
_NONE: Final = -1  # the late double of a needle that is early for all of its patterns

#: Number of a pattern and the regex that tells whether it begins at a needle.
Candidate = tuple[int, Regex]


class Search:
    """Made once for a grammar. Lists are parallel to the needles or to the patterns.

    Attributes:
        early: patterns for which the needle is an early one: there it opens a block of a sender
            that had none before.
        longest: bytes of the longest needle.
        of_needle: candidates, those with the longest own needle first. A needle that is an early
            one for some of its patterns has a double behind all others, without those: it is
            what counts behind the beginning of a source.
        sure: the text of a regex that matches wherever the needle stands.
        shapes: of the pattern's records.
        looks_back: the bar in front of a record of the pattern numbers it, or says how far the
            training had come when it failed.
        more: a record reaches beyond its match, to a lead or to pairs.
        apart: needles that must be read one by one, in their order.
        around: its sender is wanted at once, for a bar or a block.
        blanks: what stands around the pairs of a record and says nothing.
    """

    def __init__(self, grammar: Grammar) -> None:
        needles = shortest(grammar.needles)
        patterns = grammar.patterns
        self._find = finder(tuple(needles))
        self.longest = max(map(len, needles), default=0)
        self.of_needle = _candidates(patterns, needles)
        self._beside = _beside(patterns, self.of_needle)
        self.early = [
            _early(patterns, some, needle)
            for some, needle in zip(self.of_needle, needles, strict=True)
        ]
        self._late = np.arange(len(needles))
        for number in [n for n, early in enumerate(self.early) if early]:
            late = [one for one in self.of_needle[number] if one[0] not in self.early[number]]
            self._late[number] = len(needles) if late else _NONE
            if late:
                needles.append(needles[number])
                self.of_needle.append(late)
                self.early.append(frozenset())
        self.sure = [re.escape(needle) for needle in needles]
        self.apart = [
            any(patterns[p].lead is not None or patterns[p].block is not None for p, _ in some)
            for some in self.of_needle
        ]
        self.shapes = [shape_of_record(number) for number in range(len(patterns))]
        self.looks_back = [_looks_back(pattern) for pattern in patterns]
        self.more = [p.lead is not None or p.pairs is not None for p in patterns]
        self.around = [p.block is not None or _looks_back(p) for p in patterns]
        self.blanks = [b" |\t" + p.pairs.separator if p.pairs else b"" for p in patterns]

    def find(self, text: bytes, offset: int | None) -> np.ndarray:
        """All hits of all needles: three rows, the number of each, where it begins and ends.

        `offset` is that of the text in its source, None if that begins elsewhere.
        """
        found = self._find(text)
        for literal, asking in self._beside:
            found = _with_beside(found, asking, literal, text)
        room = 0 if offset is None else _EARLY - offset
        if len(text) <= room:
            return found
        found[0] = np.where(found[1] >= room, self._late[found[0]], found[0])
        dropped = found[0] == _NONE
        return found[:, ~dropped] if dropped.any() else found

    def begins_record(self, needle: int, text: bytes, start: int, high: int) -> bool:
        """Whether a record stands at a needle: a needle alone may be part of a key."""
        return any(regex.match(text, start, high) for _, regex in self.of_needle[needle])


_MADE: Final[dict[int, tuple[Grammar, Search]]] = {}  # a grammar that is kept keeps its id


def search_of(grammar: Grammar) -> Search:
    """The search of a grammar, made when it is first asked for: a run may be a thousand files."""
    if id(grammar) not in _MADE:
        _MADE.clear()
        _MADE[id(grammar)] = grammar, Search(grammar)
    return _MADE[id(grammar)][1]


def _looks_back(pattern: Pattern) -> bool:
    if pattern.severity == "critical":
        return True
    return pattern.place == "own" and not (pattern.regex and "step" in pattern.regex.names)


def _early(
    patterns: tuple[Pattern, ...], candidates: list[Candidate], needle: bytes
) -> frozenset[int]:
    """Those of the candidates of a needle that may begin there only where a source begins."""
    return frozenset(
        p
        for p, _ in candidates
        if all(own in patterns[p].early for own in patterns[p].needles if own.startswith(needle))
    )


def _beside(
    patterns: tuple[Pattern, ...], of_needle: list[list[Candidate]]
) -> list[tuple[bytes, np.ndarray]]:
    """Literals, and for each a mask of the needles at which no record begins without it."""
    asked = [{patterns[p].beside for p, _ in some} for some in of_needle]
    literals = sorted({one for some in asked for one in some if one})
    return [(one, np.array([some == {one} for some in asked])) for one in literals]


def _with_beside(found: np.ndarray, asking: np.ndarray, literal: bytes, text: bytes) -> np.ndarray:
    """The hits without those of the asking needles behind which their line lacks the literal."""
    mine = np.flatnonzero(asking[found[0]])
    lacking = [not _is_beside(literal, text, begin) for begin in found[1, mine].tolist()]
    return np.delete(found, mine[lacking], axis=1)


def _is_beside(literal: bytes, text: bytes, begin: int) -> bool:
    end = text.find(b"\n", begin, begin + _BESIDE)
    return text.find(literal, begin, end if end >= 0 else begin + _BESIDE) >= 0


def _candidates(patterns: tuple[Pattern, ...], needles: list[bytes]) -> list[list[Candidate]]:
    """Of each needle the patterns that may begin where it was found.

    Of needles that begin alike only the shortest is searched for, so patterns of the
    others are candidates too, if their own needle stands there.

    Args:
        needles: of which none begins with another, sorted.
    """
    found: list[list[tuple[int, int, Regex]]] = [[] for _ in needles]
    for number, pattern in enumerate(patterns):
        if pattern.behind or pattern.at_end:
            continue
        for own in pattern.needles:
            place = bisect_right(needles, own) - 1  # the one that it begins with
            regex = pattern.regex or Regex(re.escape(own))
            if own != needles[place]:
                regex = Regex(b"(?=%s)(?:%s)" % (re.escape(own), regex.pattern))
            found[place].append((-len(own), number, regex))
    for some in found:
        some.sort(key=lambda candidate: candidate[:2])
    return [[(number, regex) for _, number, regex in some] for some in found]
