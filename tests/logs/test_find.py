"""Where needles stand: the vectorised searcher and the plain one find the same."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from dsprof import grammar
from dsprof.logs.find import _search_each, finder, shortest

WORDS = st.text("ab:", min_size=1, max_size=4).map(str.encode)


@given(st.lists(WORDS, min_size=1, max_size=150), st.text("ab:\n", max_size=300).map(str.encode))
def test_both_searchers_give_the_same_hits(needles: list[bytes], data: bytes) -> None:
    needles = shortest(needles)
    assert finder(needles)(data) == _search_each(tuple(needles))(data)


@given(st.lists(WORDS, min_size=1, max_size=20))
def test_of_needles_that_begin_alike_the_shortest_is_searched_for(needles: list[bytes]) -> None:
    kept = shortest(needles)
    assert all(any(needle.startswith(k) for k in kept) for needle in needles)
    assert not [a for a in kept for b in kept if a != b and a.startswith(b)]


def test_a_hit_begins_where_the_one_before_has_ended() -> None:
    assert finder([b"aa"])(b"aaaaa") == [(0, 0, 2), (0, 2, 4)]
    assert finder([b"step=", b"global_step="])(b"global_step=5 step=") == [(1, 0, 12), (0, 14, 19)]


def test_the_searcher_is_the_vectorised_one() -> None:
    """The default kind of match reads byte by byte: six times slower, one automaton or four."""
    from ahocorasick_rs import BytesAhoCorasick

    needles = shortest(grammar.builtin().needles)
    data = b"worker-1: tokenised 3 batches of 17 documents, longest 4096 tokens\n" * 60_000
    slow = BytesAhoCorasick(needles)

    def seconds(search: object) -> float:
        start = time.process_time()
        search(data)  # type: ignore[operator]
        return time.process_time() - start

    fast = min(seconds(finder(needles)) for _ in range(5))
    assert fast < min(seconds(slow.find_matches_as_indexes) for _ in range(3))
