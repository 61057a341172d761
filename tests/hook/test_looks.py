"""What runs where no phase says so: of a real job, and of threads whose stacks are known."""

from __future__ import annotations

import _thread
import gc
import re
import signal
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dsprof.events import CLASSES, Class
from dsprof.hook import looker
from dsprof.hook.looker import EVERY, seconds_between
from dsprof.hook.looks import STACKS, Looks, Seen
from dsprof.hook.spans import Phase
from dsprof.hook.stacks import Call
from dsprof.hook.watched import Moment, Watched
from dsprof.recording import Writer
from dsprof.recording.layout import OVER
from tests.hook.jobs_of import run_each
from tests.hook.rows import Rows, folder, read

JOB = ("looked",)
BETWEEN, DATA = "step/looks_after", "data/looks"


@pytest.fixture(scope="module")
def results(out: Path) -> dict[str, Any]:
    found = run_each("looked", out, {"between": 1, "inside": 1}, "torch")
    return {kind: each[0] for kind, each in found.items()}


def rows_of(out: Path, kind: str, looks: str) -> Rows:
    (rows,) = folder(out / kind / f"looks-{looks}")
    return rows


@pytest.mark.parametrize(
    ("kind", "name", "innermost"),
    [("between", BETWEEN, "score"), ("inside", DATA, "__getitem__")],
)
def test_what_takes_the_time_is_in_the_stack_of_nearly_all_looks(
    results: dict[str, Any], out: Path, kind: str, name: str, innermost: str
) -> None:
    assert results[kind]
    told = [row for row in rows_of(out, kind, "0.004").metrics if row.name == name]
    seen: Counter[bool] = Counter()
    for row in told:
        if row.text:  # else it came late, as on a busy machine
            seen[f"{innermost} (" in row.text.partition(" < ")[0]] += int(row.value)
    assert seen[True] > 10  # of 12 times 50 ms, one in 4 ms
    assert seen[True] > 0.9 * seen.total()


def test_losses_are_the_same_and_no_thread_is_left(results: dict[str, Any]) -> None:
    for one in results.values():
        often, never = one["losses"]
        assert often == never
        assert one["threads"] == ["MainThread"]


def test_nobody_looks_where_that_is_switched_off(results: dict[str, Any], out: Path) -> None:
    assert results
    assert {row.name for row in rows_of(out, "between", "0").metrics}.isdisjoint({BETWEEN, DATA})


class Job:
    """A thread that waits at a known line, and what the hook knows of its phases."""

    def __init__(self, writer: Writer) -> None:
        self.writer, self._ends, here = writer, threading.Event(), threading.Event()

        def waits_here() -> None:
            here.set()
            self._ends.wait()

        thread = threading.Thread(target=waits_here)
        thread.start()
        here.wait()
        assert thread.ident is not None
        self.timeline = SimpleNamespace(writer=writer, stack=[], thread=thread.ident)
        self._time = 0
        self.begin()

    def begin(self, every: float = EVERY) -> None:
        self.looks = Looks(self.timeline, every)  # type: ignore[arg-type]
        watched = self.looks._watched
        watched._clock = time.pthread_getcpuclockid(self.timeline.thread)  # it is alive
        watched._clock_of = self.timeline.thread

    def enter(self, name: str, class_: Class) -> None:
        number = self.writer.name(name, 0, class_)
        self.timeline.stack.append(SimpleNamespace(phase=Phase(number, CLASSES.index(class_))))
        self._time += OVER << 1
        self.writer.ring.cell[2] = number | self._time

    def leave(self) -> None:
        self.timeline.stack.pop()
        self._time += OVER << 1  # one unit of the cell's clock
        self.writer.ring.cell[2] = self.writer.ring.cell[2] & OVER - 1 | OVER | self._time

    def goes_on(self) -> None:
        """A step that is looked at no more."""
        self.enter("forward", Class.COMPUTE)
        self.leave()

    def look(self, times: int = 1) -> None:
        for _ in range(times):
            self.look_late(0.0)

    def look_late(self, late: float) -> None:
        while again := self.looks._look(late):
            time.sleep(again)

    def told(self) -> list[tuple[str, float, str]]:
        self.looks.end_step()
        self.looks.write(self.writer, 1)
        self.writer.flush()
        rows = read(self.writer.path).metrics
        return [(row.name, row.value, row.text) for row in rows]

    def end(self) -> None:
        self._ends.set()


@pytest.fixture
def job(writer: Writer) -> Any:
    job = Job(writer)
    yield job
    job.end()


def test_of_what_lies_behind_a_phase_or_in_a_loader_the_stack_is_told(job: Job) -> None:
    """Of other phases, only how often the thread was seen in them."""
    job.look()  # before any phase
    job.enter("forward", Class.COMPUTE)
    job.look()
    job.leave()
    job.look(3)
    job.enter("data", Class.DATA)
    job.look(2)
    job.leave()
    job.goes_on()
    told = {name: (count, bool(stack)) for name, count, stack in job.told()}
    assert told == {
        "forward/looks": (1, False), "forward/looks_after": (3, True), DATA: (2, True),
    }  # fmt: skip


def test_a_stack_is_told_from_the_innermost_library_to_the_jobs_own_code(job: Job) -> None:
    job.enter("step", Class.OPTIMIZER)
    job.leave()
    job.look()
    job.goes_on()
    (stack,) = [stack for _, _, stack in job.told() if stack]
    inner, *own = stack.split(" < ")
    assert inner in {"Condition.wait (threading.py)", "wait (threading.py)"}
    assert any(re.search(r"waits_here \((\./|/).*:\d+\)$", one) for one in own)


def test_what_is_seen_behind_the_last_step_is_none_of_a_step(job: Job) -> None:
    job.enter("step", Class.OPTIMIZER)
    job.leave()
    job.look(3)
    job.looks.stop()
    job.looks.write(job.writer, 1)
    job.writer.flush()
    assert read(job.writer.path).metrics == []
    assert [count for _, count, _ in job.told()] == [3]


@pytest.mark.parametrize(
    ("late", "is_seen"),
    [(0.0, True), (0.0001, True), (0.002, False), (0.0052, True), (0.02, False)],
)
def test_a_look_that_had_to_wait_for_python_s_lock_saw_nothing(
    job: Job, late: float, *, is_seen: bool
) -> None:
    """But one that waited for as long as a thread may keep the lock: that one has run Python."""
    assert sys.getswitchinterval() == pytest.approx(0.005)
    job.enter("step", Class.OPTIMIZER)
    job.leave()
    for _ in range(20):
        job.look_late(0.0001)
    job.looks.end_step()
    job.told()
    job.look_late(late)
    told = job.told()
    assert [bool(stack) for _, _, stack in told[-1:]] == [is_seen]


@pytest.mark.parametrize(
    ("moments", "again", "is_seen"),
    [
        ([(1.0, 9.0), (1.0009, 9.001)], None, True),  # it computes while somebody else has the lock
        ([(1.0, 9.0), (1.0, 9.001), (1.0, 9.003)], 0.0, True),  # it sleeps
        ([(1.0, 9.0), (1.0, 9.001), (1.0015, 9.003)], 0.0, False),  # it had waited for the lock
        ([(1.0, 9.0), (1.0, 9.001), (1.0, 9.007)], 0.004, False),  # or it waits for a CPU
        ([(1.0, 9.0), (1.0, 9.001), None], 0.0, False),
        ([None, None], None, False),
    ],
)
def test_what_a_thread_is_in_is_sure_where_it_needs_no_lock(
    job: Job,
    monkeypatch: pytest.MonkeyPatch,
    moments: list[tuple[float, float] | None],
    again: float | None,
    *,
    is_seen: bool,
) -> None:
    told = iter(moments)
    monkeypatch.setattr(Watched, "moment", lambda *_: (one := next(told)) and Moment(*one))
    job.enter("step", Class.OPTIMIZER)
    job.leave()
    job.looks._look_first(0.0)
    assert (job.looks._unsure is None) == (again is None)
    if job.looks._unsure and again is not None:
        job.looks._look_again(*job.looks._unsure, again)
    assert [bool(seen.stack) for seen in job.looks._of_step] == [is_seen]
    assert next(told, "none left") == "none left"


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


def test_of_many_stacks_the_most_frequent_are_told_and_the_others_counted(job: Job) -> None:
    number = job.writer.name("step")
    for place in range(STACKS + 5):
        job.looks._counts[Seen(number, True, (Call("f", f"{place}.py", 0, False),))] = 100 - place
    told = job.told()
    assert [count for _, count, _ in told[:STACKS]] == [100 - place for place in range(STACKS)]
    rest = sum(100 - place for place in range(STACKS, STACKS + 5))
    assert told[STACKS:] == [(BETWEEN, rest, "")]


def test_rows_stay_few_however_long_a_job_runs(job: Job) -> None:
    day, number, times = 86_400_000_000_000, job.writer.name("step"), 0
    at = 1
    while at < day:
        job.looks._counts[Seen(number, True, (Call("f", "a.py", 0, False),))] += 1
        job.looks.write(job.writer, at)
        at, times = job.looks.due, times + 1
    assert 100 < times < 200


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
