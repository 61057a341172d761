"""Where the nanoseconds of a step go, by hand-made calls under a clock that stands still."""

from __future__ import annotations

import _thread
import math
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from dsprof.errors import DsprofError
from dsprof.events import Class
from dsprof.hook import spans
from dsprof.hook.calls import collectives, groups
from dsprof.hook.calls.collectives import Collectives
from dsprof.hook.calls.operations import Operation
from dsprof.hook.spans import PATIENCE, Frame, Timeline, Track
from dsprof.recording import Writer
from dsprof.recording.layout import OVER, PHASE
from tests.hook.rows import Rows, read

COMPUTE, COMMUNICATION, WAIT, OPTIMIZER, OTHER = 0, 1, 2, 3, 7


class Clock:
    def __init__(self) -> None:
        self.time = 1_000_000

    def __call__(self) -> int:
        return self.time

    def passes(self, nanoseconds: int) -> None:
        self.time += nanoseconds


class Tensor:
    def __init__(self, nbytes: int, *, is_cpu: bool = True) -> None:
        self.nbytes, self.is_cpu = nbytes, is_cpu


class Group:
    """As much of a ProcessGroup as is looked at."""


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(spans, "now", clock)
    monkeypatch.setattr(collectives, "now", clock)
    return clock


@pytest.fixture
def timeline(tmp_path: Path, clock: Clock) -> Iterator[Timeline]:
    assert clock.time
    writer = Writer.create(tmp_path, {"rank": 0})
    yield Timeline(writer)
    writer.close()


def calls_on(timeline: Timeline, group: Group, *, blocks_host: bool = True) -> Collectives:
    found = Collectives(timeline)
    name = timeline.writer.name("0 ranks 0-1")
    known = groups.Group(group, name, lambda _: None, blocks_host=blocks_host)
    found._groups[id(group)] = known
    return found


def rows(timeline: Timeline) -> Rows:
    timeline.flush()
    return read(timeline.writer.path)


def one_step(timeline: Timeline, clock: Clock) -> Track:
    """Forward 10, a gap of 1, backward 20 with 5 blocked in it."""
    track = timeline.track(1)
    forward = timeline.phase("forward", Class.COMPUTE)
    backward = timeline.phase("backward", Class.COMPUTE)
    frame = timeline.enter_forward(track, forward)
    clock.passes(10)
    timeline.leave(frame)
    clock.passes(1)
    frame = timeline.enter(track, backward)
    clock.passes(20)
    timeline.block(5, COMMUNICATION)
    timeline.leave(frame)
    return track


def test_blocked_time_is_communication_and_no_longer_compute(
    timeline: Timeline, clock: Clock
) -> None:
    timeline.close_step(one_step(timeline, clock), 1)
    (step,) = rows(timeline).steps
    assert step.length == 31
    found = [round(seconds * 1e9) for seconds in step.classes]
    assert found == [25, 5, 0, 0, 0, 0, 0, 1]


def test_an_outer_phase_keeps_only_its_own_time(timeline: Timeline, clock: Clock) -> None:
    track = timeline.track(1)
    step = timeline.enter(track, timeline.phase("step", Class.OPTIMIZER))
    clock.passes(3)
    inner = timeline.enter(track, timeline.phase("step/reduce", Class.COMPUTE))
    clock.passes(7)
    timeline.leave(inner)
    clock.passes(2)
    timeline.leave(step)
    assert track.classes[OPTIMIZER] == 5
    assert track.classes[COMPUTE] == 7
    assert [(row.path, row.length) for row in rows(timeline).spans] == [
        ("step/reduce", 7),
        ("step", 12),
    ]


def test_phases_that_an_exception_left_open_are_forgotten(timeline: Timeline, clock: Clock) -> None:
    track = timeline.track(1)
    outer = timeline.enter(track, timeline.phase("step", Class.OPTIMIZER))
    lost = timeline.enter(track, timeline.phase("step/inner", Class.OPTIMIZER))
    clock.passes(4)
    timeline.leave(outer)
    timeline.leave(lost)
    assert timeline.stack == []
    assert [row.path for row in rows(timeline).spans] == ["step"]


def test_the_next_step_begins_where_the_last_one_ended(timeline: Timeline, clock: Clock) -> None:
    track = one_step(timeline, clock)
    timeline.close_step(track, 1)
    clock.passes(50)
    timeline.close_step(track, 2)
    first, second = rows(timeline).steps
    assert second.begin == first.begin + first.length
    assert round(second.classes[OTHER] * 1e9) == second.length == 50


def test_engines_in_turns_share_the_time_and_count_none_of_it_twice(
    timeline: Timeline, clock: Clock
) -> None:
    """An actor's two steps between two of a critic's; a gap belongs to whose phase comes next."""
    actor, critic = timeline.track(1), timeline.track(1)
    forward = timeline.phase("forward", Class.COMPUTE)

    def trains(track: Track, gap: int, step: int | None = None) -> None:
        clock.passes(gap)
        frame = timeline.enter(track, forward)
        clock.passes(10)
        timeline.leave(frame)
        if step:
            timeline.close_step(track, step)

    start = clock.time
    for turn in (0, 1):
        trains(critic, 3 if turn else 0)  # evaluates for the actor
        trains(actor, 2, 2 * turn + 1)
        trains(actor, 2, 2 * turn + 2)
        trains(critic, 5, turn + 1)
    steps = rows(timeline).steps
    assert [(row.engine, row.length) for row in steps] == [
        (0, 10), (0, 12), (1, 25), (0, 12), (0, 12), (1, 28),
    ]  # fmt: skip
    assert sum(row.length for row in steps) == clock.time - start - 2  # before the first phase
    assert [row.begin + row.length for row in steps] == sorted(
        row.begin + row.length for row in steps
    )
    assert [round(row.classes[OTHER] * 1e9) for row in steps] == [0, 2, 5, 2, 2, 8]


def test_what_is_waited_for_outside_of_phases_is_of_one_engines_turn_as_its_time_is(
    timeline: Timeline, clock: Clock
) -> None:
    """A critic's layers are called by themselves and gathered, before it has a phase."""
    actor, critic = timeline.track(1), timeline.track(1)
    forward = timeline.phase("forward", Class.COMPUTE)
    for track in (actor, critic):
        frame = timeline.enter(track, forward)
        clock.passes(10)
        timeline.leave(frame)
    timeline.leave(timeline.enter(actor, forward))
    clock.passes(7)
    timeline.block(7, COMMUNICATION)
    clock.passes(2)
    for track in (critic, actor):
        timeline.leave(timeline.enter(track, forward))
    for track in (actor, critic):
        timeline.close_step(track, 1)
    first, second = rows(timeline).steps
    assert (first.length, second.length) == (17, 12)
    assert round(first.classes[COMMUNICATION] * 1e9) == 7
    assert round(sum(first.classes) * 1e9) == 17


def test_what_a_reference_model_that_ends_no_steps_computes_is_of_the_steps_that_ask_it(
    timeline: Timeline, clock: Clock
) -> None:
    """Before the first step ends nobody knows which of the two trains."""
    policy, reference = timeline.track(1), timeline.track(1)
    forward = timeline.phase("forward", Class.COMPUTE)
    evaluation = timeline.phase("evaluation", Class.OTHER)
    for step in (1, 2, 3):
        for enter, track, phase in (
            (timeline.enter, policy, forward),
            (timeline.enter_once, reference, evaluation),
            (timeline.enter, policy, forward),
        ):
            frame = enter(track, phase)
            clock.passes(10)
            timeline.leave(frame)
        timeline.close_step(policy, step)
    steps = rows(timeline).steps
    assert [row.length for row in steps] == [20, 30, 30]
    assert [round(row.classes[OTHER] * 1e9) for row in steps] == [0, 10, 10]
    asked = [row for row in rows(timeline).spans if row.path == "evaluation"]
    assert [(row.engine, row.step) for row in asked] == [(1, 1), (0, 2), (0, 3)]


def test_what_recording_cost_is_told_of_each_step_by_itself(timeline: Timeline) -> None:
    told: list[int] = []
    timeline.closing.append(lambda ended: told.append(ended.own))
    track = timeline.track(1)
    for step, own in enumerate((5, 0, 7), 1):
        timeline.guard.own += own
        timeline.close_step(track, step)
    assert told == [5, 0, 7]


def test_what_an_engine_that_ends_steps_evaluates_is_its_own_whoever_s_turn_it_was(
    timeline: Timeline, clock: Clock
) -> None:
    """A critic that is asked behind the actor's forward, and trained as the actor is."""
    actor, critic = timeline.track(1), timeline.track(1)
    forward = timeline.phase("forward", Class.COMPUTE)
    for track in (critic, actor):
        timeline.leave(timeline.enter(track, forward))
        clock.passes(10)
        timeline.close_step(track, 1)
    timeline.leave(timeline.enter(actor, forward))
    timeline.leave(timeline.enter_once(critic, timeline.phase("evaluation", Class.OTHER)))
    asked = [row for row in rows(timeline).spans if row.path == "evaluation"]
    assert [(row.engine, row.step) for row in asked] == [(critic.number, 2)]


def test_an_engine_inside_the_phase_of_another_takes_no_turn_from_it(
    timeline: Timeline, clock: Clock
) -> None:
    outer, inner = timeline.track(1), timeline.track(1)
    forward, backward = (timeline.phase(name, Class.COMPUTE) for name in ("forward", "backward"))
    reduce = timeline.phase("backward/reduce", Class.COMPUTE)
    frame = timeline.enter(outer, forward)
    clock.passes(10)
    timeline.leave(frame)
    held = timeline.enter(outer, backward)
    clock.passes(3)
    for track, phase in ((inner, forward), (outer, reduce)):  # computed again in backward
        frame = timeline.enter(track, phase)
        clock.passes(5)
        timeline.leave(frame)
    timeline.leave(held)
    timeline.close_step(outer, 1)
    (step,) = rows(timeline).steps
    assert step.length == 23
    assert round(step.classes[OTHER] * 1e9) == 5  # the inner one's own


def test_a_wait_that_the_host_cannot_see_makes_the_split_unknown(
    timeline: Timeline, clock: Clock
) -> None:
    """On a GPU a wait returns at once: 0 would be a lie."""
    group = Group()
    calls = calls_on(timeline, group, blocks_host=False)
    track = timeline.track(1)
    frame = timeline.enter(track, timeline.phase("forward", Class.COMPUTE))
    reduce = Operation("all_reduce", 0)
    calls.issued(reduce, group, ([Tensor(8, is_cpu=False)],), {}, work := object(), clock.time)
    calls.after_wait(calls.before_wait((work,)))
    clock.passes(9)
    timeline.leave(frame)
    timeline.close_step(track, 1)
    found = rows(timeline)
    assert [row.blocked for row in found.collectives] == [-1]
    assert all(seconds != seconds for seconds in found.steps[0].classes)  # nan  # noqa: PLR0124


def test_a_collective_is_charged_to_the_phase_that_waits_for_it(
    timeline: Timeline, clock: Clock
) -> None:
    group, work = Group(), object()
    calls, track = calls_on(timeline, group), timeline.track(1)
    frame = timeline.enter(track, timeline.phase("backward", Class.COMPUTE))
    begin = clock.time
    calls.issued(Operation("all_reduce", 0), group, ([Tensor(40), Tensor(2)],), {}, work, begin)
    timeline.leave(frame)
    frame = timeline.enter(track, timeline.phase("step", Class.OPTIMIZER))
    clock.passes(3)
    held = calls.before_wait((work,))
    wait = clock.time
    clock.passes(6)
    calls.after_wait(held)
    timeline.leave(frame)
    (row,) = rows(timeline).collectives
    assert (row.path, row.op, row.size, row.blocked) == ("step", "all_reduce", 42, 6)
    assert (row.begin, row.wait) == (begin, wait)
    assert (track.classes[COMMUNICATION], track.classes[OPTIMIZER]) == (6, 3)


def test_a_wait_of_another_thread_holds_up_no_phase_of_training(
    timeline: Timeline, clock: Clock
) -> None:
    pytest.importorskip("torch")  # it tells whose backward a thread is in
    group, work = Group(), object()
    calls, track = calls_on(timeline, group), timeline.track(1)
    frame = timeline.enter(track, timeline.phase("forward", Class.COMPUTE))
    calls.issued(Operation("all_reduce", 0), group, ([Tensor(8)],), {}, work, clock.time)

    def wait() -> None:
        held = calls.before_wait((work,))
        clock.passes(6)
        calls.after_wait(held)

    in_a_thread(wait)
    assert timeline.writer.ring.cell[0] == 0  # training itself is in no operation
    timeline.leave(frame)
    assert (track.classes[COMPUTE], track.classes[COMMUNICATION]) == (6, 0)
    for step in (1, 2):  # nobody will wait for it any more
        timeline.close_step(track, step)
    (row,) = rows(timeline).collectives
    assert (row.op, row.step, row.blocked) == ("all_reduce", 1, 0)


def test_handing_a_call_over_is_part_of_the_wait_of_the_same_phase(
    timeline: Timeline, clock: Clock
) -> None:
    group, reduce = Group(), Operation("all_reduce", 0)
    calls, track = calls_on(timeline, group), timeline.track(1)
    begun = timeline.enter(track, timeline.phase("backward", Class.COMPUTE))
    handed, carried = object(), object()
    for work in (handed, carried):
        begin = clock.time
        clock.passes(4)
        calls.issued(reduce, group, ([Tensor(8)],), {}, work, begin)
    for work in (handed, carried):
        held = calls.before_wait((work,))
        clock.passes(6)
        calls.after_wait(held)
        timeline.leave(begun)
        timeline.enter(track, timeline.phase("step", Class.OPTIMIZER))
    found = rows(timeline).collectives
    assert [(row.path, row.blocked) for row in found] == [("backward", 10), ("step", 6)]
    assert track.classes[COMMUNICATION] == 16
    assert track.classes[COMPUTE] == 4  # handed over in backward for a wait that was elsewhere


def test_a_receive_is_waiting_not_communication(timeline: Timeline, clock: Clock) -> None:
    group, work = Group(), object()
    calls, track = calls_on(timeline, group), timeline.track(1)
    timeline.enter(track, timeline.phase("forward", Class.COMPUTE))
    calls.issued(Operation("recv", 0), group, ([Tensor(4)], 0, 0), {}, work, clock.time)
    held = calls.before_wait((work,))
    clock.passes(5)
    calls.after_wait(held)
    assert (track.classes[COMMUNICATION], track.classes[WAIT]) == (0, 5)


def test_a_collective_nobody_waited_for_is_recorded_as_hidden(
    timeline: Timeline, clock: Clock
) -> None:
    group = Group()
    calls, _ = calls_on(timeline, group), timeline.track(1)
    works = [object(), object()]
    for work in works:
        calls.issued(Operation("broadcast", 0), group, ([Tensor(4)],), {}, work, clock.time)
    calls.finish()
    assert [(row.op, row.blocked) for row in rows(timeline).collectives] == [("broadcast", 0)] * 2


def test_what_is_under_way_takes_the_number_that_its_step_gets(
    timeline: Timeline, clock: Clock
) -> None:
    """A checkpoint that is loaded sets it, and gathers what is waited for later, or never."""
    group, gather = Group(), Operation("all_gather_into_tensor", 1)
    calls, engine, other = calls_on(timeline, group), timeline.track(1), timeline.track(1)
    works = [object(), object(), object()]
    for track, work in zip((engine, engine, other), works, strict=True):
        frame = timeline.enter(track, timeline.phase("load_checkpoint", Class.CHECKPOINT))
        calls.issued(gather, group, (None, Tensor(4)), {}, work, clock.time)
        timeline.leave(frame)
    timeline.renumber(engine, 4)
    frame = timeline.enter(engine, timeline.phase("load_checkpoint", Class.CHECKPOINT))
    calls.after_wait(calls.before_wait((works[0],)))
    timeline.leave(frame)
    calls.finish()
    assert sorted(row.step for row in rows(timeline).collectives) == [1, 4, 4]


def test_what_is_thinned_out_takes_the_number_that_its_step_gets(
    timeline: Timeline, clock: Clock
) -> None:
    group = Group()
    calls, track = calls_on(timeline, group), timeline.track(1)
    calls.every = 2
    timeline.enter(track, timeline.phase("load_checkpoint", Class.CHECKPOINT))
    calls.issued(Operation("broadcast", 0), group, (Tensor(4),), {}, None, clock.time)
    timeline.renumber(track, 5)
    calls.finish()
    assert [row.step for row in rows(timeline).collectives] == [5]


def test_thinned_out_calls_keep_their_number_bytes_and_time(
    timeline: Timeline, clock: Clock
) -> None:
    group = Group()
    calls, track = calls_on(timeline, group), timeline.track(1)
    calls.every = 2
    timeline.enter(track, timeline.phase("forward", Class.COMPUTE))
    for step in (1, 2):
        for size in (10, 30):
            calls.issued(Operation("all_gather", 0), group, (Tensor(size),), {}, None, clock.time)
            clock.passes(4)
        timeline.close_step(track, step)
    found = [(row.step, row.calls, row.size) for row in rows(timeline).collectives]
    assert found == [(1, 2, 20), (2, 1, 10), (2, 1, 30)]


def test_thousands_of_thinned_out_calls_are_kept_as_one_row(
    timeline: Timeline, clock: Clock
) -> None:
    """Not one by one until the step ends: that empties the caches of the training."""
    group = Group()
    calls, track = calls_on(timeline, group), timeline.track(1)
    calls.every = 2
    reduce = Operation("all_reduce", 0)
    timeline.enter(track, timeline.phase("forward", Class.COMPUTE))
    for _ in range(collectives.MOST + 5):
        calls.issued(reduce, group, (Tensor(10),), {}, None, clock.time)
    timeline.close_step(track, 1)
    (row,) = rows(timeline).collectives
    assert (row.step, row.calls) == (1, collectives.MOST + 5)


MS = 1_000_000


@pytest.mark.parametrize("length", [1, 7, 49, 51, 400])
def test_a_step_is_in_the_file_when_it_ends_however_short_it_is(
    timeline: Timeline, clock: Clock, length: int
) -> None:
    """A kill can come at any moment behind it."""
    track, phase = timeline.track(1), timeline.phase("forward", Class.COMPUTE)
    for step in range(1, 9):
        frame = timeline.enter(track, phase)
        clock.passes(length * MS)
        timeline.leave(frame)
        timeline.close_step(track, step)
        found = read(timeline.writer.path)
        assert [row.step for row in found.steps] == list(range(1, step + 1))
        assert len(found.spans) == step


def test_calls_before_the_first_phase_belong_to_no_step(timeline: Timeline, clock: Clock) -> None:
    group = Group()
    calls, track = calls_on(timeline, group), timeline.track(1)
    begin = clock.time
    clock.passes(500)
    calls.issued(Operation("barrier", 0), group, (), {}, None, begin)  # ranks meet before training
    frame = timeline.enter_forward(track, timeline.phase("forward", Class.COMPUTE))
    clock.passes(10)
    timeline.leave(frame)
    timeline.close_step(track, 1)
    found = rows(timeline)
    assert [row.step for row in found.collectives] == [-1]
    assert [round(seconds * 1e9) for seconds in found.steps[0].classes] == [10, 0, 0, 0, 0, 0, 0, 0]


def test_a_step_that_does_not_end_does_not_gather_in_memory(
    timeline: Timeline, clock: Clock
) -> None:
    """An evaluation of hours is one."""
    track, phase = timeline.track(1), timeline.phase("evaluation", Class.OTHER)
    calls = calls_on(timeline, group := Group())
    for _ in range(3):
        timeline.leave(timeline.enter(track, phase))
    assert read(timeline.writer.path).spans == []
    clock.passes(PATIENCE)
    frame = timeline.enter(track, phase)
    assert len(read(timeline.writer.path).spans) == 3
    clock.passes(PATIENCE)
    timeline.leave(frame)
    assert len(read(timeline.writer.path).spans) == 4
    timeline.close_step(track, 1)  # does not wait for what was written a moment ago
    assert [row.step for row in read(timeline.writer.path).steps] == [1]
    reduce = Operation("all_reduce", 0)
    for _ in range(collectives.MOST):
        calls.issued(reduce, group, ([Tensor(8)],), {}, None, clock.time)
    assert len(read(timeline.writer.path).collectives) == collectives.MOST


def test_rows_say_at_most_what_they_have_room_for(timeline: Timeline, clock: Clock) -> None:
    """Micro-batches of an optimizer that never steps; calls of an endless step, thinned out."""
    calls = calls_on(timeline, group := Group())
    calls.every = 2
    track, phase = timeline.track(1), timeline.phase("forward", Class.COMPUTE)
    track.micro = spans.MOST_MICROS
    track.backward_done = True
    frame = timeline.enter_forward(track, phase)
    number = collectives.MOST_CALLS + 2
    reduce = Operation("all_reduce", 0)
    for _ in range(number):
        calls.issued(reduce, group, ([Tensor(8)],), {}, None, clock.time)
    timeline.leave(frame)
    timeline.close_step(track, 1)
    found = rows(timeline)
    assert [row.micro for row in found.spans] == [spans.MOST_MICROS]
    assert [row.calls for row in found.collectives] == [collectives.MOST_CALLS, 2]


def test_one_engine_too_many_is_refused_by_name(timeline: Timeline) -> None:
    for _ in range(spans.MOST_TRACKS):
        timeline.track(1)
    with pytest.raises(DsprofError, match="257th"):
        timeline.track(1)


def test_what_a_thread_of_its_own_waits_for_keeps_no_step_waiting(
    timeline: Timeline, clock: Clock
) -> None:
    """A checkpoint that is written in the background, with collectives of its own."""
    pytest.importorskip("torch")  # it tells whose backward a thread is in
    group, work = Group(), object()
    calls, track = calls_on(timeline, group), timeline.track(1)
    frame = timeline.enter(track, timeline.phase("forward", Class.COMPUTE))

    def aside() -> None:
        calls.issued(Operation("gather", 1), group, (), {}, work, clock.time)
        held = calls.before_wait((work,))
        clock.passes(9)
        calls.after_wait(held)

    in_a_thread(aside)
    timeline.leave(frame)
    assert (track.classes[COMPUTE], track.classes[COMMUNICATION]) == (9, 0)
    assert rows(timeline).collectives == []
    assert calls.seen == 1


def test_what_one_engine_waits_for_is_not_given_up_as_another_ends_a_later_step(
    timeline: Timeline, clock: Clock
) -> None:
    """Engines that were resumed from elsewhere count from elsewhere."""
    group, work = Group(), object()
    calls, phase = calls_on(timeline, group), timeline.phase("forward", Class.COMPUTE)
    late, early = timeline.track(1000), timeline.track(1)
    for track in (early, late):
        timeline.leave(timeline.enter(track, phase))
        timeline.close_step(track, track.step)
    frame = timeline.enter(early, phase)
    calls.issued(Operation("all_reduce", None), group, (), {}, work, clock.time)
    timeline.leave(frame)
    timeline.leave(timeline.enter(late, phase))
    timeline.close_step(late, late.step)
    frame = timeline.enter(early, phase)
    held = calls.before_wait((work,))
    clock.passes(7)
    calls.after_wait(held)
    timeline.leave(frame)
    timeline.close_step(early, early.step)
    assert [(row.step, row.blocked) for row in rows(timeline).collectives] == [(2, 7)]


def test_a_thread_that_has_the_number_of_one_that_ended_is_not_taken_for_that(
    timeline: Timeline,
) -> None:
    """Autograd's, say, behind one that saved a checkpoint."""
    said: list[tuple[int, bool]] = []

    def ask() -> None:
        said.append((_thread.get_ident(), timeline.is_elsewhere()))
        asked.set()

    asked = threading.Event()
    in_a_thread(ask)
    for turn in range(2, 50):
        asked.clear()
        _thread.start_new_thread(ask, ())
        assert asked.wait(10)
        assert len(said) == turn
        if said[-1][0] == said[0][0]:
            break
    else:
        pytest.skip("no number came again")
    assert said[0][1]
    assert not any(elsewhere for _, elsewhere in said[1:])


def test_a_phase_of_another_thread_is_no_part_of_the_step(timeline: Timeline, clock: Clock) -> None:
    """A model that answers requests while it trains: its forward is not that of training."""
    track = timeline.track(1)
    training = timeline.phase("forward", Class.COMPUTE)
    evaluating = timeline.phase("evaluation", Class.OTHER)
    frame = timeline.enter_forward(track, training)
    track.backward_done = True
    met: list[Frame | None] = []

    def aside() -> None:
        for enter, phase in ((timeline.enter, evaluating), (timeline.enter_forward, training)):
            met.append(enter(track, phase))
            clock.passes(9)
            timeline.leave(met[-1])

    in_a_thread(aside)
    assert met == [None, None]
    assert timeline.stack == [frame]
    assert (track.micro, track.backward_done) == (0, True)
    timeline.leave(frame)
    timeline.close_step(track, 1)
    assert [(row.path, row.length) for row in rows(timeline).spans] == [("forward", 18)]


def test_training_that_has_moved_to_another_thread_is_recorded_there(
    timeline: Timeline, clock: Clock
) -> None:
    """From its first phase on; later, from the end of its first step there."""
    track, phase = timeline.track(1), timeline.phase("forward", Class.COMPUTE)

    def train(*steps: int) -> None:
        for step in steps:
            frame = timeline.enter_forward(track, phase)
            clock.passes(step)
            timeline.leave(frame)
            timeline.close_step(track, step)

    in_a_thread(lambda: train(1, 2))
    train(3, 4)
    assert [row.length for row in rows(timeline).spans] == [1, 2, 4]
    assert [row.step for row in rows(timeline).steps] == [1, 2, 3, 4]
    unseen = [row.step for row in rows(timeline).steps if math.isnan(row.classes[0])]
    assert unseen == [3]


def test_training_goes_on_in_a_thread_that_has_ended_a_step_unless_a_phase_is_open(
    timeline: Timeline,
) -> None:
    """As where a pool's threads take steps in turns, or one of them evaluates as another trains."""
    track, phase = timeline.track(1), timeline.phase("forward", Class.COMPUTE)
    timeline.leave(timeline.enter(track, phase))
    timeline.close_step(track, 1)
    with ThreadPoolExecutor(1) as other:
        assert not other.submit(timeline.moves_here).result()
        other.submit(timeline.close_step, track, 2).result()
        assert timeline.moves_here()
        frame = timeline.enter(track, phase)
        assert not other.submit(timeline.moves_here).result()
        timeline.leave(frame)
        assert other.submit(timeline.moves_here).result()


def in_a_thread(action: Callable[[], None]) -> None:
    thread = threading.Thread(target=action)
    thread.start()
    thread.join()


def test_a_monitored_barrier_is_recorded_and_is_none_of_the_collectives_that_pytorch_counts(
    timeline: Timeline, clock: Clock
) -> None:
    """Gloo makes it of sends; the flight recorder has no entry for it."""
    group = Group()
    calls = calls_on(timeline, group)
    for name in ("barrier", "monitored_barrier"):
        calls.issued(Operation(name, None), group, (), {}, None, clock.time)
    assert (calls.seen, calls.sent) == (1, 0)
    assert len(rows(timeline).collectives) == 2


@pytest.mark.parametrize("inside", [True, False])
def test_training_waits_for_autograds_own_threads_and_for_no_backend_s(
    timeline: Timeline, clock: Clock, *, inside: bool
) -> None:
    """Python did not start either of them."""
    torch = pytest.importorskip("torch")
    group, work = Group(), object()
    calls, track = calls_on(timeline, group), timeline.track(1)
    frame = timeline.enter(track, timeline.phase("backward", Class.COMPUTE))
    done = threading.Event()

    def waits(*_: Any) -> None:
        calls.issued(Operation("all_reduce", 0), group, ([Tensor(8)],), {}, work, clock.time)
        held = calls.before_wait((work,))
        clock.passes(5)
        calls.after_wait(held)
        done.set()

    leaf = torch.ones(1, requires_grad=True)
    leaf.register_hook(waits)
    _thread.start_new_thread(leaf.sum().backward if inside else waits, ())
    assert done.wait(10)
    timeline.leave(frame)
    calls.finish()
    assert track.classes[COMMUNICATION] == (5 if inside else 0)
    assert [row.blocked for row in rows(timeline).collectives] == [5 if inside else 0]


def test_the_outermost_phase_is_in_the_cell_and_that_it_is_over(timeline: Timeline) -> None:
    cell, track = timeline.writer.ring.cell, timeline.track(1)
    backward = timeline.phase("backward", Class.COMPUTE)
    outer = timeline.enter(track, backward)
    since = cell[PHASE]
    assert since & (OVER | OVER - 1) == backward.id
    inner = timeline.enter(track, timeline.phase("backward/reduce", Class.COMPUTE))
    timeline.leave(inner)
    assert cell[PHASE] == since
    timeline.leave(outer)
    assert cell[PHASE] & (OVER | OVER - 1) == OVER | backward.id
    timeline.enter(track, backward)  # an exception that training caught leaves it open
    timeline.close_step(track, 1)
    assert cell[PHASE] == 0
