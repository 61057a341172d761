"""Phases that the computing stream does not mark: in a captured graph, or on another stream."""

from __future__ import annotations

import math

from dsprof.events import Class
from dsprof.hook.on_gpu.device import DeviceTimeline
from dsprof.hook.on_gpu.device_collectives import DeviceCollectives
from tests.hook.on_gpu.fakes import (
    ANOTHER,
    COMPUTING,
    MS,
    FakeStream,
    issue_aside,
    milliseconds,
    one_step,
    phase,
    rows,
    wait_for,
)
from tests.hook.test_spans import Group, in_a_thread


def test_nothing_is_recorded_or_asked_while_a_graph_is_captured(
    timeline: DeviceTimeline, stream: FakeStream
) -> None:
    track = timeline.track(1)
    one_step(timeline, stream, 1)
    stream.capturing = True
    one_step(timeline, stream, 2)
    stream.capturing = False
    stream.comes_after()
    one_step(timeline, stream, 3)
    one_step(timeline, stream, 4)
    stream.comes_after()
    timeline.drain()
    known = {row.step: not math.isnan(row.classes[0]) for row in rows(timeline).steps}
    assert known == {1: True, 2: False, 3: False, 4: True}  # 3 began inside the capture
    assert track.step == 5


def test_a_captured_collective_tells_nothing_of_streams(
    timeline: DeviceTimeline, calls: DeviceCollectives, stream: FakeStream, group: Group
) -> None:
    """A capture runs on a stream of its own, on which nothing happens yet."""
    track = timeline.track(1)
    frame = timeline.enter(track, timeline.phase("forward", Class.COMPUTE))
    stream.capturing = True
    issue_aside(calls, stream, group)
    stream.capturing = False
    stream.works(20)
    timeline.leave(frame)
    timeline.close_step(track, 1)
    stream.comes_after()
    timeline.drain()
    assert not calls.behind
    assert [call.blocked for call in rows(timeline).collectives] == [-1]
    assert milliseconds(rows(timeline).steps[0].classes)[:2] == [20, 0]


def test_a_phase_that_was_captured_leaves_its_time_to_the_rest_of_the_step(
    timeline: DeviceTimeline, stream: FakeStream
) -> None:
    track = timeline.track(1)
    phase(timeline, stream, "forward", 30, Class.COMPUTE)
    stream.capturing = True
    phase(timeline, stream, "backward", 60, Class.COMPUTE)
    stream.capturing = False
    timeline.close_step(track, 1)
    stream.comes_after()
    timeline.drain()
    assert milliseconds(rows(timeline).steps[0].classes) == [30, 0, 0, 0, 0, 0, 0, 60]
    assert [row.gpu for row in rows(timeline).spans] == [30 * MS, -1]


def test_a_phase_on_another_stream_leaves_its_time_where_it_lies(
    timeline: DeviceTimeline, stream: FakeStream
) -> None:
    track = timeline.track(1)
    outer = timeline.enter(track, timeline.phase("step", Class.OPTIMIZER))
    stream.current = ANOTHER
    phase(timeline, stream, "step/copy", 6, Class.OFFLOAD)
    stream.current = COMPUTING
    timeline.leave(outer)
    timeline.close_step(track, 1)
    stream.comes_after()
    timeline.drain()
    assert milliseconds(rows(timeline).steps[0].classes) == [0, 0, 0, 6, 0, 0, 0, 0]
    assert [row.gpu for row in rows(timeline).spans] == [-1, 6 * MS]  # how long is unknown, not 0


def test_what_is_inside_a_phase_of_unknown_length_counts_once(
    timeline: DeviceTimeline, stream: FakeStream
) -> None:
    track = timeline.track(1)
    outer = timeline.enter(track, timeline.phase("step", Class.OPTIMIZER))
    stream.works(4)
    stream.current = ANOTHER
    middle = timeline.enter(track, timeline.phase("step/copy", Class.OFFLOAD))
    stream.current = COMPUTING
    phase(timeline, stream, "step/copy/cast", 6, Class.COMPUTE)
    stream.current = ANOTHER
    timeline.leave(middle)
    stream.current = COMPUTING
    timeline.leave(outer)
    timeline.close_step(track, 1)
    stream.comes_after()
    timeline.drain()
    assert milliseconds(rows(timeline).steps[0].classes) == [6, 0, 0, 4, 0, 0, 0, 0]


def test_a_wait_on_another_stream_for_what_nobody_saw_issued_holds_up_nothing(
    timeline: DeviceTimeline, calls: DeviceCollectives, stream: FakeStream
) -> None:
    track = timeline.track(1)
    frame = timeline.enter(track, timeline.phase("backward", Class.COMPUTE))
    stream.current = ANOTHER
    wait_for(calls, stream, 8, object())
    stream.current = COMPUTING
    timeline.leave(frame)
    timeline.renumber(track, 4)
    timeline.close_step(track, 4)
    stream.comes_after()
    timeline.drain()
    assert milliseconds(rows(timeline).steps[0].classes)[:2] == [8, 0]


def test_how_long_a_call_blocked_that_ended_on_another_stream_is_unknown(
    timeline: DeviceTimeline, calls: DeviceCollectives, stream: FakeStream, group: Group
) -> None:
    track = timeline.track(1)
    frame = timeline.enter(track, timeline.phase("backward", Class.COMPUTE))
    calls.wait_begins()
    stream.works(15)
    stream.current = ANOTHER
    calls.by_others("all_reduce", group, 0, -1, 3, 3000)
    stream.current = COMPUTING
    timeline.leave(frame)
    timeline.close_step(track, 1)
    stream.comes_after()
    timeline.drain()
    assert [call.blocked for call in rows(timeline).collectives] == [-1]


def test_an_optimizer_on_a_stream_of_its_own_leaves_forward_on_the_computing_one(
    timeline: DeviceTimeline, stream: FakeStream
) -> None:
    """The step ends there; what comes next waits for that stream."""
    track = timeline.track(1)
    for number in (1, 2, 3):
        frame = timeline.enter_forward(track, timeline.phase("forward", Class.COMPUTE))
        stream.works(30)
        timeline.leave(frame)
        stream.current = ANOTHER
        phase(timeline, stream, "step", 6, Class.OPTIMIZER)
        timeline.close_step(track, number)
        stream.current = COMPUTING
    stream.comes_after()
    timeline.drain()
    found = [milliseconds(step.classes) for step in rows(timeline).steps]
    assert found == [[30, 0, 0, 0, 0, 0, 0, 6]] * 3


def test_a_forward_inside_a_phase_or_of_another_thread_does_not_change_the_computing_stream(
    timeline: DeviceTimeline, stream: FakeStream
) -> None:
    """As a teacher's, on a stream of its own, and a loader's that embeds its batches."""
    track = timeline.track(1)
    forward = timeline.phase("forward", Class.COMPUTE)
    outer = timeline.enter_forward(track, forward)
    stream.current = ANOTHER
    timeline.leave(timeline.enter_forward(track, forward))
    stream.current = COMPUTING
    stream.works(30)
    timeline.leave(outer)
    stream.current = ANOTHER
    in_a_thread(lambda: timeline.leave(timeline.enter_forward(track, forward)))
    stream.current = COMPUTING
    timeline.close_step(track, 1)
    stream.comes_after()
    timeline.drain()
    assert milliseconds(rows(timeline).steps[0].classes) == [30, 0, 0, 0, 0, 0, 0, 0]


def test_a_forward_on_another_stream_than_before_is_on_the_computing_one(
    timeline: DeviceTimeline, stream: FakeStream
) -> None:
    """As after the first steps, which warm up for a graph on a stream of their own."""
    track = timeline.track(1)
    for number, current in enumerate((ANOTHER, ANOTHER, COMPUTING, COMPUTING), 1):
        stream.current = current
        frame = timeline.enter_forward(track, timeline.phase("forward", Class.COMPUTE))
        stream.works(30)
        timeline.leave(frame)
        timeline.close_step(track, number)
    stream.comes_after()
    timeline.drain()
    known = {row.step: not math.isnan(row.classes[0]) for row in rows(timeline).steps}
    assert known == {1: True, 2: True, 3: False, 4: True}
