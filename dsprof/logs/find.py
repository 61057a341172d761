"""Where in a block of bytes each needle stands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from operator import itemgetter
from typing import Final

#: Needle number, first byte, byte behind the last.
Hit = tuple[int, int, int]
Finder = Callable[[bytes], list[Hit]]

#: The vectorised searcher takes no more literals than this; beyond, an automaton reads
#: byte by byte, several times slower than one more vectorised pass.
_AT_ONCE: Final = 64


def shortest(needles: Sequence[bytes]) -> list[bytes]:
    """The needles without those that begin with another one, sorted: where a longer one
    stands, the shorter one is found. Neighbours in this order cost a searcher least."""
    kept: list[bytes] = []
    for needle in sorted(set(needles)):
        if not kept or not needle.startswith(kept[-1]):
            kept.append(needle)
    return kept


def finder(needles: Sequence[bytes]) -> Finder:
    """All non-overlapping hits, leftmost first; of two at one place, the earlier needle.

    A few automata over all needles where `ahocorasick_rs` is installed, else `bytes.find`
    a needle, with the same hits.
    """
    try:
        from ahocorasick_rs import MATCHKIND_LEFTMOST_FIRST, BytesAhoCorasick
    except ImportError:
        return _search_each(tuple(needles))
    passes = max(1, -(-len(needles) // _AT_ONCE))
    cuts = [len(needles) * i // passes for i in range(passes + 1)]
    # The default match kind has no vectorised searcher and is ten times slower.
    parts = [
        (first, BytesAhoCorasick(list(needles[first:end]), matchkind=MATCHKIND_LEFTMOST_FIRST))
        for first, end in pairwise(cuts)
    ]

    def search(data: bytes) -> list[Hit]:
        hits: list[Hit] = []
        found = 0
        for first, automaton in parts:
            some = automaton.find_matches_as_indexes(data)
            if some:
                found += 1
                hits += some if first == 0 else [(n + first, start, end) for n, start, end in some]
        return hits if found < 2 else _without_overlaps(hits)

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
