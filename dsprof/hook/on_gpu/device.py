"""Phases and collectives in device time: on a GPU, host time says nothing about the work.

Wherever the host would read its clock, a mark is recorded on the compute stream. The rows of a step
are held back, with their marks, until the device has passed the step's last mark. Then the lengths
are divided like host time: the time of a wait is subtracted from the phase that holds it. A step
whose own marks are lost is written without a division into classes.

The device's clock shows when, within a step, it came to a mark. When it began the step by the
host's clock follows from what cannot be otherwise (`_came_to`): exact where the device had to wait
for the host, and in between counted on by the device's clock. If it never waits, it may be too
early, by no more than the host is ahead.
"""

from __future__ import annotations

import operator
import time
from collections import deque
from itertools import islice
from time import perf_counter_ns as now
from typing import Any, Final, NamedTuple

from dsprof.hook.on_gpu.cuda import ASIDE, NONE, RING, Came, DeviceClock, Marks, elapsed
from dsprof.hook.spans import CLASSES, Frame, Phase, Timeline, Track, Where, renumbered
from dsprof.recording import ON_DEVICE, THINNED, RowKind, Writer
from dsprof.recording.layout import ROWS, UNKNOWN

MOST: Final = 8 * RING  # rows of a step that are held back
OFTEN: Final = RING // 8  # marks, after which those that the device has passed are read
AHEAD: Final = 64  # steps that may wait for the device; older ones are written without device times
PATIENCE: Final = 0.2  # seconds that the end of recording gives the device to finish its last steps

COLLECTIVE: Final = int(RowKind.COLLECTIVE)
AWAY: Final = -1  # in place of a class: the time of another engine's turn
_SPAN: Final = int(RowKind.SPAN)
_SPAN_AT: Final = {name: place for place, name in enumerate(ROWS[RowKind.SPAN][1])}
CALL_AT: Final = {name: place for place, name in enumerate(ROWS[RowKind.COLLECTIVE][1])}
_BEGIN, _GPU, _GPU_BEGIN = (_SPAN_AT[name] for name in ("begin", "gpu", "gpu_begin"))
_FLAGS, _WAIT, _BLOCKED = (CALL_AT[name] for name in ("flags", "wait", "blocked"))
_COUNT, _SIZE = CALL_AT["count"], CALL_AT["size"]
_KEY: Final = operator.itemgetter(*(CALL_AT[name] for name in ("engine", "name", "group")))


class Interval:
    """The time of a phase, or of a wait, on the device."""

    __slots__ = ("above", "begin", "came", "class_", "end", "inner", "length", "row", "written")

    def __init__(self, class_: int, above: Interval | None, begin: int, end: int = -1) -> None:
        self.class_, self.above = class_, above
        self.begin, self.end = begin, end
        self.came: Came | None = None  # when the device came to `begin`; None if not yet known
        self.length = -1  # ns; -1 if not known
        self.inner = 0  # ns of the intervals directly inside
        self.row: tuple[int, ...] = ()  # empty: it has no row, only its time counts
        self.written = False

    @property
    def is_hidden(self) -> bool:
        """Whether it held up nothing: a collective that another stream waited for, or an interval
        without a row, all on another stream.
        """
        return self.begin == ASIDE == self.end and (not self.row or self.row[0] == COLLECTIVE)


class Step:
    """What the device does of a step, from the moment when the host begins it."""

    __slots__ = ("away", "began", "begin", "came", "classes", "held", "known", "sums", "timed")

    def __init__(self, begin: int) -> None:
        self.begin = begin  # mark
        self.came: Came | None = None  # when the device came to it; None if not yet known
        self.began = 0  # the same by the host's clock, ns
        self.held: list[Interval] = []  # inner intervals come before those that contain them
        self.timed = 0  # how many of them have been read
        self.classes = [0] * len(CLASSES)  # ns, of the rows that have been written
        self.away = 0  # ns of other engines' turns, of those that have been written
        self.known = True  # all that has been written is divided rightly
        self.sums: dict[Any, list[int]] = {}


class Waiting(NamedTuple):
    """A step that has ended on the host but perhaps not yet on the device."""

    track: int
    number: int
    micros: int
    begun: int  # host clock, ns, like `ended`
    away: int  # ns of it that belong to other engines, on the host
    ended: int
    end: int  # mark
    step: Step


class DeviceTimeline(Timeline):
    """A timeline that records marks and writes a step once the device has passed them."""

    def __init__(self, writer: Writer, marks: Marks) -> None:
        super().__init__(writer)
        self.marks, self._clock = marks, DeviceClock(marks)
        self._record = self._hold
        self._leaving = Interval(0, None, NONE)
        self._open: dict[int, Step] = {}  # the current step of each track
        self._left: dict[int, int] = {}  # the mark where the last phase of each track ended
        self._came: dict[int, tuple[int, Came | None]] = {}  # those that have been read, and when
        self._steps: deque[Waiting] = deque()
        self._read = 0  # how many marks there were when they were last read
        self._reached: tuple[Came | None, int] = None, 0  # a step's end, and by host clock, ns

    def enter(self, track: Track, phase: Phase, *_: Any) -> Frame | None:
        begins, interval = not track.begin, Interval(phase.class_, self.innermost, NONE)
        frame = super().enter(track, phase)
        if begins:
            self._begin(track)  # not before `track.begin`
        if frame is not None:
            frame.device = interval
            interval.begin = self.marks.mark()  # not before `frame.begin`
        return frame

    def begin(self, track: Track) -> None:
        super().begin(track)
        self._lasts_until(track, self._step(track.number).begin)

    def enter_forward(self, track: Track, phase: Phase, *_: Any) -> Frame | None:
        """The compute stream is the one on which forward begins."""
        if not self.stack and not self.is_elsewhere():
            self.marks.follow()
        return super().enter_forward(track, phase)

    def leave(self, frame: Frame | None) -> None:
        if frame is not None:
            self._leaving = frame.device
            self._leaving.end = self.marks.mark(always=self._leaving.begin >= 0)
            self._lasts_until(frame.track, self._leaving.end)
        super().leave(frame)

    def _leave_out(self, track: Track, before: Track) -> None:
        super()._leave_out(track, before)
        begin, end = (self._left.get(one.number, NONE) for one in (track, before))
        if NONE < begin < end:
            away = Interval(AWAY, None, begin, end)
            mark, came = self._came.get(track.number, (NONE, None))
            away.came = came if mark == begin else None
            self._step(track.number).held.append(away)

    def _lasts_until(self, track: Track, mark: int) -> None:
        """The turn of an engine lasts until `mark` at least."""
        if mark > NONE:
            self._left[track.number] = mark

    def block(self, length: int, class_: int) -> Where:
        """A wait whose length the host does not know is an interval of the device."""
        return super().block(max(length, 0), class_)

    def waited(self, mark: int) -> None:
        """Outside of any phase, the turn of the current engine lasts until a wait ends."""
        track = self.current
        if track is not None and not self.stack:
            track.left = now()
            self._lasts_until(track, mark)

    def revise(self, frame: Frame, phase: Phase) -> bool:
        interval = frame.device
        if interval.written:
            self._step(frame.track.number).known = False
            return False
        row = interval.row
        interval.row, interval.class_ = (*row[:2], phase.id, *row[3:]), phase.class_
        frame.phase = phase
        return True

    @property
    def innermost(self) -> Interval | None:
        return self.stack[-1].device if self.stack else None

    def hold(self, track: int, interval: Interval, row: tuple[int, ...]) -> None:
        """Keep `row` with its step, until the device has finished that step."""
        interval.row = row
        step = self._step(track)
        step.held.append(interval)
        if self.marks.laid - self._read >= OFTEN:
            self._read_on()
        if len(step.held) >= MOST:  # a step that does not end, such as an evaluation
            self._write_some(step, self.tracks[track].begin)
            self.writer.flush()

    def _hold(self, row: tuple[int, ...]) -> None:
        self.hold(row[1], self._leaving, row)

    def _step(self, track: int) -> Step:
        """The current step of a track; one that begins unseen has no mark."""
        return self._open.setdefault(track, Step(NONE))

    def _begin(self, track: Track) -> None:
        if not track.forwards:  # it may end on the optimizer's stream
            self.marks.follow()
        self._open[track.number] = Step(self.marks.mark(always=True))

    def renumber(self, track: Track, step: int) -> None:
        before = track.step
        super().renumber(track, step)
        for interval in self._step(track.number).held:
            if interval.row:
                interval.row = renumbered(interval.row, track.number, before, step)

    def _write_step(self, track: Track, step: int, _: int, end: int) -> None:
        """Queue this step, of which only host times are known here; write the earlier ones that
        the device has finished.
        """
        number, held = track.number, self._step(track.number)
        mark = self.marks.mark(always=True)
        held.known = held.known and not track.blind
        self._steps.append(
            Waiting(number, step, track.micros, track.begin, track.away, end, mark, held)
        )
        self._begin(track)
        self._lasts_until(track, self._open[number].begin)
        self.drain()

    def drain(self) -> None:
        """Write the steps that the device has finished, in order."""
        while self._steps and self.marks.is_past(self._steps[0].end):
            self._write(self._steps.popleft())
        while len(self._steps) > AHEAD:
            self._write(self._steps.popleft(), in_time=False)

    def finish(self) -> None:
        """End the recording. Gives the device `PATIENCE` seconds to finish, then writes the rest
        without device times.
        """
        deadline = time.monotonic() + PATIENCE
        self.drain()
        while self._steps and time.monotonic() < deadline:
            time.sleep(0.002)
            self.drain()
        while self._steps:
            self._write(self._steps.popleft(), in_time=False)
        for step in self._open.values():
            self._write_untimed(step)
        self._open.clear()
        super().finish()

    def _read_on(self) -> None:
        """Read the marks that the device has passed, before their events are used again."""
        self._read = self.marks.laid
        self.drain()
        for waiting in self._steps:
            self._time(waiting.step)
        for step in self._open.values():
            self._time(step)
        for track, mark in self._left.items():
            if self._came.get(track, (NONE, None))[0] != mark and self.marks.is_past(mark):
                self._came[track] = mark, self._clock.at(mark)
        for frame in self.stack:
            interval = frame.device
            if interval.came is None and self.marks.is_past(interval.begin):
                interval.came = self._clock.at(interval.begin)

    def _time(self, step: Step) -> None:
        """Read when the device came to the intervals of a step, as far as it has."""
        if step.came is None and self.marks.is_past(step.begin):
            step.came = self._clock.at(step.begin)
        for interval in islice(step.held, step.timed, None):
            if not self.marks.is_past(interval.end):
                break
            step.timed += 1
            if interval.is_hidden:
                interval.length = 0
                continue
            end = self._clock.at(interval.end)
            if interval.came is None and end is not None:
                interval.came = self._clock.at(interval.begin, end)
            length = elapsed(interval.came, end)
            interval.length = -1 if length is None else length

    def _write(self, waiting: Waiting, *, in_time: bool = True) -> None:
        """Write a step; `in_time`: the device has passed it."""
        step, length = waiting.step, None
        if in_time:
            self._time(step)
            end = self._clock.at(waiting.end)
            length = elapsed(step.came, end)
        if length is None:
            self._write_untimed(step)
            begin, seconds = waiting.begun + waiting.away, UNKNOWN
            whole = waiting.ended - begin
        else:
            if not step.began:
                came = min(self._came_to(step, waiting.begun), now() - length)  # it is over by now
                step.began = max(waiting.begun, came)
            self._write_rows(step, len(step.held))
            begin, whole, seconds = step.began + step.away, length - step.away, UNKNOWN
            step.classes[-1] += whole - sum(step.classes)
            if step.known:
                seconds = tuple(ns * 1e-9 for ns in step.classes)
            self._reached = end, step.began + length
        self.writer.step(
            waiting.number, begin, begin + whole, seconds,
            micros=waiting.micros, engine=waiting.track,
        )  # fmt: skip

    def _came_to(self, step: Step, begun: int) -> int:
        """When the device began this step, ns of the host's clock.

        It came to no mark before the host had recorded it, nor to this step's before it ended an
        earlier step and did what lies between them.
        """
        reached, at = self._reached
        lies_behind = elapsed(reached, step.came)
        begin = begun if lies_behind is None else max(begun, at + lies_behind)
        for interval in step.held:
            since = elapsed(step.came, interval.came)
            if since is not None and interval.row and interval.row[0] == _SPAN:
                begin = max(begin, interval.row[_BEGIN] - since)
        return begin

    def _write_some(self, step: Step, begun: int) -> None:
        """Write the rows that have been read, of a step that has not ended."""
        self._time(step)
        if step.came is None or not step.timed:
            self._write_untimed(step)
            return
        step.began = step.began or self._came_to(step, begun)
        self._write_rows(step, step.timed)

    def _write_untimed(self, step: Step) -> None:
        step.begin, step.came, step.known, step.timed = NONE, None, False, len(step.held)
        for interval in step.held:
            interval.length = 0 if interval.is_hidden else -1
        self._write_rows(step, len(step.held))

    def _write_rows(self, step: Step, count: int) -> None:
        """Write the first `count` held rows, and add device time to the step's classes. An interval
        of unknown length stays part of the one that contains it.
        """
        for interval in step.held[:count]:
            length, interval.written = interval.length, True
            if interval.class_ == AWAY:
                step.away += max(length, 0)
                step.known = step.known and length >= 0
                continue
            if length >= 0:
                step.classes[interval.class_] += length - interval.inner
            if interval.above:
                interval.above.inner += length if length >= 0 else interval.inner
            since = elapsed(step.came, interval.came) if length >= 0 else None
            self._write_row(interval.row, length, 0 if since is None else step.began + since, step)
        del step.held[:count]
        step.timed -= count
        self.writer.collectives += map(tuple, step.sums.values())
        step.sums.clear()

    def _write_row(self, row: tuple[int, ...], length: int, begin: int, step: Step) -> None:
        """Write a row with what the device took, from `begin` on; 0 if unknown."""
        if not row:
            return
        filled = list(row)
        if row[0] == _SPAN:
            filled[_GPU], filled[_GPU_BEGIN] = length, begin
            self.writer.spans.append(tuple(filled))
            return
        filled[_BLOCKED] = length
        if row[_FLAGS] & THINNED and row[_COUNT] == 1:
            _add(step.sums, filled)
            return
        if begin:
            filled[_FLAGS] |= ON_DEVICE
            filled[_WAIT] = begin
        self.writer.collectives.append(tuple(filled))


def _add(sums: dict[Any, list[int]], row: list[int]) -> None:
    """Add a call to the step's only row for its kind, whose `size` is the mean of all calls.

    Used in steps that are not recorded in detail.
    """
    total = sums.setdefault(_KEY(row), row)
    if total is row:
        return
    count = total[_COUNT]
    total[_SIZE] = (total[_SIZE] * count + row[_SIZE]) // (count + 1)
    total[_COUNT] = count + 1
    known = min(total[_BLOCKED], row[_BLOCKED]) >= 0
    total[_BLOCKED] = total[_BLOCKED] + row[_BLOCKED] if known else -1
