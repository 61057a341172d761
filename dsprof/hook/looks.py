"""In which functions the training thread is where no phase tells what it does: between phases, and
while a data loader without workers makes a batch.

A recording has how long that takes. What it is, a callback, a metric, a data set that opens files,
only the stack shows. A thread of its own looks at it a few times a second, as a sampling profiler
does, and counts what it sees. It reads, and calls nothing of the job's.

Python's lock decides when it may look: code that holds it is not seen where it is, but where it
lets go. So a look counts as one of unknown code unless the training thread

- needed no lock: it runs on a CPU while we hold the lock, or it stands still when nobody does; or
- held it for all of the interval for which one thread may keep it from the others: then it has run
  Python all the while, and lets go soon after what it was at (see `stacks`).

One that holds the lock for less lets go of it at a call into C, of a torch operator or a write to a
file. That is where it is then seen, and not what took the time.
"""

from __future__ import annotations

import _thread
import contextlib
import gc
import os
import signal
import sys
import time
from collections import Counter, deque
from collections.abc import Iterator
from time import perf_counter, thread_time_ns
from typing import Final, NamedTuple

from dsprof.hook.guard import Guard
from dsprof.hook.spans import DATA, Timeline
from dsprof.hook.stacks import MOST, Call, Stacks
from dsprof.hook.standing import Standing
from dsprof.recording import Unit, Writer
from dsprof.recording.layout import BETWEEN_CALLS, OVER, PHASE

EVERY: Final = 0.2  # seconds between two looks, in the mean
BUSY: Final = 60.0  # for so many seconds; then less often, until it is
SLOWEST: Final = 5.0  # times as long: a few hundred looks tell what more would
#: Irregular, or looks would always meet the same line of a loop that takes as long. Fractions of
#: the golden ratio: no random numbers, which are training's.
_STRIDE: Final = 0.6180339887498949
LATEST: Final = 1e-3  # seconds by which a look may come late at the most
USUAL: Final = 64  # looks whose lateness says what is usual on this machine
SHORTEST: Final = 1e-3  # seconds for which a thread may keep the lock, or a look would be cut short
AGAIN: Final = 2e-3  # seconds after which it looks whether the thread has stood still
RUNS: Final = 0.5  # a part of the time: more on a CPU means that it computes
STANDS: Final = 0.1  # less means that it does not
PATIENCE: Final = 0.5  # seconds that the end of training waits for a look
WRITE_EVERY: Final = 5_000_000_000  # ns between two writes at first, and later
PART: Final = 20  # a part of all the time so far: rows stay few however long a run is
STACKS: Final = 8  # that one write tells, the most frequent; of others only how many there were


class Seen(NamedTuple):
    """What one look saw: the outermost phase, or the last one if that is over, and the stack."""

    phase: int  # id of its name
    is_over: bool
    stack: tuple[Call, ...]  # the innermost first; none if the phase tells enough, or unknown


class Moment(NamedTuple):
    """For how long the training thread had run on a CPU by a time, both in seconds."""

    on_cpu: float
    at: float


class Looks:
    """A thread that looks; the training thread counts what it saw, and records it now and then.

    It is none that `threading` lists: a script that joins all threads would wait for it for ever.

    Attributes:
        due: when to write next, in ns of `perf_counter_ns`.
    """

    def __init__(self, timeline: Timeline, every: float = EVERY) -> None:
        self._timeline, self._every = timeline, every
        self._counts: Counter[Seen] = Counter()
        self._of_step: list[Seen] = []  # what was seen since a step ended
        self._known: dict[Seen, Seen] = {}  # one of each, however often it is seen
        self._stacks = Stacks()
        self._standing = Standing(timeline.writer, self._stacks)
        self._before: Moment | None = None  # of the last look
        self._late: deque[float] = deque(maxlen=USUAL)
        #: What was seen just now, and is to be looked at again.
        self._unsure: tuple[Seen, Moment | None] | None = None
        self._clock, self._clock_of = 0, 0  # of which thread's time on a CPU
        self._failed = ""
        self._holds_garbage = False  # none is collected, because somebody looks
        self._spent = self._told = 0  # ns
        self._begun = self.due = 0
        self._goes_on, self._ended = _thread.allocate_lock(), _thread.allocate_lock()
        guard = Guard("looking at what runs between phases")
        guard.on_failure = self._fail
        self._guarded = guard(self._loop)

    def start(self) -> None:
        """Begin to look, unless nobody may or another thread would change what the job says."""
        if not self._every > 0 or _would_be_warned_of() or not _can_tell():
            return
        self._find_clock()
        self._goes_on.acquire()
        self._ended.acquire()
        try:
            with _signals_blocked():  # they are for the job's own threads
                _thread.start_new_thread(self._run, ())
        except RuntimeError as error:  # no more threads
            self._fail(str(error))
            self._ended.release()

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

    def end_step(self) -> None:
        """Count what was seen since the step before; behind the last one it is of no step."""
        of_step, self._of_step = self._of_step, []
        self._counts.update(of_step)
        self._find_clock()

    def write(self, writer: Writer, at: int) -> None:
        """Record what was counted since the last time. `at`: ns of `perf_counter_ns`."""
        self._begun = self._begun or at
        self.due = at + max(WRITE_EVERY, (at - self._begun) // PART)
        counts, self._counts = self._counts, Counter()
        texts = _few(counts, frozenset(self._stacks.loops))
        for (phase, is_over, text), count in texts.items():
            name = writer.name("looks_after" if is_over else "looks", phase)
            told = writer.name(text) if text else 0
            writer.metric(name, count, unit=int(Unit.COUNT), at_ns=at, text=told)
        if self._failed:
            writer.config("looks", f"none: {self._failed}")
            self._failed = ""

    def _fail(self, text: str) -> None:
        self._failed = text

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
                late = perf_counter() - due
                if self._unsure:
                    self._look_again(*self._unsure, late)
                elif sys.getswitchinterval() >= SHORTEST:
                    self._look(late)
                self._spent = thread_time_ns()
                part, now = (part + _STRIDE) % 1.0, perf_counter()
                wait = self._every * (0.5 + part) * _rest(now - begun)
                wait = AGAIN if self._unsure else wait
                due = now + wait
            finally:
                self.collect_again()
        self._goes_on.release()

    def collect_again(self) -> None:
        """Behind a look, or in a process that was forked meanwhile: garbage may be collected."""
        if self._holds_garbage:
            gc.enable()
            self._holds_garbage = False

    def _look(self, late: float) -> None:
        """Note where the training thread is, and its stack unless a phase says what it does."""
        timeline, before = self._timeline, self._moment()
        exact, forced = self._comes(late)
        self._look_at_standing(before, exact=exact, forced=forced)
        word = timeline.writer.ring.cell[PHASE]
        phase, over, inner = word & (OVER - 1), bool(word & OVER), timeline.stack[-1:]
        if not phase or bool(inner) == over:  # before any, or just now another one
            return
        stack: tuple[Call, ...] = ()
        if inner and inner[0].phase.class_ != DATA:
            self._stacks.find_loops(timeline.thread)
        elif before and (exact or forced):
            stack = self._stacks.innermost(timeline.thread, inside=not over, exact=exact)
        seen, now = Seen(phase, over, stack), self._moment()
        if not stack or forced or (now and before and _busy(before, now) >= RUNS):
            self._note(seen)
        else:
            self._unsure = seen, now

    def _look_at_standing(self, now: Moment | None, *, exact: bool, forced: bool) -> None:
        """What has stood since the look before waits where it stands, however late this look is."""
        before, self._before = self._before, now
        stood = before is not None and now is not None and _busy(before, now) <= STANDS
        exact |= stood
        self._standing.look(self._timeline.thread, sees=exact or forced, exact=exact)

    def _look_again(self, seen: Seen, before: Moment | None, late: float) -> None:
        """Whether it has stood still while nobody held the lock, else it had waited for that; a
        look that comes late itself shows that it may have waited for a CPU."""
        self._unsure, now = None, self._moment()
        exact, _ = self._comes(late)
        stood = exact and before and now and _busy(before, now) <= STANDS
        self._note(seen if stood else seen._replace(stack=()))

    def _note(self, seen: Seen) -> None:
        self._of_step.append(self._known.setdefault(seen, seen))
        if len(self._known) > MOST:
            self._known.clear()

    def _comes(self, late: float) -> tuple[bool, bool]:
        """Whether it got the lock as soon as it is usual, and whether behind all the time for which
        a thread may keep it."""
        self._late.append(late)
        usual = sorted(self._late)[len(self._late) // 10]
        exact = late <= min(LATEST, 2 * usual + 5e-5)
        return exact, not exact and 0 <= late - sys.getswitchinterval() <= LATEST

    def _find_clock(self) -> None:
        """That of the training thread, which asks for it itself: of one that has ended it might
        not be asked."""
        thread = _thread.get_ident()
        if thread == self._timeline.thread != self._clock_of:
            self._clock, self._clock_of = time.pthread_getcpuclockid(thread), thread

    def _moment(self) -> Moment | None:
        """None if nobody can tell."""
        if self._clock_of != self._timeline.thread:
            return None
        try:
            return Moment(time.clock_gettime(self._clock), perf_counter())
        except OSError:  # the thread has ended
            return None


def _few(
    counts: Counter[Seen], loops: frozenset[tuple[str, str]]
) -> Counter[tuple[int, bool, str]]:
    """The most frequent stacks as texts; of others their own calls, if these are frequent, and
    else only how many there are."""
    whole: Counter[Seen] = Counter()
    for seen, count in counts.items():
        inner = [one for n, one in enumerate(seen.stack) if not n or one[:2] not in loops]
        whole[seen._replace(stack=tuple(inner))] += count
    own: Counter[Seen] = Counter()
    told: Counter[tuple[int, bool, str]] = Counter()
    for counted, more in ((whole, own), (own, None)):
        listed = 0
        for seen, count in counted.most_common():
            listed += bool(seen.stack)
            if listed <= STACKS or not seen.stack:
                told[seen.phase, seen.is_over, BETWEEN_CALLS.join(map(str, seen.stack))] += count
            elif more is not None:
                more[seen._replace(stack=tuple(one for one in seen.stack if one.is_own))] += count
            else:
                told[seen.phase, seen.is_over, ""] += count
    return told


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


def _busy(before: Moment, now: Moment) -> float:
    """The part of the time between for which the thread ran on a CPU."""
    passed = now.at - before.at
    return (now.on_cpu - before.on_cpu) / passed if passed > 0 else 0.0


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
