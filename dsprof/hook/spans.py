"""Open phases of this process, and where the nanoseconds of each step went.

Time blocked in a collective is charged to the innermost phase it happens in, and taken out
of that phase's own class: communication inside backward is communication.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from threading import get_ident
from time import perf_counter_ns as now
from typing import Any, Final, NamedTuple, Optional

from dsprof.errors import DsprofError
from dsprof.events import Class
from dsprof.hook.guard import Guard
from dsprof.recording import RowKind, Writer
from dsprof.recording.layout import UNKNOWN

CLASSES: Final = tuple(Class)
COMMUNICATION: Final = CLASSES.index(Class.COMMUNICATION)
WAIT: Final = CLASSES.index(Class.WAIT)
PATIENCE: Final = 1_000_000_000  # ns after which rows of a step that does not end are written
MOST_MICROS: Final = (1 << 15) - 1  # as many as a row can say
MOST_TRACKS: Final = 256
_SPAN: Final = int(RowKind.SPAN)
_NONE: Final = [0] * len(CLASSES)


class Phase(NamedTuple):
    """A phase as the recording knows it."""

    id: int
    class_: int  # index into CLASSES


class Frame:
    """One open phase."""

    __slots__ = ("begin", "blocked", "depth", "device", "inner", "phase", "track")

    phase: Phase
    track: Track
    depth: int
    inner: int  # ns of phases inside
    blocked: int  # ns in collectives and point-to-point, outside of those
    begin: int
    device: Any  # what `device.DeviceTimeline` knows of it


class Track:
    """One engine: the step it is in, and what that step was made of so far."""

    __slots__ = (
        "away", "backward_done", "backwards", "begin", "blind", "classes", "forwards", "left",
        "micro", "number", "step", "trains",
    )  # fmt: skip

    def __init__(self, number: int, step: int) -> None:
        self.number = number
        self.step = step  # the one under way, counted from 1
        self.begin = 0  # ns; 0 until the first phase opens
        self.left = 0  # ns; when its last phase ended
        self.trains = False  # it has ended a step
        self.reset()

    def reset(self) -> None:
        self.classes = _NONE.copy()
        self.away = 0  # ns of this step that were another engine's
        self.blind = False  # a collective whose waiting the host cannot see
        self.micro = 0  # turns from backward to forward
        self.backward_done = False
        self.forwards = self.backwards = 0  # that learn, of a model without an engine

    @property
    def micros(self) -> int:
        """Micro-batches so far: each has a forward and a backward, in turns, or in a row (GPipe).

        Several forwards of one loss have one backward. Several losses of one forward have one
        backward that lets go of what they share, behind which it can be asked no more.
        """
        return max(self.micro + 1, min(self.forwards, self.backwards))


#: The innermost open phase, the engine and its micro-batch, -1 without one.
Where = tuple[Optional[Frame], Optional[Track], int]


class Ended(NamedTuple):
    """A step that is over."""

    track: int
    step: int
    begin: int
    end: int
    own: int  # ns that recording took meanwhile


class Timeline:
    """The stack of open phases. Autograd's threads use it while the main one waits for them."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self._record = writer.spans.append
        self.stack: list[Frame] = []
        self.tracks: list[Track] = []
        self.current: Track | None = None  # whose phase was open last
        self.guard = Guard()  # whose account of time is the recording's
        self.closing: list[Callable[[Ended], None]] = []  # before a step is written
        self.renumbering: list[Callable[[Track, int], None]] = []  # before its rows are
        self.thread = get_ident()  # the one that trains
        # Of a thread: whether it is elsewhere, and has ended a step. Ids come again.
        self._mine = threading.local()
        self._due = now() + PATIENCE  # when what waits must be written

    def phase(self, path: str, class_: Class) -> Phase:
        """The phase of that path, "step/optimizer_step"; its class is that of its own time.

        An outer phase is named, with its class, before those inside it.
        """
        outer, _, name = path.rpartition("/")
        parent = self.writer.name(outer) if outer else 0
        return Phase(self.writer.name(name, parent, class_), CLASSES.index(class_))

    def track(self, step: int) -> Track:
        """A new engine's, whose next step is `step`.

        Raises:
            DsprofError: more engines than a row can name.
        """
        if len(self.tracks) == MOST_TRACKS:
            raise DsprofError(f"is the {MOST_TRACKS + 1}th of one recording", "this engine")
        track = Track(len(self.tracks), step)
        self.tracks.append(track)
        return track

    def enter(self, track: Track, phase: Phase, *_: Any) -> Frame | None:
        """None in another thread than the one that trains: what it does is no part of a step.

        `_`: where it stands before a call, that call's arguments.
        """
        if get_ident() != self.thread and track.begin and self.is_elsewhere():
            return None
        stack = self.stack
        frame = Frame()  # filled here: a call of its own would cost as much again
        frame.phase, frame.track, frame.depth = phase, track, len(stack)
        frame.inner = frame.blocked = 0
        stack.append(frame)
        if track is not self.current:
            self._turn(track)
        begin = now()
        if begin >= self._due:  # the phase may be long, and rows wait
            self.flush()
            begin = now()
        frame.begin = begin
        if not track.begin:
            track.begin = begin
            self.thread = get_ident()
        return frame

    def begin(self, track: Track) -> None:
        """Its first step begins, in what is no phase."""
        self.enter(track, Phase(0, 0))
        self.stack.pop()

    def _turn(self, track: Track) -> None:
        """From the end of the last engine's last phase on it is this engine's turn.

        Within a phase of its own it was its turn all the while: one model may hold another.
        """
        before, self.current = self.current, track
        if any(frame.track is track for frame in self.stack[:-1]):
            return
        if before is not None and track.left and before.left > track.left:
            track.away += before.left - track.left

    def give(self, frame: Frame, track: Track) -> None:
        """The innermost open phase turns out to be that engine's."""
        frame.track = track
        if track is not self.current:
            self._turn(track)

    def enter_forward(self, track: Track, phase: Phase, *_: Any) -> Frame | None:
        """As `enter`; a forward after a backward begins the next micro-batch."""
        if track.backward_done and not self.is_elsewhere():
            track.backward_done = False
            track.micro = min(track.micro + 1, MOST_MICROS)
        frame = self.enter(track, phase)
        if frame is not None:
            track.forwards += 1
        return frame

    def enter_once(self, track: Track, phase: Phase, *_: Any) -> Frame | None:
        """As `enter`; not inside the same phase, of which a trainer's own call is all.

        What another engine's training asks, as a reference model that ends no steps, takes no
        turn: it is a phase of that one's step, which waits for it.
        """
        if self.stack and self.is_open(phase):
            return None
        asking = self.current
        if asking is not None and asking.trains and not track.trains:
            track = asking
        return self.enter(track, phase)

    def leave(self, frame: Frame | None) -> None:
        end = now()
        stack = self.stack
        if frame is None or len(stack) <= frame.depth or stack[frame.depth] is not frame:
            return
        del stack[frame.depth :]  # and what an exception left open inside
        track, phase = frame.track, frame.phase
        track.left = end
        length = end - frame.begin
        track.classes[phase.class_] += length - frame.inner - frame.blocked
        if stack:
            stack[-1].inner += length
        self._record(
            (_SPAN, track.number, phase.id, track.step, track.micro, frame.begin, length, -1, 0)
        )
        if end >= self._due:
            self.flush()

    def is_elsewhere(self) -> bool:
        """Whether this is another of Python's threads than the one that trains.

        What a thread of its own loads or saves keeps no step waiting. Autograd's threads
        train too: they are not Python's.
        """
        thread = get_ident()
        if thread == self.thread:
            return False
        found: bool | None = getattr(self._mine, "elsewhere", None)
        if found is None:
            names = {one.ident: type(one).__name__ for one in threading.enumerate()}
            found = names.get(thread, "_DummyThread") != "_DummyThread"
            self._mine.elsewhere = found
        return found

    def moves_here(self) -> bool:
        """Whether training is back in this thread, where it has ended a step before, as where each
        step is given to any one of a pool's threads. Asked as a forward of training begins."""
        back = not self.stack and getattr(self._mine, "trains", False)
        if back:
            self.thread = get_ident()
        return back

    def is_open(self, phase: Phase) -> bool:
        for frame in self.stack:  # noqa: SIM110 - a generator would cost more than the search
            if frame.phase == phase:
                return True
        return False

    def where(self) -> Where:
        track, stack = self.current, self.stack
        return stack[-1] if stack else None, track, track.micro if track else -1

    def block(self, length: int, class_: int) -> Where:
        """Charge `length` ns of waiting to where we are; -1 makes the step's split unknown.

        Outside of any phase it is that engine's turn until then.
        """
        frame, track, _ = where = self.where()
        if track and length < 0:
            track.blind = True
        elif track:
            track.classes[class_] += length
            if frame is None:
                track.left = now()
        if frame and length > 0:
            frame.blocked += length
        return where

    def close_step(self, track: Track, finished: int) -> None:
        """The optimizer step `finished` is over; the next one begins at this moment."""
        end = now()
        if self.is_elsewhere():  # training has moved here, and what it did was not seen
            self.thread = get_ident()
            track.blind = True
        self._mine.trains = True
        self.stack.clear()  # an exception that training survived may have left phases open
        own, self.guard.own = self.guard.own, 0
        begin = track.begin + track.away
        self._write_step(track, finished, begin, end)
        track.reset()
        track.trains, track.step = True, finished + 1
        track.begin = track.left = end
        ended = Ended(track.number, finished, begin, end, own)
        for action in self.closing:
            action(ended)
        self.flush()

    def renumber(self, track: Track, step: int) -> None:
        """The step under way has that number, and what waits to be written of it, too."""
        for action in self.renumbering:
            action(track, step)
        before, track.step = track.step, step
        for rows in (self.writer.spans, self.writer.collectives):
            rows[:] = [renumbered(row, track.number, before, step) for row in rows]

    def _write_step(self, track: Track, step: int, begin: int, end: int) -> None:
        seconds = UNKNOWN if track.blind else _seconds(track.classes, end - begin)
        self.writer.step(step, begin, end, seconds, track.micros, track.number)

    def flush(self) -> None:
        """Write what waits."""
        self._due = now() + PATIENCE
        self.writer.flush()

    def finish(self) -> None:
        """Recording ends: write what still waits."""
        self.flush()


def renumbered(row: tuple[int, ...], track: int, before: int, step: int) -> tuple[int, ...]:
    """A row of `layout.SPAN` or `COLLECTIVE` of the step that was number `before`."""
    engine, at = (1, 3) if row[0] == _SPAN else (2, 4)
    if row[engine] != track or row[at] != before:
        return row
    return (*row[:at], step, *row[at + 1 :])


def _seconds(classes: list[int], length: int) -> list[float]:
    """Seconds per class; together they are the step, for what no phase covers is `other`."""
    classes[-1] += length - sum(classes)
    return [ns * 1e-9 for ns in classes]
