"""The thread that looks at another one, and leaves no trace."""

from __future__ import annotations

import _thread
import gc
import signal
import sys
import time
from typing import Any

import pytest

from dsprof.events import Class
from dsprof.hook.looking import looker
from dsprof.hook.looking.looker import EVERY, seconds_between
from tests.hook.rows import read
from tests.hook.seen import Job


@pytest.mark.parametrize("enabled", [True, False])
def test_no_garbage_is_collected_in_its_thread(job: Job, *, enabled: bool) -> None:
    """Finalizers and callbacks of the job would run there."""
    threads: set[int] = set()

    def notes(*_: Any) -> None:
        threads.add(_thread.get_ident())

    job.enter("step", Class.OPTIMIZER)
    job.leave()
    job.begin(every=0.001)
    threshold, was = gc.get_threshold(), gc.isenabled()
    gc.callbacks.append(notes)
    (gc.enable if enabled else gc.disable)()
    gc.set_threshold(20)
    try:
        job.looks.start()
        while not job.looks._of_step:  # the thread itself is made new
            pass
        threads.clear()
        made: list[Any] = []
        while len(job.looks._of_step) < 100:
            made = [made[-100:], {}]  # garbage, now and then
        job.looks.stop()
        assert gc.isenabled() == enabled
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(notes)
        (gc.enable if was else gc.disable)()
    assert threads == ({_thread.get_ident()} if enabled else set())


def test_in_a_child_that_was_forked_while_it_looked_garbage_is_collected(job: Job) -> None:
    job.looks.looker._holds_garbage = True
    gc.disable()
    try:
        job.looks.looker.collect_again()
        assert gc.isenabled()
    finally:
        gc.enable()


def test_nobody_looks_where_a_thread_may_keep_the_lock_for_too_short(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job would go on in the middle of a look, and end the life of objects in its thread."""
    monkeypatch.setattr(sys, "getswitchinterval", lambda: 1e-6)
    job.begin(every=0.001)
    job.enter("step", Class.OPTIMIZER)
    job.leave()
    job.looks.start()
    time.sleep(0.1)
    job.looks.stop()
    assert job.looks._of_step == []


def test_a_failure_ends_the_looking_alone_and_is_recorded(
    job: Job, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails() -> dict[int, Any]:
        raise RuntimeError("no stacks here")

    monkeypatch.setattr(sys, "_current_frames", fails)
    job.enter("step", Class.OPTIMIZER)
    job.leave()
    job.begin(every=0.001)
    job.looks.start()
    assert job.looks.looker._ended.acquire(timeout=10.0)
    job.looks.looker._ended.release()
    job.looks.stop()
    job.told()
    config = read(job.writer.path).config
    assert "no stacks here" in str(config["looks"])
    assert capsys.readouterr().err.count("\n") == 1


def test_where_no_thread_can_be_started_all_else_is_recorded(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(_thread, "start_new_thread", refuses)
    job.looks.start()
    job.looks.stop()
    job.told()
    assert "can't start" in str(read(job.writer.path).config["looks"])


def test_its_thread_takes_no_signal_of_the_job(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    masks = []
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])

    def notes(*_: Any) -> None:
        masks.append(signal.pthread_sigmask(signal.SIG_BLOCK, []))

    monkeypatch.setattr(_thread, "start_new_thread", notes)
    job.looks.start()
    assert {signal.SIGTERM, signal.SIGINT, signal.SIGUSR1} <= masks[0]
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before


@pytest.mark.parametrize(
    ("told", "seconds"),
    [(None, EVERY), ("", EVERY), ("0", 0.0), ("0.05", 0.05), ("abc", EVERY), ("nan", EVERY),
     ("inf", EVERY), ("-1", EVERY)],
)  # fmt: skip
def test_what_is_no_time_between_two_looks_means_the_usual(
    told: str | None, seconds: float
) -> None:
    assert seconds_between(told) == seconds


def test_looks_are_few_once_many_were_taken(monkeypatch: pytest.MonkeyPatch, job: Job) -> None:
    waits: list[float] = []
    clock = [0.0]

    class GoesOn:
        def acquire(self, _: bool, timeout: float) -> bool:
            waits.append(timeout)
            clock[0] += timeout
            return clock[0] > 3_600

        def release(self) -> None:
            pass

    monkeypatch.setattr(looker, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(job.looks.looker, "_goes_on", GoesOn())
    job.looks.looker._loop()
    of_first_minute = sum(1 for n in range(len(waits)) if sum(waits[:n]) < 60)
    assert 270 < of_first_minute < 330
    assert len(waits) < 5_000
    assert max(waits) < 2.0
    assert len({round(one, 6) for one in waits[:200]}) == 200  # no rhythm that a loop could have
