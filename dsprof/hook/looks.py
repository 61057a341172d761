"""In which lines of Python the training thread is where no phase tells what it does: between
phases, and while a data loader without workers makes a batch.

A recording has how long that takes. What it is, a callback, a metric, a data set that opens files,
only the stack shows. A thread of its own looks at it a few times a second, as a sampling profiler
does, and counts what it sees. It reads, and calls nothing of the job's.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import threading
from collections import Counter
from pathlib import Path
from time import monotonic, thread_time_ns
from types import FrameType
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
THREAD: Final = "dsprof-looks"
PATIENCE: Final = 0.5  # seconds that the end of training waits for a look
WRITE_EVERY: Final = 5_000_000_000  # ns between two writes at first, and later
PART: Final = 20  # a part of all the time so far: rows stay few however long a run is
INNER: Final = 5  # frames of libraries that are told, inside of the job's own code
OWN: Final = 3  # frames of the job's own code that are told, the innermost
LONGEST: Final = 200  # letters of the name of a function, or of a file
FILES: Final = 4096  # that are remembered; what torch.compile makes has ever new names
DEEPEST: Final = 100  # frames in which these are looked for
OF_ONE: Final = 5  # looks at one pause, or batch, that count: a single long one is none of a step's
STACKS: Final = 8  # that one write tells, the most frequent; of others only how many there were
BETWEEN: Final = " < "  # from a frame to the one that called it

_LIBRARIES: Final = ("/site-packages/", "/dist-packages/")
_INSTALLED: Final = tuple({
    f"{sysconfig.get_path(name)}{os.sep}" for name in ("stdlib", "platstdlib", "purelib", "platlib")
})  # fmt: skip
_OURS: Final = str(Path(__file__).parents[1]) + os.sep


class Seen(NamedTuple):
    """What one look saw: the outermost phase, or the last one if that is over, and the stack."""

    phase: int  # id of its name
    is_over: bool
    stack: str  # frames, the innermost first; "" if the phase tells enough, or they are not kept


class Looks:
    """A daemon thread that counts stacks; the training thread records the counts now and then.

    Attributes:
        due: when to write next, in ns of `perf_counter_ns`.
    """

    def __init__(self, timeline: Timeline, every: float = EVERY) -> None:
        self._timeline, self._every = timeline, every
        self._counts: Counter[Seen] = Counter()
        self._pause, self._of_pause = 0, Counter[Seen]()  # which it is; what was seen in it so far
        #: File of code → how it is told, and whether it is the job's own.
        self._files: dict[str, tuple[str, bool]] = {}
        self._here = _working_folder()
        self._failed = ""
        self._spent = self._told = 0  # ns
        self._begun = self.due = 0
        self._stopping = threading.Event()
        guard = Guard("looking at what runs between phases")
        guard.on_failure = self._fail
        self._thread = threading.Thread(target=guard(self._loop), name=THREAD, daemon=True)

    def start(self) -> None:
        if self._every > 0:
            self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(PATIENCE)
        if self._timeline.writer.ring.cell[PHASE] != self._pause:
            self._count()

    def cost(self) -> int:
        """CPU time of the thread since this was last asked, in ns: training pays it, at worst."""
        spent, before = self._spent, self._told
        self._told = spent
        return spent - before

    def write(self, writer: Writer, at: int) -> None:
        """Record what was seen since the last time. `at`: ns of `perf_counter_ns`."""
        self._begun = self._begun or at
        self.due = at + max(WRITE_EVERY, (at - self._begun) // PART)
        counts, self._counts = self._counts, Counter()
        told, others = 0, Counter[Seen]()
        for seen, count in counts.most_common():  # a copy: the thread may count a last one
            told += bool(seen.stack)
            others[seen if told <= STACKS else seen._replace(stack="")] += count
        for seen, count in others.items():
            name = writer.name("looks_after" if seen.is_over else "looks", seen.phase)
            text = writer.name(seen.stack) if seen.stack else 0
            writer.metric(name, count, unit=int(Unit.COUNT), at_ns=at, text=text)
        if self._failed:
            writer.config("looks", f"none: {self._failed}")
            self._failed = ""

    def _fail(self, text: str) -> None:
        self._failed = text

    def _loop(self) -> None:
        part, begun = 0.0, monotonic()
        while not self._stopping.wait(self._every * (0.5 + part) * _rest(monotonic() - begun)):
            part = (part + _STRIDE) % 1.0
            self._look()
            self._spent = thread_time_ns()

    def _look(self) -> None:
        """Count where the training thread is, and its stack unless a phase says what it does.

        Of a pause only once it is over: behind the last one no step comes that it belongs to.
        """
        timeline = self._timeline
        word = timeline.writer.ring.cell[PHASE]
        if word != self._pause:  # it holds when it began
            self._count()
            self._pause = word
        phase, over, inner = word & OVER - 1, bool(word & OVER), timeline.stack[-1:]
        if not phase or bool(inner) == over:  # before any, or just now another one
            return
        if inner and inner[0].phase.class_ != DATA:
            self._counts[Seen(phase, over, "")] += 1
            return
        frame = sys._current_frames().get(timeline.thread)  # noqa: SLF001 - there is no other way
        if frame is not None:
            self._of_pause[Seen(phase, over, self._stack(frame))] += 1

    def _count(self) -> None:
        of_pause, self._of_pause = self._of_pause, Counter()
        part = min(1.0, OF_ONE / (sum(of_pause.values()) or 1))
        for seen, count in of_pause.items():
            if kept := round(part * count):
                self._counts[seen] += kept

    def _stack(self, frame: FrameType | None) -> str:
        """The innermost frames of libraries, then the job's own that called them."""
        told: list[str] = []
        inner, own = INNER, OWN
        for _ in range(DEEPEST):
            if frame is None or not own:
                break
            code = frame.f_code
            file, is_own = self._files.get(code.co_filename) or self._file(code.co_filename)
            if file and (is_own or inner):
                name = getattr(code, "co_qualname", code.co_name)[-LONGEST:]
                told.append(f"{name} {file}:{frame.f_lineno}")
                own -= is_own
                inner = 0 if is_own else inner - 1
            frame = frame.f_back
        return BETWEEN.join(told)

    def _file(self, name: str) -> tuple[str, bool]:
        """How the file is told, "" for our own, and whether it is the job's and no library's: then
        it begins with / or ./, else with the name of its package."""
        if name.startswith(_OURS):
            found = "", False
        elif below := _in_library(name):
            found = below, False
        else:
            own = name.removeprefix(self._here)[-LONGEST:]
            found = own if own.startswith(("/", "<")) else f"./{own}", not own.startswith("<")
        if len(self._files) == FILES:
            self._files.clear()
        self._files[name] = found
        return found


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
