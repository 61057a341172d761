"""A device that is behind its host, in programs made at random.

The fake knows when the device comes to all that the host puts on its streams: to each thing once it
is there and what lies before it on the stream is done. So what the recording must say is known, and
what it may not know, too: when, by the host's clock, a device that never waits for it began.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsprof import load
from dsprof.analysis.lanes import lanes
from dsprof.events import Class
from dsprof.hook import spans
from dsprof.hook.calls import collectives, groups
from dsprof.hook.calls.collectives import Collectives
from dsprof.hook.calls.operations import Operation
from dsprof.hook.guard import Guard
from dsprof.hook.on_gpu import device
from dsprof.hook.on_gpu.cuda import Cuda, Marks
from dsprof.hook.on_gpu.device import DeviceTimeline
from dsprof.hook.on_gpu.device_collectives import DeviceCollectives
from dsprof.hook.on_gpu.streams import Streams
from dsprof.hook.patches import Patches
from dsprof.hook.spans import Timeline
from dsprof.recording import ON_DEVICE, Writer
from tests.hook.rows import Rows, read
from tests.hook.test_spans import Clock, Group, Tensor

COMPUTING, SIDE, THIRD, CAPTURING = 1, 2, 3, 4
MS = 1_000_000
CLASSES = tuple(Class)
COMMUNICATION, OTHER = CLASSES.index(Class.COMMUNICATION), CLASSES.index(Class.OTHER)


class Machine:
    """A host and the streams of its device, all in ns of the host's clock."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.free = dict.fromkeys((COMPUTING, SIDE, THIRD), 0)  # when all on a stream is done
        self.current = COMPUTING
        self.capturing = False
        self.in_turn = False  # the host waits for whatever it puts on a stream, as on a CPU

    def comes(self, stream: int) -> int:
        """When the device comes to what the host puts on a stream now."""
        return max(self.free[stream], self.clock.time)

    def works(self, ns: int, stream: int = 0) -> None:
        if not self.capturing:
            stream = stream or self.current
            self.free[stream] = self.comes(stream) + ns
            if self.in_turn:
                self.waits(self.free[stream])

    def waits(self, ns: int) -> None:
        """The host waits until then."""
        assert not self.capturing
        self.clock.time = max(self.clock.time, ns)

    @property
    def cuda(self) -> Cuda:
        return Cuda(
            lambda: Event(self), Event.record, lambda: self.capturing, lambda: self.current,
            lambda: Stream(self, self.current),
        )  # fmt: skip


class Stream:
    """As much of `torch.cuda.Stream` as there is to see."""

    def __init__(self, machine: Machine, number: int) -> None:
        self.machine, self.cuda_stream = machine, number

    def wait_stream(self, other: Stream) -> None:
        event = Event(self.machine)
        event.record(other)
        event.wait(self)

    def synchronize(self) -> None:
        self.machine.waits(self.machine.free[self.cuda_stream])


class Event:
    """The same of `torch.cuda.Event`."""

    def __init__(self, machine: Machine) -> None:
        self.machine, self.at = machine, -1

    def record(self, stream: Stream | None = None) -> None:
        assert not self.machine.capturing
        number = self.machine.current if stream is None else stream.cuda_stream
        self.at = self.machine.free[number] = self.machine.comes(number)

    def wait(self, stream: Stream) -> None:
        free = self.machine.free
        free[stream.cuda_stream] = max(free[stream.cuda_stream], self.at)

    def synchronize(self) -> None:
        self.machine.waits(self.at)

    def query(self) -> bool:
        assert not self.machine.capturing, "a query breaks the capture"
        return self.at <= self.machine.clock.time

    def elapsed_time(self, later: Event) -> float:
        assert max(self.at, later.at) <= self.machine.clock.time, "not ready"
        return (later.at - self.at) * 1e-6


class Torch:
    """In the place of `torch.cuda`."""

    Stream, Event = Stream, Event

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def synchronize(self) -> None:
        self.machine.waits(max(self.machine.free.values()))


class Job:
    """Training on that machine, and what the recording must say of it."""

    def __init__(self, folder: Path, ring: int) -> None:
        """`ring`: of how many events; 0 for a recording by the host's clock."""
        self.machine = Machine()
        self.writer = Writer.create(folder, {"rank": 0})
        self.writer.config("phases_on", "gpu")
        self.timeline: Any
        self.calls: Any
        if ring:
            self.timeline = DeviceTimeline(self.writer, Marks(self.machine.cuda, ring))
            self.calls = DeviceCollectives(self.timeline)
        else:
            self.timeline = Timeline(self.writer)
            self.calls = Collectives(self.timeline)
        self.torch, self.group = Torch(self.machine), Group()
        known = groups.Group(
            self.group, self.writer.name("0 ranks 0-1"), lambda _: None, blocks_host=not ring
        )
        self.calls._groups[id(self.group)] = known
        self.tensor = Tensor(8, is_cpu=not ring)
        self.tracks = [self.timeline.track(1), self.timeline.track(1)]
        self.track = self.tracks[0]
        self.above: list[list[int]] = []  # of each open phase, ns of what lies inside
        self.classes: list[list[int]] = []  # of each step
        self.steps: list[tuple[int, int]] = []  # when the device begins and ends each
        self.forgets = False  # part of a step was captured
        self.began = 0

    @contextmanager
    def recorded(self) -> Iterator[None]:
        patches = Patches()
        if isinstance(self.calls, DeviceCollectives):
            Streams(self.calls.timeline, self.calls).patch(self.torch, patches, Guard())
        with pytest.MonkeyPatch.context() as patch:
            for module in (spans, collectives, device):
                patch.setattr(module, "now", self.machine.clock)
            yield
            patches.undo()
            self.machine.waits(max(self.machine.free.values()))
            self.calls.finish()
            self.timeline.finish()
            self.writer.close()

    def comes(self) -> int:
        return self.machine.comes(COMPUTING)

    @contextmanager
    def interval(self, class_: int) -> Iterator[None]:
        """What happens inside is of that class, by the device's time."""
        if self.machine.capturing:  # stays in what holds it
            yield
            return
        begin, inside = self.comes(), [0]
        self.above.append(inside)
        yield
        self.above.pop()
        length = self.comes() - begin
        self.classes[-1][class_] += length - inside[0]
        if self.above:
            self.above[-1][0] += length

    def step(self, number: int, program: list[Any]) -> None:
        self.classes.append([0] * len(CLASSES))
        for thing in program:
            self.does(*thing)
        self.timeline.close_step(self.track, number)
        end = self.comes()
        begin = self.steps[-1][1] if self.steps else self.began
        self.steps.append((begin, end))
        self.classes[-1][OTHER] += end - begin - sum(self.classes[-1])

    def does(self, what: str, ns: int, inside: list[Any]) -> None:
        getattr(self, what)(ns, inside)

    def work(self, ns: int, _: list[Any]) -> None:
        self.machine.works(ns)

    def host(self, ns: int, _: list[Any]) -> None:
        self.machine.clock.passes(ns)

    def phase(self, ns: int, inside: list[Any]) -> None:
        class_ = CLASSES[ns % len(CLASSES)]
        if not self.track.begin:
            self.began = self.comes()
        above = self.timeline.stack[-1].phase.id if self.timeline.stack else 0
        name = self.writer.name(f"phase-{class_}", above, class_)
        with self.interval(CLASSES.index(class_)):
            frame = self.timeline.enter(self.track, spans.Phase(name, CLASSES.index(class_)))
            for thing in inside:
                self.does(*thing)
            self.timeline.leave(frame)

    def capture(self, __: int, inside: list[Any]) -> None:
        if self.machine.capturing:
            return
        self.machine.capturing, self.machine.current = True, CAPTURING
        for what, ns, _ in inside:
            if what in {"work", "host", "phase"}:
                self.does(what, ns, [])
        self.machine.capturing, self.machine.current = False, COMPUTING

    def reduce(self, ns: int, inside: list[Any]) -> None:
        """A collective on NCCL's own stream, and a wait for its Work."""
        work = Group()
        self._issue(work)
        self.machine.free[THIRD] = max(self.machine.free[THIRD], self.comes())
        if not self.machine.in_turn:
            self.machine.works(ns, THIRD)
        for thing in inside:
            self.does(*thing)
        if self.machine.capturing:
            return
        with self.interval(COMMUNICATION):
            held = self.calls.before_wait((work,))
            if self.machine.in_turn:
                self.machine.works(ns)
            free = self.machine.free
            free[COMPUTING] = max(free[COMPUTING], free[THIRD])
            self.calls.after_wait(held)

    def alone(self, ns: int, _: list[Any]) -> None:
        """A collective on the computing stream."""
        with self.interval(COMMUNICATION):
            self.calls.wait_begins()
            begin = self.machine.clock.time
            self.machine.works(ns)
            self.calls.issued(
                Operation("all_reduce", 0), self.group, ([self.tensor],), {}, None, begin
            )

    def gather(self, ns: int, inside: list[Any]) -> None:
        """A collective on a stream aside, for which the computing stream waits."""
        side, computing = Stream(self.machine, SIDE), Stream(self.machine, COMPUTING)
        side.wait_stream(computing)
        self.machine.current = SIDE
        self.calls.wait_begins()
        begin = self.machine.clock.time
        self.machine.works(ns)
        self.calls.issued(Operation("all_gather", 0), self.group, ([self.tensor],), {}, None, begin)
        self.machine.current = COMPUTING
        for thing in inside:
            self.does(*thing)
        with self.interval(COMMUNICATION):
            computing.wait_stream(side)

    def engine(self, ns: int, inside: list[Any]) -> None:
        """From here on another engine has its turn."""
        self.track = self.tracks[ns % 2]
        self.phase(ns, inside)

    def synchronize(self, _: int, __: list[Any]) -> None:
        with self.interval(COMMUNICATION if self.calls.unawaited() else OTHER):
            self.torch.synchronize()

    def _issue(self, work: Any) -> None:
        self.calls.wait_begins()
        begin = self.machine.clock.time
        self.calls.issued(Operation("all_reduce", 0), self.group, ([self.tensor],), {}, work, begin)


NS: Any = st.integers(0, 30 * MS)


def programs(*holding: str) -> st.SearchStrategy[list[Any]]:
    """Steps of waits, calls and phases; `holding` others inside them."""
    leaves: Any = st.tuples(
        st.sampled_from(["work", "host", "alone", "synchronize"]), NS, st.just([])
    )
    things: Any = st.recursive(
        leaves,
        lambda inner: st.tuples(st.sampled_from(holding), NS, st.lists(inner, max_size=4)),
        max_leaves=12,
    )
    steps: Any = st.lists(things, max_size=5).map(
        lambda more: [("phase", 0, [("work", MS, [])]), *more]
    )
    return st.lists(steps, min_size=1, max_size=6)


STEPS = programs("phase", "reduce", "gather")
WITH_GRAPHS = programs("phase", "reduce", "gather", "capture")


def recorded(job: Job, steps: list[Any]) -> Rows:
    with job.recorded():
        for number, program in enumerate(steps, 1):
            job.step(number, program)
    return read(job.writer.path)


@settings(deadline=None, max_examples=60)
@given(STEPS)
def test_a_step_takes_what_the_device_took_however_far_the_host_is_ahead(steps: list[Any]) -> None:
    with TemporaryDirectory() as folder:
        job = Job(Path(folder), 4096)
        found = recorded(job, steps)
    assert [step.step for step in found.steps] == list(range(1, len(steps) + 1))
    for step, (begin, end), classes in zip(found.steps, job.steps, job.classes, strict=True):
        assert step.length == pytest.approx(end - begin, abs=10)
        assert [seconds * 1e9 for seconds in step.classes] == pytest.approx(
            classes, rel=1e-5, abs=50
        )


@settings(deadline=None, max_examples=60)
@given(STEPS)
def test_moments_of_a_device_lie_between_the_host_s_and_the_truth(steps: list[Any]) -> None:
    with TemporaryDirectory() as folder:
        job = Job(Path(folder), 4096)
        found = recorded(job, steps)
    for step, (begin, _) in zip(found.steps, job.steps, strict=True):
        assert step.begin <= begin + 20, "it did not begin before"
    for before, step in pairwise(found.steps):
        assert step.begin >= before.begin + before.length - 20
    whole = {step.step: step for step in found.steps}
    for row in found.spans:
        step = whole[row.step]
        assert row.begin - 20 <= row.gpu_begin
        assert step.begin - 20 <= row.gpu_begin
        assert row.gpu_begin + row.gpu <= step.begin + step.length + 20
    for call in found.collectives:
        if call.flags & ON_DEVICE:
            step = whole[call.step]
            assert step.begin - 20 <= call.wait
            assert call.wait + call.blocked <= step.begin + step.length + 20


@settings(deadline=None, max_examples=12)
@given(WITH_GRAPHS, st.sampled_from([8, 32, 4096]))
def test_what_is_lost_is_unknown_and_the_rest_is_told_by_a_reader(
    steps: list[Any], ring: int
) -> None:
    """In captures nothing is marked; of few events each is soon used again."""
    with TemporaryDirectory() as folder:
        job = Job(Path(folder), ring)
        found = recorded(job, steps)
        run = load(job.writer.path)
        drawn = [
            lanes(run.moments(run.steps[run.steps["step"] == number])).get(0, [])
            for number in range(1, len(steps) + 1)
        ]
    assert len(found.steps) == len(steps)
    for step, lane in zip(found.steps, drawn, strict=True):
        known = not math.isnan(step.classes[0])
        assert not known or sum(step.classes) == pytest.approx(step.length * 1e-9, abs=1e-6)
        assert not known or min(step.classes) >= -1e-6
        assert all(one.begin <= one.end for one in lane)
        assert all(one.end <= after.begin + 1e-6 for one, after in pairwise(lane))
    for row in found.spans:
        assert row.gpu >= -1
        assert not row.gpu_begin or row.begin - 20 <= row.gpu_begin


INSIDE: Any = st.tuples(st.sampled_from(["work", "host", "alone", "reduce"]), NS, st.just([]))
TURNS: Any = st.one_of(
    INSIDE, st.tuples(st.sampled_from(["engine", "phase"]), NS, st.lists(INSIDE, max_size=3))
)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.lists(TURNS, max_size=6), st.booleans()), max_size=8))
def test_a_device_that_is_never_behind_is_recorded_like_a_host(steps: list[Any]) -> None:
    """Two engines in turns: each step without the turns of the other."""
    found = []
    for ring in (0, 4096):
        with TemporaryDirectory() as folder:
            job = Job(Path(folder), ring)
            job.machine.in_turn = True
            job.classes.append([0] * len(CLASSES))
            with job.recorded():
                for number in (0, 1):
                    job.engine(number, [])
                for things, which in (*steps, ([], 0), ([], 1)):
                    for thing in things:
                        job.does(*thing)
                    job.timeline.close_step(job.tracks[which], job.tracks[which].step)
            found.append(read(job.writer.path))
    host, gpu = found
    for one, other in zip(host.steps, gpu.steps, strict=True):
        assert one[:4] == other[:4]
        assert other.engine == one.engine
        assert other.classes == pytest.approx(one.classes, abs=1e-6)
    calls = [
        sorted((call[:4], call.begin, call.blocked) for call in one.collectives) for one in found
    ]
    assert calls[0] == calls[1]
    assert sorted((row[:4], row.length) for row in host.spans) == sorted(
        (row[:4], row.gpu) for row in gpu.spans
    )
