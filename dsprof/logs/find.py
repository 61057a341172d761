"""Where in a block of bytes each needle stands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

#: Needle number, first byte, byte behind the last.
Hit = tuple[int, int, int]
Finder = Callable[[bytes], list[Hit]]

_FALLBACK_NOTE: Final = "bytes.find, several times slower; install ahocorasick-rs"


def finder(needles: Sequence[bytes]) -> Finder:
    """All non-overlapping hits, leftmost first; of two at one place, the earlier needle.

    One automaton over all needles where `ahocorasick_rs` is installed, else `bytes.find`
    a needle, with the same hits.
    """
    try:
        from ahocorasick_rs import MATCHKIND_LEFTMOST_FIRST, BytesAhoCorasick
    except ImportError:
        return _search_each(tuple(needles))
    if not needles:
        return lambda _: []
    # The default match kind has no vectorised searcher and is ten times slower.
    automaton = BytesAhoCorasick(list(needles), matchkind=MATCHKIND_LEFTMOST_FIRST)
    hits: Finder = automaton.find_matches_as_indexes
    return hits


def _search_each(needles: tuple[bytes, ...]) -> Finder:
    def search(data: bytes) -> list[Hit]:
        found: list[tuple[int, int, int]] = []
        for number, needle in enumerate(needles):
            start = data.find(needle)
            while start >= 0:
                found.append((start, number, start + len(needle)))
                start = data.find(needle, start + 1)
        found.sort()
        hits: list[Hit] = []
        reached = 0
        for start, number, end in found:
            if start >= reached:
                hits.append((number, start, end))
                reached = end
        return hits

    return search
