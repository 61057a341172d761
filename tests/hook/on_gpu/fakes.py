"""Device time from fake CUDA events with planted times: no GPU is needed to check the sums.

The fake stands for `torch.cuda.Event` on one stream: `record` notes where the stream will
be when it comes to it (`ahead`), `query` whether it has come that far (`done`),
`elapsed_time` milliseconds between two, and it fails as CUDA does when asked too early.
"""

from __future__ import annotations

import pytest

from dsprof.events import Class
from dsprof.hook.calls.operations import Operation
from dsprof.hook.on_gpu.cuda import Cuda
from dsprof.hook.on_gpu.device import DeviceTimeline
from dsprof.hook.on_gpu.device_collectives import DeviceCollectives
from tests.hook.rows import Rows, read
from tests.hook.test_spans import Group, Tensor

COMPUTING, ANOTHER = 1, 2
MS = 1_000_000
ON_GPU = Tensor(4096, is_cpu=False)


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


def wait_for(calls: DeviceCollectives, stream: FakeStream, stall: int, work: object) -> None:
    """A wait that stalls the stream by `stall` ms after it was issued."""
    held = calls.before_wait((work,))
    stream.works(stall)
    calls.after_wait(held)


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


class OfAnAccelerator:
    """A stream as `torch.accelerator` has it, which knows no handle of CUDA."""

    device_index, device_type = 0, 1

    def __init__(self, number: int, device: FakeStream) -> None:
        self.stream_id, self.device = number, device
