"""Stalls of the stream at waits are exposed communication."""

from __future__ import annotations

from typing import Any

import pytest

from dsprof.events import Class
from dsprof.hook.calls.operations import Operation
from dsprof.hook.on_gpu import device
from dsprof.hook.on_gpu.device import DeviceTimeline
from dsprof.hook.on_gpu.device_collectives import DeviceCollectives
from tests.hook.on_gpu.fakes import (
    MS,
    ON_GPU,
    FakeStream,
    Torch,
    backward_with,
    issue_aside,
    milliseconds,
    rows,
    wait_for,
)
from tests.hook.test_spans import Group, in_a_thread


def test_a_stall_of_the_stream_at_a_wait_is_exposed_communication(
    timeline: DeviceTimeline, calls: DeviceCollectives, stream: FakeStream, group: Group
) -> None:
    track = timeline.track(1)
    backward_with(timeline, calls, stream, group, 12)
    timeline.close_step(track, 1)
    stream.comes_after()
    timeline.drain()
    (step,), (call,) = rows(timeline).steps, rows(timeline).collectives
    assert milliseconds(step.classes) == [50, 12, 0, 0, 0, 0, 0, 0]
    assert (call.path, call.op, call.blocked, call.size) == (
        "backward", "all_reduce", 12 * MS, 4096,
    )  # fmt: skip


def test_a_collective_on_the_computing_stream_is_exposed_whole(
    timeline: DeviceTimeline, calls: DeviceCollectives, stream: FakeStream, group: Group
) -> None:
    """As torch issues it since 2.8 without `async_op`: no Work, nothing to wait for."""
    track = timeline.track(1)
    frame = timeline.enter(track, timeline.phase("forward", Class.COMPUTE))
    calls.wait_begins()
    stream.works(9)
    calls.issued(Operation("all_reduce", 0), group, ([ON_GPU],), {}, None, 0)
    timeline.leave(frame)
    timeline.close_step(track, 1)
    stream.comes_after()
    timeline.drain()
    assert milliseconds(rows(timeline).steps[0].classes)[:2] == [0, 9]
    assert rows(timeline).collectives[0].blocked == 9 * MS


def test_what_nobody_waits_for_is_hidden(
    timeline: DeviceTimeline, calls: DeviceCollectives, stream: FakeStream, group: Group
) -> None:
    track = timeline.track(1)
    frame = timeline.enter(track, timeline.phase("backward", Class.COMPUTE))
    calls.issued(Operation("all_reduce", 0), group, ([ON_GPU],), {}, Group(), 0)
    stream.works(50)
    timeline.leave(frame)
    timeline.close_step(track, 1)
    calls.finish()
    stream.comes_after()
    timeline.finish()
    assert milliseconds(rows(timeline).steps[0].classes) == [50, 0, 0, 0, 0, 0, 0, 0]
    assert [call.blocked for call in rows(timeline).collectives] == [0]


def test_thinned_calls_of_a_step_are_one_row_with_all_they_blocked(
    timeline: DeviceTimeline, calls: DeviceCollectives, stream: FakeStream, group: Group
) -> None:
    track = timeline.track(1)
    calls.every = 4
    for stall in (3, 5):
        backward_with(timeline, calls, stream, group, stall)
    timeline.close_step(track, 1)
    stream.comes_after()
    timeline.drain()
    (call,) = rows(timeline).collectives
    assert (call.calls, call.blocked, call.size) == (2, 8 * MS, 4096)
    assert milliseconds(rows(timeline).steps[0].classes)[:2] == [100, 8]


def test_thinned_calls_of_a_step_that_is_written_in_pieces_are_counted_once(
    timeline: DeviceTimeline,
    calls: DeviceCollectives,
    stream: FakeStream,
    group: Group,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(device, "MOST", 4)
    stream.done = 1_000
    track = timeline.track(1)
    calls.every = 4
    for stall in (3, 5, 7):
        backward_with(timeline, calls, stream, group, stall)
    timeline.close_step(track, 1)
    timeline.drain()
    found = rows(timeline).collectives
    assert sum(call.calls for call in found) == 3
    assert sum(call.blocked for call in found) == 15 * MS


def test_a_sum_of_calls_has_their_mean_size_and_no_stall_if_one_is_unknown() -> None:
    sums: dict[Any, list[int]] = {}
    place = device.CALL_AT
    for size, blocked in ((100, 3), (200, -1), (600, 5)):
        row = [0] * (max(place.values()) + 1)
        row[place["size"]], row[place["blocked"]], row[place["count"]] = size, blocked, 1
        device._add(sums, row)
    (total,) = sums.values()
    assert [total[place[name]] for name in ("count", "size", "blocked")] == [3, 300, -1]


def test_ddp_s_reducer_is_charged_what_lies_between_its_two_callbacks(
    timeline: DeviceTimeline, calls: DeviceCollectives, stream: FakeStream, group: Group
) -> None:
    track = timeline.track(1)
    frame = timeline.enter(track, timeline.phase("backward", Class.COMPUTE))
    stream.works(40)
    calls.wait_begins()
    stream.works(15)
    calls.by_others("all_reduce", group, 0, -1, 3, 3000)
    timeline.leave(frame)
    timeline.close_step(track, 1)
    stream.comes_after()
    timeline.drain()
    (call,) = rows(timeline).collectives
    assert (call.calls, call.blocked) == (3, 15 * MS)
    assert milliseconds(rows(timeline).steps[0].classes)[:2] == [40, 15]
    for _ in range(2):  # micro-batches
        calls.by_others("all_reduce", group, 0, -1, 3, 3000)
    timeline.close_step(track, 2)
    stream.comes_after()
    timeline.drain()
    assert [call.calls for call in rows(timeline).collectives] == [3, 3, 3]


def test_a_wait_for_what_nobody_saw_issued_still_counts(
    timeline: DeviceTimeline, calls: DeviceCollectives, stream: FakeStream
) -> None:
    track = timeline.track(1)
    frame = timeline.enter(track, timeline.phase("backward", Class.COMPUTE))
    wait_for(calls, stream, 8, object())
    timeline.leave(frame)
    timeline.close_step(track, 1)
    stream.comes_after()
    timeline.drain()
    assert rows(timeline).collectives == []
    assert milliseconds(rows(timeline).steps[0].classes)[:2] == [0, 8]


def test_what_a_thread_of_its_own_does_keeps_no_step_waiting(
    timeline: DeviceTimeline,
    calls: DeviceCollectives,
    stream: FakeStream,
    group: Group,
    torch_cuda: Torch,
) -> None:
    """A checkpoint that is written in the background, with collectives of its own, while one of
    training's is handed over."""
    pytest.importorskip("torch")  # it tells whose backward a thread is in
    track = timeline.track(1)
    frame = timeline.enter(track, timeline.phase("backward", Class.COMPUTE))

    def aside() -> None:
        work = Group()
        calls.wait_begins()
        calls.issued(Operation("gather", 1), group, (), {}, work, 0)
        wait_for(calls, stream, 40, work)
        torch_cuda.synchronize()

    issue_aside(calls, stream, group)
    in_a_thread(aside)
    assert calls.unawaited()
    calls.wait_begins()
    stream.works(3)
    in_a_thread(aside)
    calls.by_others("all_reduce", group, 0, -1, 1, 8)
    timeline.leave(frame)
    timeline.close_step(track, 1)
    calls.finish()
    stream.comes_after()
    timeline.finish()
    found = rows(timeline)
    assert milliseconds(found.steps[0].classes)[:2] == [40 + 2, 3 + 40 + 2]
    assert [row.path for row in found.spans] == ["backward"]
