"""The stack of open phases of this process, and the time of each step by class.

Time blocked in a collective is charged to the innermost open phase and subtracted from that phase's
own class: communication inside backward counts as communication.
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
from dsprof.recording.layout import OVER, PHASE, SINCE, UNKNOWN

CLASSES: Final = tuple(Class)
COMMUNICATION: Final = CLASSES.index(Class.COMMUNICATION)
WAIT: Final = CLASSES.index(Class.WAIT)
DATA: Final = CLASSES.index(Class.DATA)
PATIENCE: Final = 1_000_000_000  # ns; rows are written this often during a step that does not end
MOST_MICROS: Final = (1 << 15) - 1  # the largest micro-batch number that fits into a row
MOST_TRACKS: Final = 256
_SPAN: Final = int(RowKind.SPAN)
_NONE: Final = [0] * len(CLASSES)


class Phase(NamedTuple):
    """A phase as the recording identifies it."""

    id: int  # of its path
    class_: int  # index into CLASSES


class Frame:
    """A phase that is open."""

    __slots__ = ("begin", "blocked", "depth", "device", "inner", "phase", "track")

    phase: Phase
    track: Track
    depth: int
    inner: int  # ns of the phases directly inside
    blocked: int  # ns in collectives and point-to-point calls that are in none of those
    begin: int
    device: Any  # set and used by `device.DeviceTimeline`


class Track:
    """One engine, or one model without an engine: its current step, and that step's time so far."""

    __slots__ = (
        "away", "backward_done", "backwards", "begin", "blind", "classes", "forwards", "left",
        "micro", "number", "step", "trains",
    )  # fmt: skip

    def __init__(self, number: int, step: int) -> None:
        self.number = number
        self.step = step  # the current one, counted from 1
        self.begin = 0  # ns; when the step began, 0 until the first phase opens
        self.left = 0  # ns; when its last phase ended
        self.trains = False  # it has ended a step before
        self.reset()

    def reset(self) -> None:
        self.classes = _NONE.copy()
        self.away = 0  # ns of this step that belong to other engines
        self.blind = False  # part of it was not seen, so its division into classes is unknown
        self.micro = 0  # changes from backward to forward
        self.backward_done = False
        self.forwards = self.backwards = 0  # with gradients; backwards: models without an engine

    @property
    def micros(self) -> int:
        """Micro-batches so far. Forwards and backwards alternate, or all forwards come first
        (GPipe).

        If one loss needs several forwards, there is one backward. If one forward has several
        losses, only one backward frees the graph that they share (`retain_graph=False`), and only
        that one is counted.
        """
        return max(self.micro + 1, min(self.forwards, self.backwards))


#: The innermost open phase, the engine, and its micro-batch (-1 without an engine).
Where = tuple[Optional[Frame], Optional[Track], int]


class Ended(NamedTuple):
    """A step that has ended."""

    track: int
    step: int
    begin: int  # ns, like `end`
    end: int
    own: int  # ns that recording itself took during the step


class Timeline:
    """The stack of open phases. Autograd's threads use it too, while the training thread waits for
    them, so it needs no lock.
    """

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self._record, self._ring = writer.spans.append, writer.ring
        self.stack: list[Frame] = []
        self.tracks: list[Track] = []
        self.current: Track | None = None  # the one whose phase was entered last
        self.guard = Guard()  # it measures the time that recording takes
        self.closing: list[Callable[[Ended], None]] = []  # called before a step is flushed
        self.renumbering: list[Callable[[Track, int], None]] = []  # called before rows change
        self.thread = get_ident()  # the training thread
        # Per thread: whether it is elsewhere, and has ended a step. Not keyed by thread id, because
        # ids are reused.
        self._mine = threading.local()
        self._due = now() + PATIENCE  # when buffered rows must be written

    def phase(self, path: str, class_: Class) -> Phase:
        """The phase of a path such as "step/optimizer_step"; `class_` is that of its own time.

        An outer phase must be requested, with its class, before the phases inside it.
        """
        outer, _, name = path.rpartition("/")
        parent = self.writer.name(outer) if outer else 0
        return Phase(self.writer.name(name, parent, class_), CLASSES.index(class_))

    def track(self, step: int) -> Track:
        """Add the track of a new engine, whose next step is `step`.

        Raises:
            DsprofError: there are more engines than a row can number.
        """
        if len(self.tracks) == MOST_TRACKS:
            raise DsprofError(f"is the {MOST_TRACKS + 1}th of one recording", "this engine")
        track = Track(len(self.tracks), step)
        self.tracks.append(track)
        return track

    def enter(self, track: Track, phase: Phase, *_: Any) -> Frame | None:
        """Open a phase. None on a thread that does not train: its work is not part of a step.

        `_` takes the arguments of the wrapped call, when this is called in front of one.
        """
        if get_ident() != self.thread and track.begin and self.is_elsewhere():
            return None
        stack = self.stack
        frame = Frame()  # filled here, because an `__init__` would double the cost
        frame.phase, frame.track, frame.depth = phase, track, len(stack)
        frame.inner = frame.blocked = 0
        stack.append(frame)
        if track is not self.current:
            self._turn(track)
        begin = now()
        if begin >= self._due:  # the phase may be long, and rows are waiting to be written
            self.flush()
            begin = now()
        frame.begin = begin
        if not frame.depth:
            self._ring.cell[PHASE] = begin & SINCE | phase.id
        if not track.begin:
            track.begin = begin
            self.thread = get_ident()
        return frame

    def begin(self, track: Track) -> None:
        """Begin the first step of `track` outside of any phase."""
        self.enter(track, Phase(0, 0))
        self.stack.pop()
        track.left = track.begin

    def _turn(self, track: Track) -> None:
        """Change the current engine. Its turn began where the previous engine's last phase ended.

        If a phase of its own is open, the turn was its own all along: one model may contain
        another.
        """
        before, self.current = self.current, track
        if any(frame.track is track for frame in self.stack[:-1]):
            return
        if before is not None and track.left:
            self._leave_out(track, before)

    def _leave_out(self, track: Track, before: Track) -> None:
        """Leave the turn of `before` out of the step of `track`."""
        track.away += max(0, before.left - track.left)

    def give(self, frame: Frame, track: Track) -> None:
        """Assign the innermost open phase to `track`, once it is known to belong to it."""
        frame.track = track
        if track is not self.current:
            self._turn(track)

    def enter_forward(self, track: Track, phase: Phase, *_: Any) -> Frame | None:
        """Like `enter`; a forward after a backward begins the next micro-batch."""
        if track.backward_done and not self.is_elsewhere():
            _turn_over(track)
        frame = self.enter(track, phase)
        if frame is not None:
            track.forwards += 1
        return frame

    def count_forward(self, track: Track) -> None:
        """A forward that has ended counts as one of training, after all."""
        if track.backward_done:
            _turn_over(track)
        track.forwards += 1

    def enter_once(self, track: Track, phase: Phase, *_: Any) -> Frame | None:
        """Like `enter`, but None inside the same phase, as where a trainer's own call is timed as a
        whole.

        A model that ends no steps, such as a reference model, and is called while another engine
        trains takes no turn: the phase is part of that engine's step, which waits for it.
        """
        if self.stack and self.is_open(phase):
            return None
        asking = self.current
        if asking is not None and asking.trains and not track.trains:
            track = asking
        return self.enter(track, phase)

    def leave(self, frame: Frame | None) -> None:
        """Close a phase and record its row. Does nothing for None or a frame no longer open."""
        end = now()
        stack = self.stack
        if frame is None or len(stack) <= frame.depth or stack[frame.depth] is not frame:
            return
        del stack[frame.depth :]  # also removes phases inside that an exception left open
        track, phase = frame.track, frame.phase
        track.left = end
        length = end - frame.begin
        track.classes[phase.class_] += length - frame.inner - frame.blocked
        if stack:
            stack[-1].inner += length
        else:
            self._ring.cell[PHASE] = end & SINCE | OVER | phase.id
        self._record(
            (_SPAN, track.number, phase.id, track.step, track.micro, frame.begin, length, -1, 0, 0)
        )
        if end >= self._due:
            self.flush()

    def put_off(self) -> None:
        """Let buffered rows wait for `PATIENCE` from now on."""
        self._due = now() + PATIENCE

    def revise(self, frame: Frame, phase: Phase) -> bool:
        """A closed phase of the current step turns out to be `phase`.

        False if its row was written meanwhile, because the step is long: the step's division into
        classes is then unknown.
        """
        track, rows = frame.track, self.writer.spans
        for place in range(len(rows) - 1, -1, -1):
            row = rows[place]
            if row[1] == track.number and row[2] == frame.phase.id and row[5] == frame.begin:
                own = row[6] - frame.inner - frame.blocked
                track.classes[frame.phase.class_] -= own
                track.classes[phase.class_] += own
                rows[place] = (*row[:2], phase.id, *row[3:])
                frame.phase = phase
                return True
        track.blind = True
        return False

    def is_elsewhere(self) -> bool:
        """Whether the current thread was started by Python and is not the training thread.

        Such a thread may load or save, but no step waits for it. Autograd's threads are not started
        by Python; they count as training.
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

    def holds_up(self) -> bool:
        """Whether training waits while the current thread does: its own, and those of autograd.

        A backend's thread, which runs what was chained to a future, waits while training goes on.
        """
        if get_ident() == self.thread:
            return True
        from torch._C import _current_graph_task_id

        return _current_graph_task_id() >= 0 and not self.is_elsewhere()

    def moves_here(self) -> bool:
        """Whether training has returned to this thread, which has ended a step before; if so, make
        it the training thread.

        This happens where a pool of threads runs the steps. To be called when a forward with
        gradients begins.
        """
        back = not self.stack and getattr(self._mine, "trains", False)
        if back:
            self.thread = get_ident()
        return back

    def is_open(self, phase: Phase) -> bool:
        for frame in self.stack:  # noqa: SIM110 - a generator costs more than the search itself
            if frame.phase == phase:
                return True
        return False

    def where(self) -> Where:
        track, stack = self.current, self.stack
        return stack[-1] if stack else None, track, track.micro if track else -1

    def block(self, length: int, class_: int) -> Where:
        """Charge `length` ns of waiting to the innermost open phase; return where that was.

        A length of -1 makes the step's division into classes unknown. Outside of any phase, the
        turn of the current engine lasts until now.
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
        """End the optimizer step `finished`; the next one begins at the same moment."""
        end = now()
        if self.is_elsewhere():  # training has moved to this thread, where it was not observed
            self.thread = get_ident()
            track.blind = True
        self._mine.trains = True
        if self.stack:  # an exception that training caught may have left phases open
            self.stack.clear()
            self._ring.cell[PHASE] = 0
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
        """Change the number of the current step to `step`, also in its buffered rows."""
        for action in self.renumbering:
            action(track, step)
        before, track.step = track.step, step
        for rows in (self.writer.spans, self.writer.collectives):
            rows[:] = [renumbered(row, track.number, before, step) for row in rows]

    def _write_step(self, track: Track, step: int, begin: int, end: int) -> None:
        seconds = UNKNOWN if track.blind else _seconds(track.classes, end - begin)
        self.writer.step(step, begin, end, seconds, track.micros, track.number)

    def flush(self) -> None:
        """Write the buffered rows."""
        self._due = now() + PATIENCE
        self.writer.flush()

    def finish(self) -> None:
        """End the recording: write what is left."""
        self.flush()


def _turn_over(track: Track) -> None:
    """The next micro-batch begins."""
    track.backward_done = False
    track.micro = min(track.micro + 1, MOST_MICROS)


def renumbered(row: tuple[int, ...], track: int, before: int, step: int) -> tuple[int, ...]:
    """`row` (of `layout.SPAN` or `COLLECTIVE`) with number `step`, if it is of step `before`."""
    engine, at = (1, 3) if row[0] == _SPAN else (2, 4)
    if row[engine] != track or row[at] != before:
        return row
    return (*row[:at], step, *row[at + 1 :])


def _seconds(classes: list[int], length: int) -> list[float]:
    """Seconds per class. They add up to the step: time that no phase covers is `other`."""
    classes[-1] += length - sum(classes)
    return [ns * 1e-9 for ns in classes]
