"""What can be known of a thread by looking at it."""

from __future__ import annotations

import _thread
import os
import threading
import time
from collections import Counter

import pytest

from dsprof.hook.looking.stacks import Stacks
from dsprof.hook.looking.standing import seen_at
from dsprof.hook.looking.watched import Moment, Watched
from tests.hook.seen import Job


def test_the_clock_is_that_of_the_thread_that_trains(job: Job) -> None:
    watched = job.looks._watched
    watched.find_clock(job.timeline.thread)  # another thread than this one
    assert watched._clock_of == job.timeline.thread
    job.timeline.thread = _thread.get_ident()
    assert watched.moment(job.timeline.thread) is None
    watched.find_clock(job.timeline.thread)
    before = watched.moment(job.timeline.thread)
    sum(range(100_000))
    now = watched.moment(job.timeline.thread)
    assert before is not None
    assert now is not None
    assert now.on_cpu > before.on_cpu


@pytest.mark.parametrize(
    ("last", "at", "now", "late", "sees", "sure"),
    [
        ((1.0, 8.0), (1.01, 9.0), (1.01, 9.001), 0.004, True, True),  # it hardly ran
        (
            (1.0, 8.0),
            (1.9, 9.0),
            (1.9009, 9.001),
            0.0,
            True,
            True,
        ),  # runs while we have the lock
        ((1.0, 8.0), (1.9, 9.0), (1.9, 9.001), 0.0, True, False),  # it waits for it
        ((1.0, 8.0), (1.9, 9.0), (1.9, 9.001), 0.0052, True, True),  # it has run Python for long
        ((1.0, 8.0), (1.9, 9.0), (1.9009, 9.001), 0.003, False, True),
        (None, (1.0, 9.0), (1.0, 9.001), 0.0, True, False),
        ((1.0, 8.0), None, None, 0.0, False, False),  # it has ended; another may have its number
    ],
)
def test_what_is_seen_is_what_runs_only_if_the_thread_stands_or_needs_no_lock(
    monkeypatch: pytest.MonkeyPatch,
    last: tuple[float, float] | None,
    at: tuple[float, float] | None,
    now: tuple[float, float] | None,
    late: float,
    *,
    sees: bool,
    sure: bool,
) -> None:
    told = iter([one and Moment(*one) for one in (last, at, now)])
    monkeypatch.setattr(Watched, "moment", lambda *_: next(told))
    watched = Watched()
    for _ in range(20):
        watched.comes(0.0001)
    watched.glance(7, 0.0)
    glance = watched.glance(7, late)
    assert glance.may_see == sees
    assert watched.was_there(glance, 7) == sure


def test_code_that_lets_go_of_the_lock_again_and_again_is_mostly_not_seen_there() -> None:
    """It computes for a third of a millisecond, and writes: nearly all its time is the former."""
    sink = os.open(os.devnull, os.O_WRONLY)
    ends, ready = threading.Event(), threading.Event()

    def computes() -> int:
        return sum(n * n for n in range(4000))

    def writes() -> None:
        os.write(sink, b"x")

    def loop() -> None:
        watched.find_clock(_thread.get_ident())
        ready.set()
        while not ends.is_set():
            computes()
            writes()

    watched, stacks, seen = Watched(), Stacks(), Counter[str]()
    thread = threading.Thread(target=loop)
    thread.start()
    ready.wait()
    for _ in range(100):
        due = time.perf_counter() + 0.005
        time.sleep(0.005)
        glance = watched.glance(thread.ident or 0, time.perf_counter() - due)
        calls = seen_at(glance, thread.ident or 0, watched, stacks)
        seen[calls[0].function.rpartition(".")[2] if calls else ""] += 1
    ends.set()
    thread.join()
    os.close(sink)
    assert seen["writes"] < 20
