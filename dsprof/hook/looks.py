"""In which functions the training thread is where no phase tells what it does: between phases, and
while a data loader without workers makes a batch.

A recording has how long that takes. What it is, a callback, a metric, a data set that opens files,
only the stack shows. A thread of its own looks at it a few times a second, as a sampling profiler
does, and counts what it sees. It reads, and calls nothing of the job's.

Python's lock decides when it may look: code that holds it is not seen where it is, but where it
lets go. So a look counts as one of unknown code unless it came in time, when the training thread
held no lock, or after the interval for which one thread may keep it from the others: then that
thread has run Python all the while, and lets go soon after what it was at. It does so where
Python looks whether it should: at the end of a turn of a loop, behind a call into C, and where it
enters a function, of which nothing has run yet. So the function is told then that it is in, and
not the line, and not one that it has just entered.

No frame is kept, and no garbage is collected in this thread: what ends the life of the job's
objects is the job's own threads, as it would be without it.
"""

from __future__ import annotations

import _thread
import contextlib
import dis
import gc
import os
import signal
import sys
import sysconfig
from collections import Counter, deque
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter, thread_time_ns
from types import CodeType
from typing import Final, NamedTuple

from dsprof.hook.guard import Guard
from dsprof.hook.spans import DATA, Timeline
from dsprof.recording import Unit, Writer
from dsprof.recording.layout import OVER, PHASE

EVERY: Final = 0.2  # seconds between two looks, in the mean
BUSY: Final = 60.0  # for so many seconds; then less often, until it is
SLOWEST: Final = 5.0  # times as long: a few hundred looks tell what more would
#: Irregular, or looks would always meet the same line of a loop that takes as long. Fractions of
#: the golden ratio: no random numbers, which are training's.
_STRIDE: Final = 0.6180339887498949
LATEST: Final = 1e-3  # seconds by which a look may come late at the most
USUAL: Final = 64  # looks whose lateness says what is usual on this machine
PATIENCE: Final = 0.5  # seconds that the end of training waits for a look
WRITE_EVERY: Final = 5_000_000_000  # ns between two writes at first, and later
PART: Final = 20  # a part of all the time so far: rows stay few however long a run is
INNER: Final = 5  # frames of libraries that are told, inside of the job's own code
OWN: Final = 3  # frames of the job's own code that are told, the innermost
LONGEST: Final = 200  # letters of the name of a function, or of a file
FILES: Final = 4096  # that are remembered; what torch.compile makes has ever new names
DEEPEST: Final = 100  # frames in which these are looked for
STACKS: Final = 8  # that one write tells, the most frequent; of others only how many there were
BETWEEN: Final = " < "  # from a frame to the one that called it

SHORTEST: Final = 1e-3  # seconds for which a thread may keep the lock, or a look would be cut short

_RESUME: Final = dis.opmap.get("RESUME")
_LIBRARIES: Final = ("/site-packages/", "/dist-packages/")
_INSTALLED: Final = tuple({
    f"{sysconfig.get_path(name)}{os.sep}" for name in ("stdlib", "platstdlib", "purelib", "platlib")
})  # fmt: skip
_OURS: Final = str(Path(__file__).parents[1]) + os.sep


class Call(NamedTuple):
    """One frame of a stack."""

    function: str
    file: str  # "" for our own
    line: int  # 0 in libraries, where the function says enough
    is_own: bool  # of the job's own code

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{self.function} ({place})"


class Seen(NamedTuple):
    """What one look saw: the outermost phase, or the last one if that is over, and the stack."""

    phase: int  # id of its name
    is_over: bool
    stack: tuple[Call, ...]  # the innermost first; none if the phase tells enough, or it came late


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
        self._loops: set[tuple[str, str]] = set()  # functions of the job that call phases
        #: File of code → how it is told, and whether it is the job's own.
        self._files: dict[str, tuple[str, bool]] = {}
        self._here = _working_folder()
        self._late: deque[float] = deque(maxlen=USUAL)
        self._failed = ""
        self._holds_garbage = False  # none is collected, because somebody looks
        self._spent = self._told = 0  # ns
        self._begun = self.due = 0
        self._goes_on, self._ended = _thread.allocate_lock(), _thread.allocate_lock()
        self._guard = Guard("looking at what runs between phases")
        self._guard.on_failure = self._fail

    def start(self) -> None:
        """Begin to look, unless nobody may or another thread would change what the job says."""
        if not self._every > 0 or _would_be_warned_of() or not _has_lock():
            return
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

    def write(self, writer: Writer, at: int) -> None:
        """Record what was counted since the last time. `at`: ns of `perf_counter_ns`."""
        self._begun = self._begun or at
        self.due = at + max(WRITE_EVERY, (at - self._begun) // PART)
        counts, self._counts = self._counts, Counter()
        texts = _few(counts, frozenset(self._loops))
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
            self._guard(self._loop)()
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
                if sys.getswitchinterval() >= SHORTEST:
                    self._look(perf_counter() - due)
                self._spent = thread_time_ns()
                part, now = (part + _STRIDE) % 1.0, perf_counter()
                wait = self._every * (0.5 + part) * _rest(now - begun)
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
        timeline = self._timeline
        word = timeline.writer.ring.cell[PHASE]
        phase, over, inner = word & (OVER - 1), bool(word & OVER), timeline.stack[-1:]
        in_time, at_once = self._is_in_time(late)
        if not phase or bool(inner) == over:  # before any, or just now another one
            return
        stack: tuple[Call, ...] = ()
        if inner and inner[0].phase.class_ != DATA:
            self._find_loops()
        elif in_time:
            stack = tuple(self._stack(inside=not over, entered=at_once))
        seen = Seen(phase, over, stack)
        self._of_step.append(self._known.setdefault(seen, seen))
        if len(self._known) > FILES:
            self._known.clear()

    def _is_in_time(self, late: float) -> tuple[bool, bool]:
        """Whether the training thread held no lock when it was time to look, or all the time for
        which it may hold it; and whether it was the former."""
        self._late.append(late)
        usual = sorted(self._late)[len(self._late) // 10]
        at_once = late <= min(LATEST, 2 * usual + 5e-5)
        return at_once or 0 <= late - sys.getswitchinterval() <= LATEST, at_once

    def _stack(self, *, inside: bool, entered: bool) -> Iterator[Call]:
        """The innermost frames of libraries, then the job's own that called them. Where it is
        `inside` a phase, only what lies in that.

        Args:
            entered: the innermost function is in what its line says, not only somewhere.
        """
        inner, own, met = INNER, OWN, False
        for call in self._calls(exact=entered):
            if not call.file:
                if met and inside:
                    return
                continue
            met = True
            if own and (call.is_own or inner):
                yield call
                own -= call.is_own
                inner = 0 if call.is_own else inner - 1

    def _find_loops(self) -> None:
        """The job's own functions outside of the phase that is open call it: that something runs
        in one of them says nothing."""
        outside: list[Call] = []
        for call in self._calls():
            outside = [*outside, call] if call.file else []
        if len(self._loops) < FILES:
            self._loops.update((call.function, call.file) for call in outside if call.is_own)

    def _calls(self, *, exact: bool = True) -> Iterator[Call]:
        """The calls of the training thread, the innermost first. Where it is not `exact` where that
        one is, it is told without its line, and not at all if it has only been entered."""
        frames = _frames_of(self._timeline.thread)
        if not exact:
            del frames[: bool(frames and _only_entered(*frames[0]))]
            frames[:1] = [(code, 0, at) for code, _, at in frames[:1]]
        for code, line, _ in frames:
            file, is_own = self._files.get(code.co_filename) or self._file(code.co_filename)
            name = getattr(code, "co_qualname", code.co_name)[-LONGEST:]
            yield Call(name, file, line if is_own else 0, is_own)

    def _file(self, name: str) -> tuple[str, bool]:
        """How the file is told, "" for our own, and whether it is the job's and no library's: then
        it begins with / or ./, else with the name of its package."""
        if name.startswith(_OURS):
            found = "", False
        elif below := _in_library(name):
            found = below[-LONGEST:], False
        else:
            own = name.removeprefix(self._here)
            sign = "" if own.startswith(("/", "<")) else "./"
            found = sign + own[:LONGEST], not own.startswith("<")
        if len(self._files) == FILES:
            self._files.clear()
        self._files[name] = found
        return found


def _frames_of(thread: int) -> list[tuple[CodeType, int, int]]:
    """Code, line and instruction of each frame, the innermost first; no frame outlives the call."""
    frame = sys._current_frames().get(thread)  # noqa: SLF001 - there is no other way
    found: list[tuple[CodeType, int, int]] = []
    while frame is not None and len(found) < DEEPEST:
        found.append((frame.f_code, frame.f_lineno or 0, frame.f_lasti))
        frame = frame.f_back
    return found


def _only_entered(code: CodeType, _line: int, instruction: int) -> bool:
    """Whether nothing of a function has run since it was called, or went on as a generator: it is
    at the instruction of that, or, before Python 3.11, which has none, in front of its first."""
    if _RESUME is None:
        return instruction <= 0
    return 0 <= instruction < len(code.co_code) and code.co_code[instruction] == _RESUME


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
                told[seen.phase, seen.is_over, BETWEEN.join(map(str, seen.stack))] += count
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


def _has_lock() -> bool:
    """Whether this Python runs one thread at a time: else frames change while one looks."""
    return bool(getattr(sys, "_is_gil_enabled", lambda: True)())


def _in_library(name: str) -> str:
    """The path of an installed file, from where packages lie; "" for any other."""
    for mark in _LIBRARIES:
        if mark in name:
            return name.rpartition(mark)[2]
    return next((name[len(path) :] for path in _INSTALLED if name.startswith(path)), "")


def _working_folder() -> str:
    try:
        return f"{Path.cwd()}{os.sep}"
    except OSError:  # it was removed
        return os.sep


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
