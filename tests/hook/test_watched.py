"""What can be known of a thread by looking at it."""

from __future__ import annotations

import _thread

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
