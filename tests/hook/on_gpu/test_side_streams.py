"""Communication on streams beside the computing one, and who waits for those."""

from __future__ import annotations

from typing import Any

import pytest

from dsprof.events import Class
from dsprof.hook.calls.operations import Operation
from dsprof.hook.guard import Guard
from dsprof.hook.on_gpu import device_collectives
from dsprof.hook.on_gpu.device import DeviceTimeline
from dsprof.hook.on_gpu.device_collectives import DeviceCollectives
from dsprof.hook.on_gpu.streams import Streams
from dsprof.hook.patches import Patches
from tests.hook.on_gpu.fakes import (
    ANOTHER,
    COMPUTING,
    MS,
    ON_GPU,
    FakeStream,
    OfAnAccelerator,
    SideEvent,
    SideStream,
    Torch,
    issue_aside,
    milliseconds,
    rows,
    wait_for,
    waits,
)
from tests.hook.test_spans import Clock, Group


@pytest.mark.usefixtures("torch_cuda")
def test_the_computing_stream_that_waits_for_a_communicating_one_is_communication(
    timeline: DeviceTimeline, calls: DeviceCollectives, stream: FakeStream, group: Group
) -> None:
    track = timeline.track(1)
    frame = timeline.enter(track, timeline.phase("forward", Class.COMPUTE))
    issue_aside(calls, stream, group)
    stream.works(40)
    SideStream(COMPUTING, stream).wait_stream(SideStream(ANOTHER, stream, stall=7))
    SideStream(COMPUTING, stream).wait_stream(SideStream(3, stream, stall=3))  # copies, say
    SideStream(ANOTHER, stream).wait_stream(SideStream(COMPUTING, stream))
    timeline.leave(frame)
    timeline.close_step(track, 1)
    stream.comes_after()
    timeline.drain()
    found = rows(timeline)
    assert milliseconds(found.steps[0].classes)[:2] == [43, 7]
    assert waits(found) == [("forward/all_reduce", 7)]
    assert [row.path for row in found.spans] == ["forward"]


@pytest.mark.usefixtures("torch_cuda")
def test_a_wait_for_copies_does_not_hide_the_wait_for_communication_behind_it(
    timeline: DeviceTimeline, calls: DeviceCollectives, stream: FakeStream, group: Group
) -> None:
    """Neither names the stream that waits: it is the current one."""
    track = timeline.track(1)
    frame = timeline.enter(track, timeline.phase("forward", Class.COMPUTE))
    issue_aside(calls, stream, group)
    SideStream(3, stream, stall=3).record_event().wait()
    SideStream(ANOTHER, stream, stall=7).record_event().wait()
    timeline.leave(frame)
    timeline.close_step(track, 1)
    stream.comes_after()
    timeline.drain()
    assert milliseconds(rows(timeline).steps[0].classes)[:2] == [3, 7]


def test_what_the_device_idles_at_a_synchronisation_is_told(
    timeline: DeviceTimeline,
    calls: DeviceCollectives,
    stream: FakeStream,
    group: Group,
    torch_cuda: Torch,
) -> None:
    track = timeline.track(1)
    torch_cuda.synchronize()  # before the first step: nobody's
    frame = timeline.enter(track, timeline.phase("step", Class.OPTIMIZER))
    torch_cuda.synchronize()
    issue_aside(calls, stream, group)
    torch_cuda.synchronize()
    timeline.leave(frame)
    timeline.close_step(track, 1)
    stream.comes_after()
    timeline.drain()
    found = rows(timeline)
    assert [row.path for row in found.spans] == ["step/synchronize", "step"]
    assert waits(found) == [("step/all_reduce", 2)]
    assert milliseconds(found.steps[0].classes) == [0, 2, 0, 0, 0, 0, 0, 2]


@pytest.mark.parametrize("inside", [COMPUTING, ANOTHER])
@pytest.mark.parametrize("of", ["stream", "event"])
@pytest.mark.usefixtures("torch_cuda")
def test_a_host_that_waits_for_a_communicating_stream_waits_for_communication(
    timeline: DeviceTimeline,
    calls: DeviceCollectives,
    stream: FakeStream,
    group: Group,
    of: str,
    inside: int,
) -> None:
    """As ZeRO-3 does at the end of backward, and where it is ahead by too many gathers."""
    track = timeline.track(1)
    frame = timeline.enter(track, timeline.phase("backward", Class.COMPUTE))
    issue_aside(calls, stream, group)
    stream.works(40)
    side = SideStream(ANOTHER, stream, stall=7)
    waited = side if of == "stream" else side.record_event()
    stream.current = inside
    waited.synchronize()
    stream.current = COMPUTING
    timeline.leave(frame)
    timeline.close_step(track, 1)
    stream.comes_after()
    timeline.drain()
    found = rows(timeline)
    assert milliseconds(found.steps[0].classes)[:2] == [40, 7]
    assert waits(found) == [("backward/all_reduce", 7)]


def test_collectives_that_the_computing_stream_has_waited_for_hold_up_no_host(
    timeline: DeviceTimeline,
    calls: DeviceCollectives,
    stream: FakeStream,
    group: Group,
    torch_cuda: Torch,
) -> None:
    """As FSDP2's gathers, before a timer that waits for the device at the end of each step."""
    track = timeline.track(1)
    frame = timeline.enter(track, timeline.phase("step", Class.OPTIMIZER))
    issue_aside(calls, stream, group)
    early = SideStream(ANOTHER, stream).record_event()
    issue_aside(calls, stream, group)
    early.wait(SideStream(COMPUTING, stream))
    torch_cuda.synchronize()  # the second gather
    issue_aside(calls, stream, group)
    SideStream(COMPUTING, stream).wait_stream(SideStream(ANOTHER, stream))
    torch_cuda.synchronize()
    timeline.leave(frame)
    timeline.close_step(track, 1)
    stream.comes_after()
    timeline.drain()
    found = rows(timeline)
    assert [row.path for row in found.spans] == ["step/synchronize", "step"]
    assert waits(found) == [("step/all_reduce", length) for length in (0, 2, 0)]
    assert milliseconds(found.steps[0].classes) == [0, 2, 0, 0, 0, 0, 0, 2]


def test_a_host_that_waits_for_the_device_waits_for_what_runs_on_nccl_s_own_stream(
    timeline: DeviceTimeline,
    calls: DeviceCollectives,
    stream: FakeStream,
    group: Group,
    clock: Clock,
    torch_cuda: Torch,
) -> None:
    track = timeline.track(1)
    frame = timeline.enter(track, timeline.phase("step", Class.OPTIMIZER))
    calls.issued(Operation("all_reduce", 0), group, ([ON_GPU],), {}, Group(), clock.time)
    clock.passes(MS)
    torch_cuda.synchronize()
    torch_cuda.synchronize()
    timeline.leave(frame)
    timeline.close_step(track, 1)
    stream.comes_after()
    timeline.drain()
    found = rows(timeline)
    assert [row.path for row in found.spans] == ["step/synchronize", "step"]
    assert waits(found) == [("step/all_reduce", 2)]


@pytest.mark.usefixtures("torch_cuda")
def test_a_stream_that_waits_for_collectives_passes_the_wait_on(
    timeline: DeviceTimeline, calls: DeviceCollectives, stream: FakeStream, group: Group
) -> None:
    """As one that casts or unpacks what was gathered."""
    track = timeline.track(1)
    frame = timeline.enter(track, timeline.phase("forward", Class.COMPUTE))
    issue_aside(calls, stream, group)
    SideStream(3, stream).wait_stream(SideStream(ANOTHER, stream))
    SideStream(COMPUTING, stream).wait_stream(SideStream(3, stream, stall=7))
    timeline.leave(frame)
    timeline.close_step(track, 1)
    stream.comes_after()
    timeline.drain()
    assert milliseconds(rows(timeline).steps[0].classes)[:2] == [0, 7]


@pytest.mark.usefixtures("torch_cuda")
def test_a_wait_is_charged_to_the_call_behind_which_its_event_lies(
    timeline: DeviceTimeline, calls: DeviceCollectives, stream: FakeStream, group: Group
) -> None:
    """As FSDP2 waits for one layer's gather while the next one's is on its way. What still runs on
    a stream whose calls have been waited for is no communication.
    """
    track = timeline.track(1)
    frame = timeline.enter(track, timeline.phase("forward", Class.COMPUTE))
    computing, side = SideStream(COMPUTING, stream), SideStream(ANOTHER, stream, stall=7)
    issue_aside(calls, stream, group, "all_gather")
    gathered = side.record_event()
    issue_aside(calls, stream, group, "broadcast")
    issue_aside(calls, stream, group, "reduce_scatter")
    gathered.wait(computing)
    computing.wait_stream(side)
    computing.wait_stream(side)  # unpacking, say
    timeline.leave(frame)
    timeline.close_step(track, 1)
    stream.comes_after()
    timeline.drain()
    found = rows(timeline)
    assert waits(found) == [
        ("forward/all_gather", 7), ("forward/broadcast", 0), ("forward/reduce_scatter", 7)
    ]  # fmt: skip
    assert milliseconds(found.steps[0].classes)[:2] == [7, 14]


@pytest.mark.usefixtures("torch_cuda")
def test_calls_that_are_waited_for_together_share_a_row_unless_they_are_of_another_kind(
    timeline: DeviceTimeline, calls: DeviceCollectives, stream: FakeStream, group: Group
) -> None:
    """As ZeRO's buckets: the last of them may be a small rest, and is not what takes long."""
    track = timeline.track(1)
    frame = timeline.enter(track, timeline.phase("backward", Class.COMPUTE))
    for size in (900, 90):
        issue_aside(calls, stream, group, size=size)
    issue_aside(calls, stream, group, "all_gather")
    issue_aside(calls, stream, group, size=30)
    SideStream(COMPUTING, stream).wait_stream(SideStream(ANOTHER, stream, stall=7))
    issue_aside(calls, stream, group, size=50)
    SideStream(COMPUTING, stream).wait_stream(SideStream(ANOTHER, stream, stall=2))
    timeline.leave(frame)
    timeline.close_step(track, 1)
    stream.comes_after()
    timeline.drain()
    told = [(call.op, call.calls, call.size, call.blocked // MS) for call in
            rows(timeline).collectives]  # fmt: skip
    assert told == [("all_gather", 1, 1000, 0), ("all_reduce", 3, 340, 7), ("all_reduce", 1, 50, 2)]
    assert calls.seen == 5


@pytest.mark.usefixtures("torch_cuda")
def test_a_call_aside_that_nobody_waits_for_has_held_up_nothing_where_it_was_issued(
    timeline: DeviceTimeline, calls: DeviceCollectives, stream: FakeStream, group: Group
) -> None:
    track = timeline.track(1)
    for number in (1, 2, 3):
        frame = timeline.enter(track, timeline.phase("backward", Class.COMPUTE))
        if number == 1:
            issue_aside(calls, stream, group)
        timeline.leave(frame)
        timeline.close_step(track, number)
        assert len(calls.unawaited()) == (number == 1)
    SideStream(COMPUTING, stream).wait_stream(SideStream(ANOTHER, stream, stall=7))
    stream.comes_after()
    timeline.drain()
    found = rows(timeline)
    assert waits(found) == [("backward/all_reduce", 0)]
    assert [call.step for call in found.collectives] == [1]


def test_calls_on_a_stream_that_nobody_ever_waits_for_do_not_pile_up(
    timeline: DeviceTimeline,
    calls: DeviceCollectives,
    stream: FakeStream,
    group: Group,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(device_collectives, "MOST", 3)
    frame = timeline.enter(timeline.track(1), timeline.phase("forward", Class.COMPUTE))
    for _ in range(8):
        issue_aside(calls, stream, group)
    timeline.leave(frame)
    assert len(calls.unawaited()) == 2
    calls.finish()
    timeline.finish()
    assert len(rows(timeline).collectives) == 8


@pytest.mark.usefixtures("torch_cuda")
def test_a_work_that_is_waited_for_on_another_stream_makes_that_one_to_wait_for(
    timeline: DeviceTimeline, calls: DeviceCollectives, stream: FakeStream, group: Group
) -> None:
    track = timeline.track(1)
    frame = timeline.enter(track, timeline.phase("forward", Class.COMPUTE))
    calls.wait_begins()
    calls.issued(Operation("all_reduce", 0), group, ([ON_GPU],), {}, work := Group(), 0)
    stream.current = ANOTHER
    wait_for(calls, stream, 0, work)
    stream.current = COMPUTING
    SideStream(COMPUTING, stream).wait_stream(SideStream(ANOTHER, stream, stall=7))
    timeline.leave(frame)
    timeline.close_step(track, 1)
    stream.comes_after()
    timeline.drain()
    assert milliseconds(rows(timeline).steps[0].classes)[:2] == [0, 7]


def test_streams_and_waits_of_the_accelerator_are_those_of_cuda(
    timeline: DeviceTimeline,
    calls: DeviceCollectives,
    stream: FakeStream,
    group: Group,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch = pytest.importorskip("torch")

    def known(stream_id: int, **_: int) -> SideStream:
        return SideStream(stream_id, stream)

    monkeypatch.setattr(torch.cuda, "Stream", known)
    patches, accelerator = Patches(), Torch(stream)
    Streams(timeline, calls).patch(Torch(stream), patches, Guard(), accelerator)
    track = timeline.track(1)
    frame = timeline.enter(track, timeline.phase("forward", Class.COMPUTE))
    issue_aside(calls, stream, group)
    event: Any = SideEvent(stream, stall=7)
    event.record(OfAnAccelerator(ANOTHER, stream))
    event.wait(OfAnAccelerator(3, stream))
    event.wait(OfAnAccelerator(COMPUTING, stream))
    accelerator.synchronize()
    timeline.leave(frame)
    timeline.close_step(track, 1)
    patches.undo()
    stream.comes_after()
    timeline.drain()
    found = rows(timeline)
    assert [row.path for row in found.spans] == ["forward/synchronize", "forward"]
    assert waits(found) == [("forward/all_reduce", 7)]


@pytest.mark.parametrize("asynchronous", [True, False])
def test_calls_that_are_coalesced_are_waited_for_together(
    timeline: DeviceTimeline,
    calls: DeviceCollectives,
    stream: FakeStream,
    group: Group,
    *,
    asynchronous: bool,
) -> None:
    """As `batch_isend_irecv` on NCCL: nothing starts, or can be waited for, before the end."""
    track = timeline.track(1)
    frame = timeline.enter(track, timeline.phase("forward", Class.COMPUTE))
    calls._coalesces()
    for name in ("send", "recv"):
        calls.wait_begins()
        calls.issued(Operation(name, 0), group, ([ON_GPU],), {}, None, 0)
    work = Group() if asynchronous else None
    calls.wait_begins()
    stream.works(0 if asynchronous else 7)
    calls._started(None, group, (), {}, work, 0)
    stream.works(40)
    if asynchronous:
        wait_for(calls, stream, 7, work)
    timeline.leave(frame)
    timeline.close_step(track, 1)
    stream.comes_after()
    timeline.drain()
    found = rows(timeline)
    assert milliseconds(found.steps[0].classes)[:3] == [40, 0, 7]
    assert [(call.op, call.blocked) for call in found.collectives] == [
        ("send", 0),
        ("recv", 7 * MS),
    ]


@pytest.mark.usefixtures("torch_cuda")
def test_a_host_that_waits_for_another_stream_or_event_waits_for_no_communication(
    timeline: DeviceTimeline, calls: DeviceCollectives, stream: FakeStream, group: Group
) -> None:
    track = timeline.track(1)
    frame = timeline.enter(track, timeline.phase("step", Class.OPTIMIZER))
    issue_aside(calls, stream, group)
    event = SideStream(ANOTHER, stream, stall=5).record_event()
    event.record(SideStream(COMPUTING, stream))  # used again
    event.synchronize()
    SideStream(3, stream, stall=4).synchronize()
    SideStream(COMPUTING, stream, stall=2).synchronize()
    timeline.leave(frame)
    timeline.close_step(track, 1)
    stream.comes_after()
    timeline.drain()
    assert [row.path for row in rows(timeline).spans] == [*["step/synchronize"] * 3, "step"]
    assert milliseconds(rows(timeline).steps[0].classes) == [0, 0, 0, 0, 0, 0, 0, 11]


def test_collectives_that_a_host_has_waited_for_are_not_what_the_whole_device_is_waited_for(
    timeline: DeviceTimeline,
    calls: DeviceCollectives,
    stream: FakeStream,
    group: Group,
    torch_cuda: Torch,
) -> None:
    track = timeline.track(1)
    frame = timeline.enter(track, timeline.phase("step", Class.OPTIMIZER))
    issue_aside(calls, stream, group)
    SideStream(ANOTHER, stream).synchronize()
    torch_cuda.synchronize()
    timeline.leave(frame)
    assert [row.path for row in rows(timeline).spans] == []
    timeline.close_step(track, 1)
    stream.comes_after()
    timeline.drain()
    found = rows(timeline)
    assert [row.path for row in found.spans] == ["step/synchronize", "step"]
    assert waits(found) == [("step/all_reduce", 0)]
