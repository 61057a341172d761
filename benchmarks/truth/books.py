"""What a rank itself measures: how long its steps took, and what was planted in them."""

from __future__ import annotations

import json
import statistics
import time
from collections import defaultdict
from pathlib import Path

from benchmarks.truth.cases import Fault


class Books:
    """Plants a fault and writes down its true size, by `time.perf_counter` around it alone."""

    def __init__(self, fault: Fault, rank: int) -> None:
        self.fault, self.rank = fault, rank
        self.step = 1
        self.steps: list[float] = []
        self.planted: dict[int, float] = defaultdict(float)
        self.device: dict[int, float] = defaultdict(float)  # blocks' computing
        self.update: dict[int, float] = defaultdict(float)  # an offloaded optimizer's whole step
        self.skipped = 0
        self.twins: list[list[float]] = []
        self.mended: list[list[float]] = []
        self._begun = time.perf_counter()

    def due(self, place: str) -> bool:
        """Whether the fault is of that place, this rank and this step."""
        fault = self.fault
        return fault.place == place and fault.rank in {None, self.rank} and fault.at(self.step)

    def point(self, place: str) -> None:
        """A place in the program where a delay may be planted."""
        if self.due(place):
            self.planted[self.step] += asleep(self.fault.delay(self.step))

    def charge(self, seconds: float) -> None:
        """A loss that has no delay of its own: how long something took."""
        self.planted[self.step] += seconds

    def close_step(self) -> None:
        now = time.perf_counter()
        self.steps.append(now - self._begun)
        self._begun = now
        self.step += 1

    def start(self) -> None:
        self._begun = time.perf_counter()

    def write(self, folder: Path) -> None:
        numbers = range(1, len(self.steps) + 1)
        told = {
            "steps": self.steps,
            "planted": [self.planted[step] for step in numbers],
            "device": [self.device[step] for step in numbers],
            "update": [self.update[step] for step in numbers],
            "skipped": self.skipped,
            "twins": self.twins,
            "mended": self.mended,
        }
        (folder / f"rank-{self.rank}.json").write_text(json.dumps(told), encoding="utf-8")


def overslept(book: Books) -> float:
    """Part of the time by which blocks computed longer than they mostly do: the machine's doing.

    A block sleeps as long as it is told to, in every step alike.
    """
    told = [book.device[step] for step in range(2, len(book.steps) + 1)]
    if not any(told):
        return 0.0
    usual = statistics.median(told)
    return sum(max(seconds - usual, 0.0) for seconds in told) / sum(book.steps[1:])


def asleep(seconds: float) -> float:
    """Sleep; how long it was in truth."""
    begin = time.perf_counter()
    time.sleep(seconds)
    return time.perf_counter() - begin
