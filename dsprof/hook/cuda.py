"""Times on the device's own stream, taken without ever waiting for the device.

A mark is a CUDA event recorded on the compute stream. The host runs ahead, so the time between two
marks is known only later: `Marks.between` is called when the step's last mark has passed, which
`event.query` tells without waiting. All of it happens on the training thread, and nothing of it
while a graph is captured: a query would make the capture fail.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

RING: Final = 8192  # events: steps that need more have no device time

#: Numbers of marks that are none.
NONE: Final = -1  # a graph was captured
ASIDE: Final = -2  # asked for on another stream than the one that computes


class Cuda(NamedTuple):
    """What is used of `torch.cuda`; tests give a fake of it, with planted times."""

    event: Callable[[], Any]
    capturing: Callable[[], bool]
    current: Callable[[], int]  # handle of the current stream
    stream: Callable[[], Any]  # the current stream itself


class Device(NamedTuple):
    """The GPU of this process."""

    number: int  # as CUDA counts
    uuid: str | None  # where torch tells it and it is no MIG instance
    memory: int  # bytes
    cuda: Cuda


class Marks:
    """A ring of events: the oldest is used again, and what it marked is then unknown."""

    def __init__(self, cuda: Cuda, size: int = RING) -> None:
        self._cuda, self._size = cuda, size
        self._events = [cuda.event() for _ in range(size)]
        self._lies_on = [0] * size  # the stream of each
        self._laid = 0
        self.follow()

    def follow(self) -> None:
        """The current stream is the one that computes."""
        self.stream: int = self._cuda.current()
        self._recorded_on = self._cuda.stream()

    def mark(self) -> int:
        """This moment on the stream that computes: a number for `is_past` and `between`."""
        cuda = self._cuda
        if cuda.capturing():  # asked first: a capture has a stream of its own
            return NONE
        if cuda.current() != self.stream:
            return ASIDE
        number = self._laid
        self._events[number % self._size].record(self._recorded_on)
        self._lies_on[number % self._size] = self.stream
        self._laid = number + 1
        return number

    def is_past(self, number: int) -> bool:
        """Whether the device has come to that mark; marks that are none are past."""
        if self._cuda.capturing():
            return False
        return not self._holds(number) or bool(self._events[number % self._size].query())

    def between(self, begin: int, end: int) -> int:
        """Nanoseconds from mark to mark of one stream; -1 if unknown."""
        if not (self._holds(begin) and self._holds(end)):
            return -1
        one, other = begin % self._size, end % self._size
        first, last = self._events[one], self._events[other]
        if self._lies_on[one] != self._lies_on[other] or not last.query():
            return -1  # of two engines on two streams one may be behind
        milliseconds: float = first.elapsed_time(last)
        return round(milliseconds * 1e6)

    def _holds(self, number: int) -> bool:
        return number >= 0 and number >= self._laid - self._size

    @property
    def here(self) -> int:
        """The current stream, as `stream` names the one that computes."""
        return int(self._cuda.current())


def device(environment: Mapping[str, str] = os.environ) -> Device | None:
    """The GPU that this process uses already; a look at it must not be its first use."""
    import torch

    if not torch.cuda.is_initialized():
        return None
    index = torch.cuda.current_device()
    told = torch.cuda.get_device_properties(index)
    return Device(index, _uuid(told, index, environment), told.total_memory, _cuda(index))


def _cuda(index: int) -> Cuda:
    import torch

    handle = torch._C._cuda_getCurrentRawStream  # noqa: SLF001 - the object costs 1 us, this 0.1
    return Cuda(
        event=lambda: torch.cuda.Event(enable_timing=True),
        capturing=torch.cuda.is_current_stream_capturing,
        current=lambda: handle(index),
        stream=lambda: torch.cuda.current_stream(index),
    )


def _uuid(told: Any, index: int, environment: Mapping[str, str]) -> str | None:
    """None for a MIG instance: torch may tell its board's."""
    named = environment.get("CUDA_VISIBLE_DEVICES", "").split(",")
    if index < len(named) and named[index].strip().startswith("MIG-"):
        return None
    uuid = getattr(told, "uuid", None)
    return f"GPU-{uuid}" if uuid else None
