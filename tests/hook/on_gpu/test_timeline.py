"""When a step of the device is written, and what its phases are given."""

from __future__ import annotations

import math

import pytest

from dsprof import load
from dsprof.analysis.lanes import lanes
from dsprof.events import Class
from dsprof.hook.on_gpu import device
from dsprof.hook.on_gpu.device import DeviceTimeline
from dsprof.hook.on_gpu.device_collectives import DeviceCollectives
from dsprof.recording import ON_DEVICE
from tests.hook.on_gpu.fakes import (
    MS,
    Event,
    FakeStream,
    backward_with,
    milliseconds,
    one_step,
    phase,
    rows,
)
from tests.hook.test_spans import Clock, Group


def test_a_step_is_written_when_the_device_has_passed_it_and_not_before(
    timeline: DeviceTimeline, stream: FakeStream
) -> None:
    timeline.track(1)
    one_step(timeline, stream, 1)
    assert rows(timeline).steps == []
    assert rows(timeline).spans == []
    stream.comes_after()
    one_step(timeline, stream, 2)
    (step,) = rows(timeline).steps
    assert (step.step, step.length) == (1, 100 * MS)
    assert milliseconds(step.classes) == [90, 0, 0, 6, 0, 0, 0, 4]
    assert [(row.path, row.gpu) for row in rows(timeline).spans] == [
        ("forward", 30 * MS),
        ("backward", 60 * MS),
        ("step", 6 * MS),
    ]


def test_a_phase_of_the_device_is_where_the_device_came_to_it(
    timeline: DeviceTimeline, stream: FakeStream, clock: Clock
) -> None:
    """The host needs no time; the device waited for it when the step began."""
    timeline.track(1)
    begun = clock.time
    one_step(timeline, stream, 1)
    clock.passes(100 * MS)
    stream.comes_after()
    timeline.drain()
    found = rows(timeline)
    assert found.steps[0].begin == begun
    assert [(row.gpu_begin - begun) // MS for row in found.spans] == [0, 34, 94]
    assert {row.begin for row in found.spans} == {begun}, "the host's"


def test_a_pause_of_the_host_as_its_first_step_begins_moves_nothing_of_the_device(
    timeline: DeviceTimeline,
    stream: FakeStream,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each mark takes the host a while, in which the device is idle."""
    record = Event.record

    def slowly(event: Event, stream: FakeStream) -> None:
        record(event, stream)
        clock.passes(20 * MS)
        stream.works(20)

    monkeypatch.setattr(timeline.marks, "_cuda", stream.cuda._replace(record=slowly))
    timeline.track(1)
    begun = clock.time
    one_step(timeline, stream, 1)
    clock.passes(400 * MS)
    stream.comes_after()
    timeline.drain()
    assert rows(timeline).steps[0].begin == begun


def test_a_step_of_the_device_begins_where_it_ended_the_one_before(
    timeline: DeviceTimeline, stream: FakeStream, clock: Clock
) -> None:
    timeline.track(1)
    begun = clock.time
    for number in (1, 2, 3):
        one_step(timeline, stream, number)
        clock.passes(10 * MS)  # the host is ahead by 90 ms more with each step
    clock.passes(300 * MS)
    stream.comes_after()
    timeline.drain()
    assert [(row.begin - begun) // MS for row in rows(timeline).steps] == [0, 100, 200]


def test_a_reader_finds_the_phases_where_the_device_was(
    timeline: DeviceTimeline, stream: FakeStream, clock: Clock
) -> None:
    timeline.writer.config("phases_on", "gpu")
    timeline.track(1)
    for number in (1, 2, 3):
        one_step(timeline, stream, number)
    clock.passes(300 * MS)
    stream.comes_after()
    timeline.drain()
    timeline.finish()
    timeline.writer.close()
    run = load(timeline.writer.path)
    (found,) = lanes(run.moments(run.steps[run.steps["step"] == 2])).values()
    assert [(one.path, round(one.begin / MS), round(one.end / MS)) for one in found] == [
        ("forward", 0, 30), ("", 30, 34), ("backward", 34, 94), ("step", 94, 100),
    ]  # fmt: skip


def test_engines_that_take_turns_on_a_stream_share_its_clock(
    timeline: DeviceTimeline, stream: FakeStream, clock: Clock
) -> None:
    """The host came to the second engine's forward when the device had long been idle."""
    actor, critic = timeline.track(1), timeline.track(1)
    for track, name in ((actor, "actor"), (critic, "critic"), (actor, "actor again")):
        frame = timeline.enter(track, timeline.phase(name, Class.COMPUTE))
        clock.passes(5 * MS)
        stream.works(50)
        timeline.leave(frame)
        timeline.close_step(track, track.step)
    clock.passes(400 * MS)
    stream.comes_after()
    timeline.drain()
    one, other, again = rows(timeline).spans
    assert (one.path, other.path, again.path) == ("actor", "critic", "actor again")
    assert other.gpu_begin - one.gpu_begin == 50 * MS
    assert again.gpu_begin - other.gpu_begin == 50 * MS
    assert other.begin - one.begin == 5 * MS, "the host's"


def test_where_the_device_waited_for_the_host_it_began_with_it(
    timeline: DeviceTimeline, stream: FakeStream, clock: Clock
) -> None:
    """The host came to the second phase 50 ms after the device had done all else: so the device
    began the step later than the host's beginning of it says, and that is seen there.
    """
    track = timeline.track(1)
    timeline.begin(track)
    begun = clock.time
    stream.works(20)
    clock.passes(90 * MS)  # the device did not work at once: it came to these 20 ms 70 ms later
    phase(timeline, stream, "forward", 30, Class.COMPUTE)
    timeline.close_step(track, 1)
    clock.passes(200 * MS)
    stream.comes_after()
    timeline.drain()
    found = rows(timeline)
    assert (found.steps[0].begin - begun) // MS == 70
    assert (found.spans[0].gpu_begin - begun) // MS == 90


def test_the_device_has_ended_a_step_by_the_time_it_says_so(
    timeline: DeviceTimeline, stream: FakeStream, clock: Clock
) -> None:
    """The clocks of device and host run at slightly different rates."""
    timeline.track(1)
    for number in (1, 2, 3):
        begun = clock.time
        one_step(timeline, stream, number)
        clock.passes(99 * MS)  # and the device says that it took 100
        stream.comes_after()
        timeline.drain()
    assert [(row.begin - begun) // MS for row in rows(timeline).steps] == [-198, -100, -1]


def test_a_stall_is_where_the_stream_came_to_the_wait(
    timeline: DeviceTimeline,
    calls: DeviceCollectives,
    stream: FakeStream,
    group: Group,
    clock: Clock,
) -> None:
    track = timeline.track(1)
    begun = clock.time
    phase(timeline, stream, "forward", 30, Class.COMPUTE)
    backward_with(timeline, calls, stream, group, 12)
    timeline.close_step(track, 1)
    clock.passes(200 * MS)
    stream.comes_after()
    timeline.drain()
    (call,) = rows(timeline).collectives
    assert (call.wait - begun) // MS == 80
    assert call.flags & ON_DEVICE


def test_a_phase_that_turns_out_to_be_another_takes_its_device_time_along(
    timeline: DeviceTimeline, stream: FakeStream
) -> None:
    track = timeline.track(1)
    evaluating = timeline.phase("evaluation", Class.OTHER)
    frame = timeline.enter(track, evaluating)
    assert frame is not None
    stream.works(30)
    timeline.leave(frame)
    assert timeline.revise(frame, timeline.phase("forward", Class.COMPUTE))
    timeline.close_step(track, 1)
    stream.comes_after()
    timeline.drain()
    (step,) = rows(timeline).steps
    assert milliseconds(step.classes) == [30, 0, 0, 0, 0, 0, 0, 0]
    assert [(row.path, row.gpu) for row in rows(timeline).spans] == [("forward", 30 * MS)]


def test_the_device_is_asked_once_a_step_while_it_is_behind(
    timeline: DeviceTimeline, stream: FakeStream
) -> None:
    timeline.track(1)
    for number in range(1, 6):
        one_step(timeline, stream, number)
    assert stream.queries == 5
    stream.comes_after()
    timeline.drain()
    assert [row.step for row in rows(timeline).steps] == [1, 2, 3, 4, 5]


def test_phases_inside_take_their_device_time_from_those_that_hold_them(
    timeline: DeviceTimeline, stream: FakeStream
) -> None:
    track = timeline.track(1)
    outer = timeline.enter(track, timeline.phase("step", Class.OPTIMIZER))
    stream.works(5)
    inner = timeline.enter(track, timeline.phase("step/reduce", Class.COMPUTE))
    stream.works(20)
    timeline.leave(inner)
    timeline.leave(outer)
    timeline.close_step(track, 1)
    stream.comes_after()
    timeline.drain()
    (step,) = rows(timeline).steps
    assert milliseconds(step.classes) == [20, 0, 0, 5, 0, 0, 0, 0]


def test_a_phase_that_turns_out_to_be_another_once_it_is_written_leaves_no_split(
    timeline: DeviceTimeline, stream: FakeStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device, "MOST", 1)
    stream.done = 1_000
    track = timeline.track(1)
    frame = timeline.enter(track, timeline.phase("forward", Class.COMPUTE))
    stream.works(30)
    timeline.leave(frame)
    assert [row.gpu for row in rows(timeline).spans] == [30 * MS]
    assert frame is not None
    assert not timeline.revise(frame, timeline.phase("evaluation", Class.OTHER))
    timeline.close_step(track, 1)
    timeline.drain()
    assert all(map(math.isnan, rows(timeline).steps[0].classes))


def test_a_step_of_which_part_went_unseen_has_no_split_on_a_device_either(
    timeline: DeviceTimeline, stream: FakeStream
) -> None:
    """As one whose forward, backward and step are compiled together: its time is not "other"."""
    track = timeline.track(1)
    for number in (1, 2):
        track.blind = number == 1
        one_step(timeline, stream, number)
    stream.comes_after()
    timeline.drain()
    first, second = rows(timeline).steps
    assert all(map(math.isnan, first.classes))
    assert (first.length, milliseconds(second.classes)[0]) == (100 * MS, 90)


def test_a_step_that_gets_another_number_takes_what_waits_for_the_device_along(
    timeline: DeviceTimeline, stream: FakeStream
) -> None:
    actor, critic = timeline.track(1), timeline.track(1)
    for track in (actor, critic):
        timeline.leave(timeline.enter(track, timeline.phase("load", Class.CHECKPOINT)))
    timeline.renumber(actor, 4)
    timeline.close_step(actor, 4)
    timeline.close_step(critic, 1)
    stream.comes_after()
    timeline.drain()
    assert [(row.engine, row.step) for row in rows(timeline).spans] == [(0, 4), (1, 1)]
