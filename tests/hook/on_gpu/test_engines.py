"""Several engines that take turns on one stream."""

from __future__ import annotations

from itertools import pairwise

import pytest

from dsprof.events import Class
from dsprof.hook.calls.operations import Operation
from dsprof.hook.on_gpu import device
from dsprof.hook.on_gpu.device import DeviceTimeline
from dsprof.hook.on_gpu.device_collectives import DeviceCollectives
from dsprof.hook.spans import Phase, Track
from tests.hook.on_gpu.fakes import (
    ANOTHER,
    COMPUTING,
    MS,
    ON_GPU,
    FakeStream,
    milliseconds,
    rows,
)
from tests.hook.test_spans import Clock, Group


def test_two_engines_keep_their_steps_apart(timeline: DeviceTimeline, stream: FakeStream) -> None:
    actor, critic = timeline.track(1), timeline.track(1)
    for track, ms in ((actor, 10), (critic, 20), (actor, 30)):
        frame = timeline.enter(track, timeline.phase("forward", Class.COMPUTE))
        stream.works(ms)
        timeline.leave(frame)
    timeline.close_step(actor, 1)
    timeline.close_step(critic, 1)
    stream.comes_after()
    timeline.drain()
    found = {row.engine: (milliseconds(row.classes)[0], row.length) for row in rows(timeline).steps}
    assert found == {0: (40, 40 * MS), 1: (20, 50 * MS)}


def test_turns_of_another_engine_are_no_part_of_a_step_of_the_device(
    timeline: DeviceTimeline, stream: FakeStream, clock: Clock
) -> None:
    """The same program as by the host's clock, which the device follows a little later."""
    begun = clock.time
    actor, critic = timeline.track(1), timeline.track(1)
    for number in (1, 2, 3):
        for track, ms in ((actor, 10), (critic, 20), (critic, 20)):
            frame = timeline.enter(track, timeline.phase("forward", Class.COMPUTE))
            stream.works(ms)
            clock.passes(ms * MS)
            timeline.leave(frame)
            stream.works(1)
            clock.passes(MS)
        for track in (critic, actor):
            frame = timeline.enter(track, timeline.phase("step", Class.OPTIMIZER))
            stream.works(3)
            clock.passes(3 * MS)
            timeline.leave(frame)
            timeline.close_step(track, number)
    stream.comes_after()
    timeline.drain()
    steps = rows(timeline).steps
    assert [step.length // MS for step in steps if step.engine == 0] == [10 + 3] * 3
    critics = [step for step in steps if step.engine == 1]
    assert [step.length // MS for step in critics] == [45, 46, 46]  # the first: with its forward
    assert [milliseconds(step.classes) for step in critics[1:]] == [[40, 0, 0, 3, 0, 0, 0, 3]] * 2
    ends = [step.begin + step.length for step in steps if step.engine == 0]
    assert [end - before for before, end in pairwise([begun, *ends])] == [59 * MS] * 3


def test_a_turn_lasts_until_its_step_ends_also_behind_what_another_stream_does(
    timeline: DeviceTimeline, stream: FakeStream
) -> None:
    """The turn is none of the other engine's step, whatever lies last in it."""
    actor, critic = timeline.track(1), timeline.track(1)
    forward, step = timeline.phase("forward", Class.COMPUTE), timeline.phase("step", Class.OTHER)

    def runs(track: Track, what: Phase, ms: int) -> None:
        frame = timeline.enter(track, what)
        stream.works(ms)
        timeline.leave(frame)

    runs(actor, forward, 10)
    runs(critic, forward, 20)
    stream.current = ANOTHER
    runs(critic, step, 0)
    stream.current = COMPUTING
    runs(actor, forward, 10)
    timeline.close_step(actor, 1)
    runs(critic, step, 3)
    stream.works(5)
    timeline.close_step(critic, 1)
    runs(actor, forward, 10)
    timeline.close_step(actor, 2)
    stream.comes_after()
    timeline.drain()
    lengths = [(row.step, row.length // MS) for row in rows(timeline).steps if row.engine == 0]
    assert lengths == [(1, 20), (2, 10)]


def test_a_turn_of_more_marks_than_there_are_events_is_no_part_of_the_other_s_step(
    timeline: DeviceTimeline, stream: FakeStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device, "OFTEN", 8)
    stream.done = 1_000
    actor, critic = timeline.track(1), timeline.track(1)
    forward = timeline.phase("forward", Class.COMPUTE)
    for track in (actor, *[critic] * 60, actor):
        frame = timeline.enter(track, forward)
        stream.works(10)
        timeline.leave(frame)
    timeline.close_step(actor, 1)
    timeline.drain()
    (step,) = rows(timeline).steps
    assert (step.length, milliseconds(step.classes)) == (20 * MS, [20, 0, 0, 0, 0, 0, 0, 0])


def test_a_turn_begins_where_the_other_engine_last_ended_a_phase_whatever_was_read_before(
    timeline: DeviceTimeline, stream: FakeStream
) -> None:
    stream.done = 1_000
    actor, critic = timeline.track(1), timeline.track(1)
    for track in (actor, actor, critic, actor):
        frame = timeline.enter(track, timeline.phase("forward", Class.COMPUTE))
        stream.works(10)
        timeline.leave(frame)
        if not timeline._came:
            timeline._read_on()
    timeline.close_step(actor, 1)
    timeline.drain()
    assert rows(timeline).steps[0].length == 30 * MS


def test_turns_of_another_engine_are_no_part_of_a_step_that_the_device_does_not_reach_either(
    timeline: DeviceTimeline,
    calls: DeviceCollectives,
    stream: FakeStream,
    group: Group,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By the host's clock: the turn lasts until the call behind its last phase is over."""
    monkeypatch.setattr(device, "PATIENCE", 0.0)
    actor, critic = timeline.track(1), timeline.track(1)
    begun = clock.time
    for track, ms in ((actor, 10), (critic, 20)):
        frame = timeline.enter(track, timeline.phase("forward", Class.COMPUTE))
        clock.passes(ms * MS)
        timeline.leave(frame)
    calls.wait_begins()
    clock.passes(5 * MS)
    calls.issued(Operation("all_reduce", 0), group, ([ON_GPU],), {}, None, 0)
    frame = timeline.enter(actor, timeline.phase("forward", Class.COMPUTE))
    clock.passes(10 * MS)
    timeline.leave(frame)
    stream.works(1)
    timeline.close_step(actor, 1)
    timeline.finish()
    (step,) = rows(timeline).steps
    assert (step.begin - begun, step.length) == (25 * MS, 20 * MS)
