"""What another thread can know of where a thread is.

Python's lock decides when one may look: code that holds it is not seen where it is, but where it
lets go. So what is seen is what runs only if the thread

- needed no lock: it runs on a CPU while we hold the lock, or it stands still when nobody does; or
- held it for all of the interval for which one thread may keep it from the others: then it has run
  Python all the while, and lets go soon after what it was at (see `stacks`).

One that holds the lock for less lets go of it at a call into C, of a torch operator or a write to a
file. That is where it is then seen, and not what took the time.
"""

from __future__ import annotations

import _thread
import sys
import time
from collections import deque
from time import perf_counter
from typing import Final, NamedTuple

LATEST: Final = 1e-3  # seconds by which a look may come late at the most
USUAL: Final = 64  # looks whose lateness says what is usual on this machine
RUNS: Final = 0.5  # a part of the time: more on a CPU means that it computes
STANDS: Final = 0.1  # less means that it does not


class Moment(NamedTuple):
    """For how long the thread had run on a CPU by a time, both in seconds."""

    on_cpu: float
    at: float


class Glance(NamedTuple):
    """What a look knows before it looks.

    Attributes:
        at: None if the thread has ended, or nobody can tell.
        exact: it got the lock as soon as it is usual.
        forced: it got the lock behind all the time for which a thread may keep it.
        stood: the thread has hardly run since the look before.
    """

    at: Moment | None
    exact: bool
    forced: bool
    stood: bool

    @property
    def may_see(self) -> bool:
        return self.at is not None and (self.exact or self.forced or self.stood)


class Watched:
    """A thread's CPU clock, and how soon one gets Python's lock from it."""

    def __init__(self) -> None:
        self._late: deque[float] = deque(maxlen=USUAL)
        self._clock, self._clock_of = 0, 0  # of which thread's time on a CPU
        self._last: Moment | None = None  # of the last look

    def glance(self, thread: int, late: float) -> Glance:
        """To be called at each look, `late` seconds after it was due."""
        at, last = self.moment(thread), self._last
        self._last = at
        return Glance(at, *self.comes(late), stands(last, at))

    def was_there(self, glance: Glance, thread: int) -> bool:
        """Whether what was seen since the glance is what runs, and not only where it lets go of the
        lock. Where that is not sure, it may still stand there for a moment."""
        sure = glance.stood or glance.forced
        return sure or computes(glance.at, self.moment(thread))

    def find_clock(self, thread: int) -> None:
        """To be called by the thread itself: of one that has ended its clock might not be asked."""
        if _thread.get_ident() == thread != self._clock_of:
            self._clock, self._clock_of = time.pthread_getcpuclockid(thread), thread

    def moment(self, thread: int) -> Moment | None:
        """None if nobody can tell."""
        if self._clock_of != thread:
            return None
        try:
            return Moment(time.clock_gettime(self._clock), perf_counter())
        except OSError:  # the thread has ended
            return None

    def comes(self, late: float) -> tuple[bool, bool]:
        """Whether a look got the lock as soon as it is usual, and whether behind all the time for
        which a thread may keep it. `late`: seconds."""
        self._late.append(late)
        usual = sorted(self._late)[len(self._late) // 10]
        exact = late <= min(LATEST, 2 * usual + 5e-5)
        return exact, not exact and 0 <= late - sys.getswitchinterval() <= LATEST


def computes(before: Moment | None, now: Moment | None) -> bool:
    """Whether it surely ran on a CPU for most of the time between."""
    return bool(before and now) and _busy(before, now) >= RUNS


def stands(before: Moment | None, now: Moment | None) -> bool:
    """Whether it surely hardly ran."""
    return bool(before and now) and _busy(before, now) <= STANDS


def _busy(before: Moment | None, now: Moment | None) -> float:
    """The part of the time between for which the thread ran on a CPU."""
    if before is None or now is None or now.at <= before.at:
        return 0.0
    return (now.on_cpu - before.on_cpu) / (now.at - before.at)
