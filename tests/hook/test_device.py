"""Device time from fake CUDA events with planted times: no GPU is needed to check the sums.

The fake stands for `torch.cuda.Event` on one stream: `record` notes where the stream will
be when it comes to it (`ahead`), `query` whether it has come that far (`done`),
`elapsed_time` milliseconds between two, and it fails as CUDA does when asked too early.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dsprof import load
from dsprof.analysis.lanes import lanes
from dsprof.events import Class
from dsprof.hook import collectives, cuda, device, device_collectives, gpu, groups, spans
from dsprof.hook.cuda import ASIDE, NONE, Cuda, Device, Marks
from dsprof.hook.device import DeviceTimeline
from dsprof.hook.device_collectives import DeviceCollectives
from dsprof.hook.guard import Guard
from dsprof.hook.operations import Operation
from dsprof.hook.patches import Patches
from dsprof.hook.spans import Phase, Track
from dsprof.hook.streams import Streams
from dsprof.recording import ON_DEVICE, Writer
from tests.hook.rows import Rows, folder, read
from tests.hook.test_spans import Clock, Group, Tensor, in_a_thread

JOB = ("device",)
COMPUTING, ANOTHER = 1, 2
MS = 1_000_000


class FakeStream:
    """The device: the host puts work on it, and it comes to it later."""

    def __init__(self) -> None:
        self.ahead = 0  # ms of work that is on the stream
        self.done = 0  # ms of it that the device has finished
        self.current = COMPUTING
        self.capturing = False
        self.queries = 0

    def works(self, milliseconds: int) -> None:
        self.ahead += milliseconds

    def comes_after(self) -> None:
        self.done = self.ahead

    @property
    def cuda(self) -> Cuda:
        return Cuda(
            lambda: Event(self), Event.record, lambda: self.capturing, lambda: self.current,
            lambda: self,
        )  # fmt: skip


class Event:
    def __init__(self, stream: FakeStream) -> None:
        self.stream = stream
        self.at = -1

    def record(self, stream: FakeStream) -> None:
        assert stream is self.stream
        assert not stream.capturing, "an event of a captured graph cannot be asked"
        self.at = stream.ahead

    def query(self) -> bool:
        assert not self.stream.capturing, "a query breaks the capture"
        self.stream.queries += 1
        return self.at <= self.stream.done

    def synchronize(self) -> None:
        pytest.fail("training was made to wait for the device")

    def elapsed_time(self, later: Event) -> float:
        assert max(self.at, later.at) <= self.stream.done, "not ready"
        return float(later.at - self.at)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in (spans, collectives, device):
        monkeypatch.setattr(module, "now", clock)
    return clock


@pytest.fixture
def stream() -> FakeStream:
    return FakeStream()


@pytest.fixture
def timeline(tmp_path: Path, clock: Clock, stream: FakeStream) -> Iterator[DeviceTimeline]:
    assert clock.time
    writer = Writer.create(tmp_path, {"rank": 0})
    yield DeviceTimeline(writer, Marks(stream.cuda, 64))
    writer.close()


@pytest.fixture
def calls(timeline: DeviceTimeline) -> DeviceCollectives:
    return DeviceCollectives(timeline)


def rows(timeline: DeviceTimeline) -> Rows:
    timeline.flush()
    return read(timeline.writer.path)


def phase(timeline: DeviceTimeline, stream: FakeStream, name: str, ms: int, class_: Class) -> None:
    """A phase that puts `ms` of work on the stream, in no time of the host's."""
    frame = timeline.enter(timeline.tracks[0], timeline.phase(name, class_))
    stream.works(ms)
    timeline.leave(frame)


def one_step(timeline: DeviceTimeline, stream: FakeStream, number: int) -> None:
    phase(timeline, stream, "forward", 30, Class.COMPUTE)
    stream.works(4)  # the device waits for the host between phases
    phase(timeline, stream, "backward", 60, Class.COMPUTE)
    phase(timeline, stream, "step", 6, Class.OPTIMIZER)
    timeline.close_step(timeline.tracks[0], number)


def waits(found: Rows) -> list[tuple[str, int]]:
    """Where calls were waited for, and for how many ms of the device."""
    return [(f"{call.path}/{call.op}", call.blocked // MS) for call in found.collectives]


def milliseconds(classes: tuple[float, ...]) -> list[int]:
    return [round(seconds * 1e3) for seconds in classes]


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


def wait_for(calls: DeviceCollectives, stream: FakeStream, stall: int, work: object) -> None:
    """A wait that stalls the stream by `stall` ms after it was issued."""
    held = calls.before_wait((work,))
    stream.works(stall)
    calls.after_wait(held)


@pytest.fixture
def group(calls: DeviceCollectives, timeline: DeviceTimeline) -> Group:
    group = Group()
    name = timeline.writer.name("0 ranks 0-1")
    known = groups.Group(group, name, lambda _: None, blocks_host=False)
    calls._groups[id(group)] = known
    return group


ON_GPU = Tensor(4096, is_cpu=False)


def backward_with(
    timeline: DeviceTimeline, calls: DeviceCollectives, stream: FakeStream, group: Group, stall: int
) -> None:
    track = timeline.tracks[0]
    frame = timeline.enter(track, timeline.phase("backward", Class.COMPUTE))
    work = Group()
    calls.wait_begins()
    calls.issued(Operation("all_reduce", 0), group, ([ON_GPU],), {}, work, 0)
    stream.works(50)
    wait_for(calls, stream, stall, work)
    timeline.leave(frame)


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


class SideStream:
    """As much of `torch.cuda.Stream` as there is to see. Whoever waits is stalled by `stall` ms."""

    def __init__(self, number: int, device: FakeStream, stall: int = 0) -> None:
        self.cuda_stream, self.device, self.stall = number, device, stall

    def record_event(self) -> SideEvent:
        event = SideEvent(self.device, self.stall)
        event.record(self)
        return event

    def wait_stream(self, other: SideStream) -> None:
        other.record_event().wait(self)

    def synchronize(self) -> None:
        self.device.works(self.stall)


class SideEvent:
    """The same of `torch.cuda.Event`."""

    def __init__(self, device: FakeStream, stall: int = 0) -> None:
        self.device, self.stall = device, stall

    def record(self, stream: SideStream | None = None) -> None:
        assert stream is None or stream.device is self.device

    def wait(self, stream: SideStream | None = None) -> None:
        assert stream is None or stream.device is self.device
        self.device.works(self.stall)

    def synchronize(self) -> None:
        self.device.works(self.stall)


class Torch:
    """In the place of `torch.cuda`."""

    Stream, Event = SideStream, SideEvent

    def __init__(self, device: FakeStream) -> None:
        self.device = device

    def synchronize(self) -> None:
        self.device.works(2)


@pytest.fixture
def torch_cuda(
    timeline: DeviceTimeline, calls: DeviceCollectives, stream: FakeStream
) -> Iterator[Torch]:
    patches, torch = Patches(), Torch(stream)
    Streams(timeline, calls).patch(torch, patches, Guard())
    yield torch
    patches.undo()
    assert not hasattr(SideEvent.wait, "__signature__")


def issue_aside(
    calls: DeviceCollectives,
    stream: FakeStream,
    group: Group,
    name: str = "all_reduce",
    size: int = 1000,
) -> None:
    """ZeRO-3's gathers and FSDP2's: issued and waited for on a stream of their own."""
    stream.current = ANOTHER
    calls.wait_begins()
    tensor = Tensor(size, is_cpu=False)
    calls.issued(Operation(name, 0), group, ([tensor],), {}, work := Group(), 0)
    wait_for(calls, stream, 0, work)
    stream.current = COMPUTING


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


class OfAnAccelerator:
    """A stream as `torch.accelerator` has it, which knows no handle of CUDA."""

    device_index, device_type = 0, 1

    def __init__(self, number: int, device: FakeStream) -> None:
        self.stream_id, self.device = number, device


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


def test_steps_that_the_device_is_far_behind_with_do_not_gather_in_memory(
    timeline: DeviceTimeline, stream: FakeStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device, "AHEAD", 2)
    timeline.track(1)
    for number in range(1, 5):
        one_step(timeline, stream, number)
    assert [row.step for row in rows(timeline).steps] == [1, 2]


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


@pytest.mark.parametrize(
    ("environment", "uuid"),
    [
        ({}, "GPU-ab"),
        ({"CUDA_VISIBLE_DEVICES": "3"}, "GPU-ab"),
        ({"CUDA_VISIBLE_DEVICES": "MIG-c"}, None),
    ],
)
def test_torch_tells_the_uuid_but_for_mig(environment: dict[str, str], uuid: str | None) -> None:
    class Told:
        uuid = "ab"

    assert cuda._uuid(Told(), 0, environment) == uuid
    assert cuda._uuid(object(), 0, environment) is None


def test_the_device_is_the_one_that_the_process_has_its_memory_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A script that says `model.to("cuda:2")` may never make that the current device."""
    torch = pytest.importorskip("torch")
    memory, backend = [0, 5, 70], "native"
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda index: memory[index])
    monkeypatch.setattr(torch.cuda, "get_allocator_backend", lambda: backend)
    assert cuda._in_use() == 2
    memory[1] = 70
    assert cuda._in_use() == 1
    memory[:] = [0, 0, 0]
    assert cuda._in_use() == 1
    memory[2], backend = 70, "cudaMallocAsync"  # which would ask the devices
    assert cuda._in_use() == 1


def test_an_allocator_that_keeps_no_statistics_ends_no_recording(
    timeline: DeviceTimeline, stream: FakeStream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = pytest.importorskip("torch.cuda.memory")

    def pluggable(_: int) -> None:
        raise RuntimeError("CUDAPluggableAllocator does not yet support getDeviceStats.")

    monkeypatch.setattr(memory, "memory_stats_as_nested_dict", pluggable)
    found = gpu.Gpu(Device(0, None, 5, "H100", stream.cuda), timeline.writer, tmp_path)
    assert found.allocator() == {}


def test_a_process_that_uses_a_gpu_only_later_is_told_by_its_recording(
    timeline: DeviceTimeline, stream: FakeStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu, "device", lambda: None)
    assert not gpu.came_late(timeline.writer)
    monkeypatch.setattr(gpu, "device", lambda: Device(0, "GPU-ab", 5, "H100", stream.cuda))
    assert gpu.came_late(timeline.writer)
    assert rows(timeline).config == {"gpu": "GPU-ab", "gpu_memory_bytes": 5, "gpu_model": "H100"}


def test_a_pytorch_that_would_ask_for_devices_is_not_asked_for_what_it_is_built(
    timeline: DeviceTimeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")

    def of_2_6() -> None:
        raise RuntimeError("Cannot access accelerator device when none is available.")

    monkeypatch.setattr(torch, "accelerator", SimpleNamespace(current_accelerator=of_2_6))
    assert gpu.Gpu.found(timeline.writer, tmp_path) is None
    assert rows(timeline).config == {"phases_on": "host"}


@pytest.mark.parametrize("stage", ["1", "3"])
def test_a_real_job_is_recorded_in_device_time_whole(
    results: list[dict[str, Any]], out: Path, stage: str
) -> None:
    """On two ranks, whose device is the host."""
    ranks = folder(out / f"stage-{stage}")
    counted = [bool(told.gpu) or "gpu_counters" in told.config for told in ranks]
    assert any(counted)  # had its turn to ask the driver
    for told, result in zip(ranks, results, strict=True):
        assert result[stage]["watched"] == result[stage]["plain"]
        assert told.ended
        assert told.config["phases_on"] == "gpu"
        assert [step.step for step in told.steps] == [1, 2, 3, 4]
        assert all(row.gpu >= 0 for row in told.spans)
        late = [row.gpu_begin - row.begin for row in told.spans]
        assert abs(statistics.median(late)) < MS, "no later than is proved"
        assert all(call.blocked >= 0 for call in told.collectives)
        assert sum(call.calls for call in told.collectives) == result[stage]["issued"]
        for step in told.steps:
            assert sum(step.classes) == pytest.approx(step.length * 1e-9)
            assert min(step.classes) >= 0
            assert step.classes[0] > 0
        assert sum(step.classes[1] for step in told.steps) > 0
        blocked = sum(call.blocked for call in told.collectives)
        assert sum(step.classes[1] for step in told.steps) == pytest.approx(blocked * 1e-9)
    run = load(out / f"stage-{stage}")
    drawn = lanes(run.moments(run.steps[run.steps["step"] == 3]))
    assert {one.path.split("/")[0] for one in drawn[0]} >= {"forward", "backward", "step"}
