"""Timestamps on the device's own stream, taken without ever waiting for the device.

A mark is a CUDA event recorded on the compute stream. The host runs ahead of the device, so the
time between two marks is known only later: `Marks.since` is called once the device has passed both,
which `event.query` tells without waiting. All calls are made on the training thread, and none while
a graph is captured, because a query would make the capture fail. Once the device has failed, each
call of CUDA fails, ours like training's: marks are then unknown, and training raises its own error.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

RING: Final = 8192  # events

#: Values that `Marks.mark` returns if it recorded no event.
NONE: Final = -1  # a graph was being captured
ASIDE: Final = -2  # another stream than the compute stream was current


class Cuda(NamedTuple):
    """The parts of `torch.cuda` that are used; tests pass a fake with planted times."""

    event: Callable[[], Any]
    record: Callable[[Any, Any], None]  # an event on a stream; not the one that is patched
    capturing: Callable[[], bool]
    current: Callable[[], int]  # handle of the current stream
    stream: Callable[[], Any]  # the current stream itself


class Device(NamedTuple):
    """The GPU of this process."""

    number: int  # CUDA's device index
    uuid: str | None  # None if torch does not tell it, or for a MIG instance
    memory: int  # bytes
    model: str
    cuda: Cuda


class Marks:
    """A ring of events. The oldest is reused, and the time that it marked is then unknown."""

    def __init__(self, cuda: Cuda, size: int = RING) -> None:
        self._cuda, self._size = cuda, size
        self._events = [cuda.event() for _ in range(size)]
        self._lies_on = [0] * size  # the stream on which each event was recorded
        self.laid = 0  # how many there have been
        self._failed = False  # a call of CUDA has
        self.stream = NONE
        self.follow()

    def follow(self) -> None:
        """Make the current stream the compute stream, unless it captures a graph."""
        here = self._cuda.current()
        if here != self.stream and not (self._failed or self._cuda.capturing()):
            self.stream, self._recorded_on = here, self._cuda.stream()

    def mark(self, *, always: bool = False) -> int:
        """Record an event on the compute stream; a number for `is_past` and `since`.

        `NONE` or `ASIDE` if none was recorded; with `always` one is although another stream is
        current.
        """
        cuda, number = self._cuda, self.laid
        place = number % self._size
        try:
            if cuda.capturing():  # checked first: a capture runs on a stream of its own
                return NONE
            if not always and cuda.current() != self.stream:
                return ASIDE
            cuda.record(self._events[place], self._recorded_on)
        except RuntimeError:
            self._failed = True
            return NONE
        self._lies_on[place] = self.stream
        self.laid = number + 1
        return number

    def is_past(self, number: int) -> bool:
        """Whether the device has passed that mark, without waiting for it.

        True for numbers without an event; False while a graph is captured, and of a device that
        has failed.
        """
        if self._failed:
            return False
        try:
            if self._cuda.capturing():
                return False
            return not self._holds(number) or bool(self._events[number % self._size].query())
        except RuntimeError:
            self._failed = True
            return False

    def since(self, origin: int, mark: int) -> int | None:
        """Nanoseconds from `origin` to `mark`, negative if it lies before; None if unknown, as on
        two streams. The device must have passed both.
        """
        if self._failed or not (self._holds(origin) and self._holds(mark)):
            return None
        one, other = origin % self._size, mark % self._size
        if self._lies_on[one] != self._lies_on[other]:
            return None
        milliseconds: float = self._events[one].elapsed_time(self._events[other])
        return round(milliseconds * 1e6)

    def lies_on(self, mark: int) -> int | None:
        """The stream on which a mark was recorded; None if its event is gone."""
        return self._lies_on[mark % self._size] if self._holds(mark) else None

    def _holds(self, number: int) -> bool:
        return number >= 0 and number >= self.laid - self._size

    @property
    def here(self) -> int:
        """Handle of the current stream, comparable with `stream`."""
        return int(self._cuda.current())


class Came(NamedTuple):
    """When the device came to a mark: nanoseconds of one of its clocks."""

    clock: int
    ns: int


def elapsed(first: Came | None, last: Came | None) -> int | None:
    """Nanoseconds from `first` to `last`; None if unknown."""
    if first is None or last is None or first.clock != last.clock:
        return None
    return last.ns - first.ns


class DeviceClock:
    """Tells when the device came to marks, by a clock for each stream.

    The events of the ring are soon used again, and a difference is told as a 32-bit float. So each
    time is counted on from the newest mark that has been read.
    """

    def __init__(self, marks: Marks) -> None:
        self._marks, self._clocks = marks, 0
        self._newest: dict[int, tuple[int, Came]] = {}  # by stream

    def at(self, mark: int, before: Came | None = None) -> Came | None:
        """When the device came to `mark`, which it must have passed; None if its event is gone.

        Args:
            before: a later moment; None if the mark is not on its stream.
        """
        stream = self._marks.lies_on(mark)
        if stream is None:
            return None
        newest, came = self._newest.get(stream, (NONE, Came(-1, 0)))
        if before is not None and before.clock != came.clock:
            return None  # whether the device has passed it is not known
        passed = self._marks.since(newest, mark)
        if passed is None:  # the first one, or those before are long gone
            self._clocks += 1
            came, passed = Came(self._clocks, 0), 0
            newest = NONE
        found = Came(came.clock, came.ns + passed)
        if mark > newest:
            self._newest[stream] = mark, found
        return found


def device(environment: Mapping[str, str] = os.environ) -> Device | None:
    """The GPU that this process already uses; None before its first use, which must not be ours."""
    import torch

    if not torch.cuda.is_initialized():
        return None
    index = _in_use()
    told = torch.cuda.get_device_properties(index)
    uuid = _uuid(told, index, environment)
    return Device(index, uuid, told.total_memory, told.name, _cuda(index))


def _in_use() -> int:
    """The device on which this process has most memory: a script may never make it the current one,
    and an event on another device would cost that device a context. PyTorch's own allocator tells
    without asking any device.
    """
    import torch

    current: int = torch.cuda.current_device()
    if torch.cuda.get_allocator_backend() != "native":
        return current
    used = [torch.cuda.memory_allocated(index) for index in range(torch.cuda.device_count())]
    return max(range(len(used)), key=lambda index: (used[index], index == current), default=current)


def _cuda(index: int) -> Cuda:
    import torch

    handle = torch._C._cuda_getCurrentRawStream  # noqa: SLF001 - an object costs 1 us, this 0.1
    return Cuda(
        event=lambda: torch.cuda.Event(enable_timing=True),
        record=torch.cuda.Event.record,
        capturing=torch.cuda.is_current_stream_capturing,
        current=lambda: handle(index),
        stream=lambda: torch.cuda.current_stream(index),
    )


def _uuid(told: Any, index: int, environment: Mapping[str, str]) -> str | None:
    """The GPU's UUID; None for a MIG instance, for which torch may report the board's."""
    named = environment.get("CUDA_VISIBLE_DEVICES", "").split(",")
    if index < len(named) and named[index].strip().startswith("MIG-"):
        return None
    uuid = getattr(told, "uuid", None)
    return f"GPU-{uuid}" if uuid else None
