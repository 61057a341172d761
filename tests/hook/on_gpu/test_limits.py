"""More marks than the ring has events, and devices that never come to them, or fail."""

from __future__ import annotations

import math

import pytest

from dsprof.events import Class
from dsprof.hook.on_gpu import device
from dsprof.hook.on_gpu.cuda import ASIDE, NONE, Marks
from dsprof.hook.on_gpu.device import DeviceTimeline
from tests.hook.on_gpu.fakes import (
    ANOTHER,
    MS,
    Event,
    FakeStream,
    milliseconds,
    one_step,
    phase,
    rows,
)
from tests.hook.rows import read
from tests.hook.test_spans import Clock


def test_a_step_with_more_marks_than_the_ring_holds_has_no_split(
    timeline: DeviceTimeline, stream: FakeStream
) -> None:
    track = timeline.track(1)
    for _ in range(40):
        phase(timeline, stream, "forward", 1, Class.COMPUTE)
    timeline.close_step(track, 1)
    stream.comes_after()
    one_step(timeline, stream, 2)
    stream.comes_after()
    timeline.drain()
    first, second = rows(timeline).steps
    assert all(map(math.isnan, first.classes))
    assert milliseconds(second.classes)[0] == 90


@pytest.mark.parametrize(("most", "written"), [(50, 100), (10, 120)])
def test_a_step_without_an_end_does_not_gather_in_memory(
    timeline: DeviceTimeline,
    stream: FakeStream,
    monkeypatch: pytest.MonkeyPatch,
    most: int,
    written: int,
) -> None:
    """Whether or not the event is still known with which it began."""
    monkeypatch.setattr(device, "MOST", most)
    timeline.track(1)
    for _ in range(120):
        phase(timeline, stream, "evaluation", 1, Class.OTHER)
    assert len(read(timeline.writer.path).spans) == written
    timeline.close_step(timeline.tracks[0], 1)
    stream.comes_after()
    timeline.drain()
    found = rows(timeline)
    assert len(found.spans) == 120
    assert all(map(math.isnan, found.steps[0].classes))


@pytest.mark.parametrize("most", [50, 5000])
def test_a_step_of_more_marks_than_there_are_events_is_known_all_the_same(
    timeline: DeviceTimeline,
    stream: FakeStream,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    most: int,
) -> None:
    """As with ZeRO-3, which waits for the parameters of each layer, in many micro-batches."""
    monkeypatch.setattr(device, "MOST", most)
    monkeypatch.setattr(device, "OFTEN", 8)
    begun = clock.time
    track = timeline.track(1)
    forward = timeline.phase("forward", Class.COMPUTE)
    waiting = timeline.phase("forward/waiting", Class.COMMUNICATION)
    for number in range(1, 4):
        outer = timeline.enter(track, forward)
        for layer in range(200):
            stream.works(2)
            inner = timeline.enter(track, waiting)
            stream.works(1)
            timeline.leave(inner)
            if layer % 5 == 4:  # the host is ahead by five layers
                stream.comes_after()
                clock.passes(5 * 3 * MS)
        timeline.leave(outer)
        timeline.close_step(track, number)
    stream.comes_after()
    timeline.drain()
    found = rows(timeline)
    assert [milliseconds(step.classes)[:2] for step in found.steps] == [[400, 200]] * 3
    assert [(step.begin - begun) // (600 * MS) for step in found.steps] == [0, 1, 2]
    inside = [row for row in found.spans if row.path == "forward/waiting"]
    assert [row.gpu for row in inside] == [MS] * 600
    assert {(row.gpu_begin - begun) // MS - 3 * place for place, row in enumerate(inside)} == {2}


def test_nothing_is_read_between_marks_of_two_streams() -> None:
    stream = FakeStream()
    marks = Marks(stream.cuda, 8)
    first = marks.mark()
    stream.works(3)
    stream.current = ANOTHER
    marks.follow()
    second = marks.mark()
    stream.comes_after()
    assert marks.since(first, second) is None


def test_marks_that_are_lost_or_none_have_nothing_between_them() -> None:
    stream = FakeStream()
    marks = Marks(stream.cuda, 4)
    first = marks.mark()
    stream.works(3)
    second = marks.mark()
    stream.comes_after()
    assert marks.since(first, second) == 3 * MS
    assert (marks.since(NONE, second), marks.since(first, ASIDE)) == (None, None)
    for _ in range(3):
        marks.mark()
    assert marks.since(first, second) is None
    assert marks.is_past(first)


def test_at_the_end_what_the_device_does_not_reach_is_written_without_a_split(
    timeline: DeviceTimeline, stream: FakeStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device, "PATIENCE", 0.0)
    timeline.track(1)
    one_step(timeline, stream, 1)
    stream.comes_after()
    one_step(timeline, stream, 2)
    phase(timeline, stream, "forward", 30, Class.COMPUTE)
    timeline.finish()
    first, second = rows(timeline).steps
    assert milliseconds(first.classes)[0] == 90
    assert all(map(math.isnan, second.classes))
    assert [row.gpu for row in rows(timeline).spans][3:] == [-1, -1, -1, -1]


@pytest.mark.parametrize("seen", ["by a query", "by a mark"])
def test_what_a_device_did_that_failed_is_written_without_a_split(
    timeline: DeviceTimeline, stream: FakeStream, monkeypatch: pytest.MonkeyPatch, seen: str
) -> None:
    """Training sees the same error, and raises it."""

    def fails(*_: object) -> bool:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(device, "PATIENCE", 0.0)
    timeline.track(1)
    one_step(timeline, stream, 1)
    stream.comes_after()
    one_step(timeline, stream, 2)
    for name in ("query", "elapsed_time"):
        monkeypatch.setattr(Event, name, fails)
    if seen == "by a mark":
        monkeypatch.setattr(timeline.marks, "_cuda", stream.cuda._replace(capturing=fails))
    one_step(timeline, stream, 3)
    timeline.finish()
    known = {row.step: not math.isnan(row.classes[0]) for row in rows(timeline).steps}
    assert known == {1: True, 2: False, 3: False}
    assert [row.gpu for row in rows(timeline).spans][3:] == [-1] * 6


def test_steps_that_the_device_is_far_behind_with_do_not_gather_in_memory(
    timeline: DeviceTimeline, stream: FakeStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device, "AHEAD", 2)
    timeline.track(1)
    for number in range(1, 5):
        one_step(timeline, stream, number)
    assert [row.step for row in rows(timeline).steps] == [1, 2]
