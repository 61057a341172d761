"""Where in a block of bytes each needle stands."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from operator import itemgetter

#: Needle number, first byte, byte behind the last.
Hit = tuple[int, int, int]
Finder = Callable[[bytes], list[Hit]]


def shortest(needles: Sequence[bytes]) -> list[bytes]:
    """The needles without those that begin with another one, sorted: where a longer one
    stands, the shorter one is found."""
    kept: list[bytes] = []
    for needle in sorted(set(needles)):
        if not kept or not needle.startswith(kept[-1]):
            kept.append(needle)
    return kept


def finder(needles: Sequence[bytes]) -> Finder:
    """All non-overlapping hits, leftmost first, of needles of which none begins with another.

    In one pass where `hyperscan` is installed, else by `bytes.find` a needle, with the same hits.
    Threads may search at once.
    """
    if not needles:
        return lambda _: []
    try:
        import hyperscan
    except ImportError:
        return _search_each(tuple(needles))
    if any(b"\0" in needle for needle in needles):  # where a needle ends to it
        return _search_each(tuple(needles))
    sizes = [len(needle) for needle in needles]
    database = hyperscan.Database()
    database.compile(list(needles), ids=list(range(len(sizes))), elements=len(sizes), literal=True)
    own = threading.local()  # what a search notes down is of one thread

    def search(data: bytes) -> list[Hit]:
        hits: list[Hit] = []

        def add(needle: int, _begin: int, end: int, _flags: int, _context: object) -> None:
            hits.append((needle, end - sizes[needle], end))

        if not hasattr(own, "scratch"):
            own.scratch = hyperscan.Scratch(database)
        database.scan(data, add, scratch=own.scratch)
        return _without_overlaps(hits)

    return search


def _without_overlaps(hits: list[Hit]) -> list[Hit]:
    hits.sort(key=itemgetter(1))  # stable: of two at one place, the earlier needle
    kept: list[Hit] = []
    reached = 0
    for hit in hits:
        if hit[1] >= reached:
            kept.append(hit)
            reached = hit[2]
    return kept


def _search_each(needles: tuple[bytes, ...]) -> Finder:
    def search(data: bytes) -> list[Hit]:
        hits: list[Hit] = []
        for number, needle in enumerate(needles):
            start = data.find(needle)
            while start >= 0:
                hits.append((number, start, start + len(needle)))
                start = data.find(needle, start + 1)
        return _without_overlaps(hits)

    return search
