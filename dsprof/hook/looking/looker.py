"""A thread that looks at another one now and then, and that the job does not notice.

It is none that `threading` lists: a script that joins all threads would wait for it for ever.
"""

from __future__ import annotations

import _thread
import contextlib
import gc
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from time import perf_counter, thread_time_ns
from typing import Final

from dsprof.hook.guard import Guard

EVERY: Final = 0.2  # seconds between two looks, in the mean
BUSY: Final = 60.0  # for so many seconds; then less often, until it is
SLOWEST: Final = 5.0  # times as long: a few hundred looks tell what more would
#: Irregular, or looks would always meet the same line of a loop that takes as long. Fractions of
#: the golden ratio: no random numbers, which are training's.
_STRIDE: Final = 0.6180339887498949
SHORTEST: Final = 1e-3  # seconds for which a thread may keep the lock, or a look would be cut short
PATIENCE: Final = 0.5  # seconds that the end of training waits for a look


class Looker:
    """Calls `look` with the seconds by which it comes late, until it is stopped.

    Attributes:
        failed: why it ended by itself; "" if it did not.
    """

    def __init__(
        self,
        look: Callable[[float], float | None],
        what: str,
        every: float = EVERY,
        then: Callable[[], bool] | None = None,
    ) -> None:
        """Nothing is looked at yet.

        Args:
            look: returns after how many seconds it is to be called again, None for the usual.
            what: what it does, for the line that says that it failed.
            every: seconds; 0 means never.
            then: called behind each look, where garbage may be collected; whether to look on.
        """
        self.look, self._every, self._then = look, every, then
        self.failed = ""
        self._holds_garbage = False  # none is collected, because somebody looks
        self._spent = self._told = 0  # ns
        self._goes_on, self._ended = _thread.allocate_lock(), _thread.allocate_lock()
        guard = Guard(what)
        guard.on_failure = self._fail
        self._guarded = guard(self._loop)

    def start(self) -> bool:
        """Begin to look, unless nobody may or another thread would change what the job says."""
        if not self._every > 0 or _would_be_warned_of() or not _can_tell():
            return False
        self._goes_on.acquire()
        self._ended.acquire()
        try:
            with _signals_blocked():  # they are for the job's own threads
                _thread.start_new_thread(self._run, ())
        except RuntimeError as error:  # no more threads
            self._fail(str(error))
            self._ended.release()
        return not self.failed

    def stop(self) -> None:
        if self._goes_on.locked():
            self._goes_on.release()
            if self._ended.acquire(timeout=PATIENCE):
                self._ended.release()

    def cost(self) -> int:
        """CPU time of the thread since this was last asked, in ns: training pays it, at worst."""
        spent, before = self._spent, self._told
        self._told = spent
        return spent - before

    def collect_again(self) -> None:
        """Behind a look, or in a process that was forked meanwhile: garbage may be collected."""
        if self._holds_garbage:
            gc.enable()
            self._holds_garbage = False

    def _fail(self, text: str) -> None:
        self.failed = text

    def _run(self) -> None:
        try:
            self._guarded()
        finally:
            self._ended.release()

    def _loop(self) -> None:
        """Look, and wait for the next time. Garbage is collected when something new is made: while
        it looks that is switched off, and while it waits it makes nothing.
        """
        begun, part, wait = perf_counter(), 0.0, self._every
        due = begun + wait
        while not self._goes_on.acquire(True, wait):  # by name, these would make a dict
            self._holds_garbage = gc.isenabled()
            gc.disable()
            try:
                again = None
                if sys.getswitchinterval() >= SHORTEST:
                    again = self.look(perf_counter() - due)
                self._spent = thread_time_ns()
                part, now = (part + _STRIDE) % 1.0, perf_counter()
                wait = self._every * (0.5 + part) * _rest(now - begun) if again is None else again
                due = now + wait
            finally:
                self.collect_again()
            if self._then is not None and not self._then():
                return
        self._goes_on.release()


@contextlib.contextmanager
def _signals_blocked() -> Iterator[None]:
    """A thread that is started meanwhile never takes a signal that another one blocks or waits
    for."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _would_be_warned_of() -> bool:
    """Whether Python would warn of forks because of this thread alone, as from 3.12 on it does
    where a process has several."""
    if sys.version_info < (3, 12):
        return False
    try:
        return len(os.listdir("/proc/self/task")) < 2  # noqa: PTH208 - their number
    except OSError:
        return False


def _can_tell() -> bool:
    """Whether this Python runs one thread at a time, else frames change while one looks, and tells
    how long another thread has run, as on Linux."""
    has_lock = getattr(sys, "_is_gil_enabled", lambda: True)()
    return bool(has_lock) and hasattr(time, "pthread_getcpuclockid")


def _rest(elapsed: float) -> float:
    """How many times longer than at first it waits from one look to the next."""
    return min(max(elapsed / BUSY, 1.0), SLOWEST)


def seconds_between(told: str | None) -> float:
    """What the environment says of it; what is no number between 1 ms and an hour means the usual,
    and 0 never."""
    try:
        seconds = float(told or EVERY)
    except ValueError:
        return EVERY
    return seconds if seconds == 0 or 1e-3 <= seconds <= 3600 else EVERY
