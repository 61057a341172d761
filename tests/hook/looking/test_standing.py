"""What a thread stands in whose phase does not end, as a clock that is moved by hand has it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from dsprof.hook.looking import standing
from dsprof.hook.looking.stacks import Call, Stacks, few
from dsprof.hook.looking.standing import AT_ONCE, LEAST, STILL, TEXTS, Standing
from dsprof.hook.looking.watched import Glance, Moment, Watched
from dsprof.recording import Recording, Writer, ring
from dsprof.recording.layout import STANDING

SECOND = 1_000_000_000
GLANCE = Glance(Moment(1.0, 1.0), exact=True, forced=False, stood=False)
LOAD, LOOP = Call("load", "./data.py", 3, is_own=True), Call("loop", "./train.py", 9, is_own=True)
READ, OPEN = Call("read", "lib/io.py", 0, is_own=False), Call("open", "lib/io.py", 0, is_own=False)


class Stands:
    """Somebody looks at `calls` once a second."""

    def __init__(self, writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
        self.writer, self.now, self.calls = writer, SECOND, [LOAD, LOOP]
        monkeypatch.setattr(standing, "perf_counter_ns", lambda: self.now)
        self.sees = True
        monkeypatch.setattr(standing, "seen_at", lambda *_: self.calls if self.sees else None)
        self.standing = Standing(writer, Stacks())
        self.move()

    def move(self) -> None:
        """The thread begins another phase."""
        self.writer.ring.cell[2] += 1 << 30

    def look(self, seconds: int, *, sees: Callable[[int], bool] = lambda _: True) -> None:
        for second in range(seconds):
            self.sees = sees(second)
            self.standing.look(0, Watched(), GLANCE)
            self.now += SECOND

    def told(self) -> list[tuple[float, str | None]]:
        self.writer.flush()
        rows = Recording(self.writer.path).follow().to_pylist()
        return [(round(row["seconds"], 6), row["text"]) for row in rows if row["name"] == STANDING]


@pytest.fixture
def stands(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> Stands:
    return Stands(writer, monkeypatch)


def test_it_is_told_after_ten_seconds_and_whenever_that_long_has_passed_again(
    stands: Stands,
) -> None:
    stands.look(100)
    stack = "load (./data.py:3) < loop (./train.py:9)"
    times = [10, 15, 20, 25, 30, 36, 44, 53, 64, 77, 93]
    assert stands.told() == [(seconds, stack) for seconds in times]


def test_a_phase_that_ends_in_time_is_none(stands: Stands) -> None:
    for _ in range(5):
        stands.look(STILL // SECOND)
        stands.move()
    assert stands.told() == []


def test_calls_that_come_and_go_are_left_out_and_of_the_last_that_stays_the_line(
    stands: Stands,
) -> None:
    """As a loop over files: it is what does not end, and no file is to blame."""
    seen: list[list[Call]] = [[READ, LOAD, LOOP], [OPEN, LOAD._replace(line=4), LOOP], [LOAD, LOOP]]
    for second in range(12):
        stands.calls = seen[second % 3]
        stands.look(1)
    assert stands.told() == [(10, "load (./data.py) < loop (./train.py:9)")]


def test_of_a_call_that_came_late_nothing_stays_of_what_lies_inside(stands: Stands) -> None:
    stands.look(8)
    stands.calls = [LOOP]
    stands.look(4)
    assert stands.told() == [(10, "loop (./train.py:9)")]


@pytest.mark.parametrize(("every", "is_told"), [(2, True), (3, False)])
def test_it_is_told_where_most_looks_saw_it(stands: Stands, every: int, *, is_told: bool) -> None:
    stands.look(60, sees=lambda second: second % every == 0)
    assert bool(stands.told()) == is_told


def test_a_few_looks_are_not_enough(stands: Stands) -> None:
    stands.look(1)
    stands.now += STILL
    stands.look(LEAST - 1)
    assert stands.told() == []
    stands.look(1)
    assert len(stands.told()) == 1


def test_stacks_with_nothing_in_common_tell_nothing(stands: Stands) -> None:
    for second in range(12):
        stands.calls = [[LOAD], [LOOP]][second % 2]
        stands.look(1)
    assert stands.told() == []


def test_what_usually_takes_that_long_is_told_once_it_takes_longer_than_ever(
    stands: Stands,
) -> None:
    """A job whose every step has such a phase would fill its recording, and hangs one day."""
    for _ in range(200):
        stands.look(30)
        stands.move()
    usual = len(stands.told())
    assert usual < 6
    stands.look(36)
    assert len(stands.told()) == usual
    stands.look(2)
    assert [round(seconds) for seconds, _ in stands.told()[usual:]] == [36]


def test_rows_stay_few_where_many_places_take_that_long(stands: Stands) -> None:
    for place in range(200):
        stands.writer.ring.cell[0] = place + 1
        stands.look(12)
        stands.move()
    minutes = 200 * 12 // 60
    assert AT_ONCE < len(stands.told()) <= AT_ONCE + minutes + 1


def test_texts_stay_few(stands: Stands) -> None:
    for n in range(TEXTS + 10):
        stands.writer.ring.cell[0] = n + 1
        stands.calls = [Call(f"f{n}", "./a.py", 1, is_own=True)]
        stands.look(12)
        stands.move()
        stands.now += 60 * SECOND
    assert len({text for _, text in stands.told()}) == TEXTS


def test_a_row_is_no_sign_that_training_goes_on(stands: Stands) -> None:
    """It has the time at which that began, and behind it comes a reading of the clocks."""
    writer = stands.writer
    stands.now = begun = writer.flushed_ns
    stands.standing = Standing(writer, Stacks())
    stands.look(12)
    recording = Recording(writer.path)
    (row,) = [one for one in recording.follow().to_pylist() if one["name"] == STANDING]
    begin = recording.header["clock"]["wall_ns"] + begun - recording.header["clock"]["perf_ns"]
    assert row["at"].timestamp() * 1e9 == pytest.approx(begin, abs=SECOND)
    assert row["step"] is None
    assert recording.sampled_for > 0


def test_where_no_cell_is_in_the_file_the_place_is_told_without_code_and_that_it_was_left(
    stands: Stands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ring.Ring, "keeps_cell", False)
    stands.look(12, sees=lambda _: False)
    assert stands.told() == [(10, None)]
    stands.move()
    stands.look(1)
    stands.move()
    stands.look(1)
    assert stands.told() == [(10, None), (0, None)]


def test_nothing_is_told_on_a_disk_that_is_nearly_full(
    stands: Stands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ring.Ring, "has_room", lambda _: False)
    stands.look(12)
    assert stands.told() == []


@pytest.fixture
def waiting() -> Iterator[int]:
    """A thread that waits in a function of this file, hundreds of calls deep."""
    ends, here = threading.Event(), threading.Event()

    def deep(calls: int) -> None:
        if calls:
            deep(calls - 1)
        else:
            here.set()
            ends.wait()

    thread = threading.Thread(target=deep, args=(300,))
    thread.start()
    here.wait()
    yield thread.ident or 0
    ends.set()


def test_all_calls_of_a_thread_are_seen_and_told_are_the_innermost(waiting: int) -> None:
    def names(calls: Sequence[Call]) -> list[Any]:
        return [call.function.rpartition(".")[2] for call in calls if call.is_own]

    calls = Stacks().every(waiting, exact=True)
    assert names(calls) == ["deep"] * 301
    assert names(few(calls)) == ["deep"] * 3
