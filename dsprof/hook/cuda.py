"""Timestamps on the device's own stream, taken without ever waiting for the device.

A mark is a CUDA event recorded on the compute stream. The host runs ahead of the device, so the
time between two marks is known only later: `Marks.between` is called once the device has passed the
step's last mark, which `event.query` tells without waiting. All calls are made on the training
thread, and none while a graph is captured, because a query would make the capture fail.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

RING: Final = 8192  # events; a step that needs more has no device times

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
    cuda: Cuda


class Marks:
    """A ring of events. The oldest is reused, and the time that it marked is then unknown."""

    def __init__(self, cuda: Cuda, size: int = RING) -> None:
        self._cuda, self._size = cuda, size
        self._events = [cuda.event() for _ in range(size)]
        self._lies_on = [0] * size  # the stream on which each event was recorded
        self._laid = 0
        self.follow()

    def follow(self) -> None:
        """Make the current stream the compute stream."""
        self.stream: int = self._cuda.current()
        self._recorded_on = self._cuda.stream()

    def mark(self, *, always: bool = False) -> int:
        """Record an event on the compute stream; a number for `is_past` and `between`.

        `NONE` or `ASIDE` if none was recorded; with `always` one is although another stream is
        current.
        """
        cuda = self._cuda
        if cuda.capturing():  # checked first: a capture runs on a stream of its own
            return NONE
        if not always and cuda.current() != self.stream:
            return ASIDE
        number = self._laid
        cuda.record(self._events[number % self._size], self._recorded_on)
        self._lies_on[number % self._size] = self.stream
        self._laid = number + 1
        return number

    def is_past(self, number: int) -> bool:
        """Whether the device has passed that mark, without waiting for it.

        True for numbers without an event; False while a graph is captured.
        """
        if self._cuda.capturing():
            return False
        return not self._holds(number) or bool(self._events[number % self._size].query())

    def between(self, begin: int, end: int) -> int:
        """Nanoseconds between two marks on the same stream; -1 if unknown."""
        if not (self._holds(begin) and self._holds(end)):
            return -1
        one, other = begin % self._size, end % self._size
        first, last = self._events[one], self._events[other]
        if self._lies_on[one] != self._lies_on[other] or not last.query():
            return -1  # with two engines on two streams, one may lag behind the other
        return _nanoseconds(first, last)

    def since(self, origin: int, mark: int) -> int | None:
        """Nanoseconds from `origin` to `mark`, negative if it lies before; None if unknown. The
        device must be known to have passed both.
        """
        if not (self._holds(origin) and self._holds(mark)):
            return None
        one, other = origin % self._size, mark % self._size
        if self._lies_on[one] != self._lies_on[other]:
            return None
        return _nanoseconds(self._events[one], self._events[other])

    def _holds(self, number: int) -> bool:
        return number >= 0 and number >= self._laid - self._size

    @property
    def here(self) -> int:
        """Handle of the current stream, comparable with `stream`."""
        return int(self._cuda.current())


def device(environment: Mapping[str, str] = os.environ) -> Device | None:
    """The GPU that this process already uses; None before its first use, which must not be ours."""
    import torch

    if not torch.cuda.is_initialized():
        return None
    index = torch.cuda.current_device()
    told = torch.cuda.get_device_properties(index)
    return Device(index, _uuid(told, index, environment), told.total_memory, _cuda(index))


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


def _nanoseconds(first: Any, last: Any) -> int:
    milliseconds: float = first.elapsed_time(last)
    return round(milliseconds * 1e6)


def _uuid(told: Any, index: int, environment: Mapping[str, str]) -> str | None:
    """The GPU's UUID; None for a MIG instance, for which torch may report the board's."""
    named = environment.get("CUDA_VISIBLE_DEVICES", "").split(",")
    if index < len(named) and named[index].strip().startswith("MIG-"):
        return None
    uuid = getattr(told, "uuid", None)
    return f"GPU-{uuid}" if uuid else None
