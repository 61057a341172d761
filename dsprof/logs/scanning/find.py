"""Where in a block of bytes each needle stands."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import numpy as np

#: Gives an array of shape (3, hits): needle number, first byte, byte behind the last.
Finder = Callable[[bytes], np.ndarray]


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
    try:
        import hyperscan
    except ImportError:
        return _search_each(tuple(needles))
    if not needles or any(b"\0" in needle for needle in needles):  # where a needle ends to it
        return _search_each(tuple(needles))
    count = len(needles)
    sizes = np.array([len(needle) for needle in needles])
    database = hyperscan.Database()
    database.compile(list(needles), ids=list(range(count)), elements=count, literal=True)
    own = threading.local()  # what a search notes down is of one thread

    def search(data: bytes) -> np.ndarray:
        numbers: list[int] = []
        ends: list[int] = []
        add_number, add_end = numbers.append, ends.append  # a tuple a hit would cost twice as much

        def add(needle: int, _begin: int, end: int, _flags: int, _context: object) -> None:
            add_number(needle)
            add_end(end)

        if not hasattr(own, "scratch"):
            own.scratch = hyperscan.Scratch(database)
        database.scan(data, add, scratch=own.scratch)
        needle, stop = np.array(numbers, np.int64), np.array(ends, np.int64)
        return _without_overlaps(np.stack([needle, stop - sizes[needle], stop]))

    return search


def _without_overlaps(hits: np.ndarray) -> np.ndarray:
    _, start, stop = hits
    if (start[1:] >= stop[:-1]).all():  # so they are in order, too
        return hits
    order = np.argsort(start)  # no two begin at one place: one would begin with the other
    kept = []
    reached = 0
    for i, begin, end in zip(
        order.tolist(), start[order].tolist(), stop[order].tolist(), strict=True
    ):
        if begin >= reached:
            kept.append(i)
            reached = end
    return hits[:, kept]


def _search_each(needles: tuple[bytes, ...]) -> Finder:
    def search(data: bytes) -> np.ndarray:
        hits: list[tuple[int, int, int]] = []
        for number, needle in enumerate(needles):
            start = data.find(needle)
            while start >= 0:
                hits.append((number, start, start + len(needle)))
                start = data.find(needle, start + 1)
        return _without_overlaps(np.array(hits, np.int64).reshape(-1, 3).T)

    return search
