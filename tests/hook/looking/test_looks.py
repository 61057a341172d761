"""What runs where no phase says so: of a real job, and of threads whose stacks are known."""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from dsprof.events import Class
from dsprof.hook.looking.looks import STACKS, Seen
from dsprof.hook.looking.stacks import Call
from dsprof.hook.looking.watched import Moment, Watched
from tests.hook.jobs_of import run_each
from tests.hook.rows import Rows, folder, read
from tests.hook.seen import Job

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
