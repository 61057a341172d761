"""Where needles stand: the searcher for all at once and the plain one find the same."""

from __future__ import annotations

import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsprof import grammar
from dsprof.logs.scanning.find import Finder, _search_each, finder, shortest
from dsprof.logs.scanning.records import without_cycle_collection

WORDS = st.text("ab:", min_size=1, max_size=4).map(str.encode)


def hits(search: Finder, text: bytes) -> list[tuple[int, int, int]]:
    return [(needle, start, stop) for needle, start, stop in search(text).T.tolist()]


@given(st.lists(WORDS, min_size=1, max_size=150), st.text("ab:\n\0", max_size=300).map(str.encode))
def test_both_searchers_give_the_same_hits(needles: list[bytes], data: bytes) -> None:
    needles = shortest(needles)
    assert hits(finder(needles), data) == hits(_search_each(tuple(needles)), data)


@given(st.lists(WORDS, min_size=1, max_size=20))
def test_of_needles_that_begin_alike_the_shortest_is_searched_for(needles: list[bytes]) -> None:
    kept = shortest(needles)
    assert all(any(needle.startswith(k) for k in kept) for needle in needles)
    assert not [a for a in kept for b in kept if a != b and a.startswith(b)]


def test_a_hit_begins_where_the_one_before_has_ended() -> None:
    assert hits(finder([b"aa"]), b"aaaaa") == [(0, 0, 2), (0, 2, 4)]
    steps = finder([b"step=", b"global_step="])
    assert hits(steps, b"global_step=5 step=") == [(1, 0, 12), (0, 14, 19)]


def test_without_needles_nothing_is_found() -> None:
    assert hits(finder([]), b"step=5") == []


def test_a_needle_may_hold_any_byte() -> None:
    assert hits(finder([b"a\0b", b"\0"]), b"a a\0b\0") == [(0, 2, 5), (1, 5, 6)]


def test_threads_search_at_once() -> None:
    search, text = finder([b"a", b"bc"]), b"a----bc--" * 20_000
    expected = hits(search, text)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(4) as threads:
            told = threads.map(lambda text: hits(search, text), [text] * 8)
            assert all(some == expected for some in told)
    finally:
        sys.setswitchinterval(before)


def test_what_breaks_off_a_search_is_raised() -> None:
    """A searcher that calls back must not swallow what happens there, such as an interrupt."""
    search, text = finder([b"a"]), b"a" * 5_000_000  # seconds of hits
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with without_cycle_collection(), pytest.raises(KeyboardInterrupt):  # as logs are read
            search(text)
        assert hits(search, b"ba") == [(0, 1, 2)]  # the next one is none the worse
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_the_searcher_looks_for_all_needles_at_once() -> None:
    needles = shortest(grammar.builtin().needles)
    data = b"worker-1: tokenised 3 batches of 17 documents, longest 4096 tokens\n" * 6_000

    def seconds(search: Finder) -> float:
        start = time.process_time()
        search(data)
        return time.process_time() - start

    slow = min(seconds(_search_each(tuple(needles))) for _ in range(3))
    assert min(seconds(finder(needles)) for _ in range(5)) < slow / 2
