"""Phases and collectives in device time: on a GPU, host time says nothing about the work.

Wherever the host would read its clock, a mark is recorded on the compute stream. The rows of a step
are held back, with their marks, until the device has passed the step's last mark. Then the lengths
are read, and divided like host time: the time of a wait is subtracted from the phase that holds it.
A step whose own marks are lost is written without a division into classes.

The device's clock shows when, within a step, it came to a mark. When it began the step by the
host's clock follows from what cannot be otherwise (`_came_to`): exact where the device had to wait
for the host, and in between counted on by the device's clock. If it never waits, it may be too
early, by no more than the host is ahead.
"""

from __future__ import annotations

import operator
import time
from collections import defaultdict, deque
from collections.abc import Callable
from time import perf_counter_ns as now
from typing import Any, Final, NamedTuple, cast

from dsprof.hook.collectives import Collectives, Issued, Operation
from dsprof.hook.cuda import ASIDE, NONE, RING, Marks
from dsprof.hook.guard import Guard
from dsprof.hook.patches import Call
from dsprof.hook.spans import (
    CLASSES,
    COMMUNICATION,
    Frame,
    Phase,
    Timeline,
    Track,
    renumbered,
)
from dsprof.recording import ON_DEVICE, THINNED, RowKind, Writer
from dsprof.recording.layout import ROWS, UNKNOWN

MOST: Final = 2 * RING  # rows of one step; by then its first marks have been overwritten
AHEAD: Final = 64  # steps that may wait for the device; older ones are written without device times
PATIENCE: Final = 0.2  # seconds that the end of recording gives the device to finish its last steps

_SPAN, _COLLECTIVE = int(RowKind.SPAN), int(RowKind.COLLECTIVE)
_SPAN_AT: Final = {name: place for place, name in enumerate(ROWS[RowKind.SPAN][1])}
_CALL_AT: Final = {name: place for place, name in enumerate(ROWS[RowKind.COLLECTIVE][1])}
_BEGIN, _GPU, _GPU_BEGIN = (_SPAN_AT[name] for name in ("begin", "gpu", "gpu_begin"))
_FLAGS, _WAIT, _BLOCKED = (_CALL_AT[name] for name in ("flags", "wait", "blocked"))
_COUNT, _SIZE = _CALL_AT["count"], _CALL_AT["size"]
_KEY: Final = operator.itemgetter(*(_CALL_AT[name] for name in ("engine", "name", "group")))


class Interval:
    """The time of a phase, or of a wait, on the device."""

    __slots__ = ("above", "begin", "class_", "end", "inner", "row")

    def __init__(self, class_: int, above: Interval | None, begin: int, end: int = -1) -> None:
        self.class_, self.above = class_, above
        self.begin, self.end = begin, end
        self.inner = 0  # ns of the intervals directly inside
        self.row: tuple[int, ...] = ()  # empty: it has no row, only its time counts

    @property
    def is_hidden(self) -> bool:
        """Whether it held up nothing: a collective that another stream waited for, or an interval
        without a row, all on another stream.
        """
        return self.begin == ASIDE == self.end and (not self.row or self.row[0] == _COLLECTIVE)


class Times(NamedTuple):
    """When the device came to an interval, ns since it began the step (None if unknown), and for
    how long (-1 if unknown).
    """

    since: int | None
    length: int


_UNTIMED, _HIDDEN = Times(None, -1), Times(None, 0)


class Waiting(NamedTuple):
    """A step that has ended on the host but perhaps not yet on the device."""

    track: int
    step: int
    micros: int
    begun: int  # host clock, ns, like `ended`
    ended: int
    begin: int  # mark, like `end`
    end: int
    held: list[Interval]  # inner intervals come before those that contain them


class DeviceTimeline(Timeline):
    """A timeline that records marks and writes a step once the device has passed them."""

    def __init__(self, writer: Writer, marks: Marks) -> None:
        super().__init__(writer)
        self.marks = marks
        self._record = self._hold
        self._leaving = Interval(0, None, NONE)
        self._held: defaultdict[int, list[Interval]] = defaultdict(list)
        self._begun: dict[int, int] = {}  # by track, the mark at which its current step began
        self._steps: deque[Waiting] = deque()
        self._reached = NONE, 0  # a mark, and when the device passed it by the host's clock, ns

    def enter(self, track: Track, phase: Phase, *_: Any) -> Frame | None:
        if not track.begin:
            self._begin(track)
        elif self.is_elsewhere():
            return None
        interval = Interval(phase.class_, self.innermost, NONE)
        frame = super().enter(track, phase)
        if frame is not None:
            frame.device = interval
            interval.begin = self.marks.mark()  # not before `frame.begin`
        return frame

    def leave(self, frame: Frame | None) -> None:
        if frame is not None:
            self._leaving = frame.device
            self._leaving.end = self.marks.mark(always=self._leaving.begin >= 0)
        super().leave(frame)

    def revise(self, frame: Frame, phase: Phase) -> bool:
        interval = frame.device
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
        held = self._held[track]
        held.append(interval)
        if len(held) >= MOST:  # a step that does not end, such as an evaluation
            self._write_untimed(self._held.pop(track))
            self._begun[track] = NONE
            self.writer.flush()

    def _hold(self, row: tuple[int, ...]) -> None:
        self.hold(row[1], self._leaving, row)

    def _begin(self, track: Track) -> None:
        self.marks.follow()
        self._begun[track.number] = self.marks.mark()

    def close_step(self, track: Track, finished: int) -> None:
        """Queue this step; write the earlier ones that the device has finished."""
        end = now()
        begin, mark = self._begun.get(track.number, NONE), self.marks.mark()
        self._steps.append(
            Waiting(
                track.number, finished, track.micros, track.begin, end, begin, mark,
                self._held.pop(track.number, []),
            )
        )  # fmt: skip
        self._begin(track)
        self.drain()
        super().close_step(track, finished)

    def renumber(self, track: Track, step: int) -> None:
        before = track.step
        super().renumber(track, step)
        for interval in self._held.get(track.number, []):
            if interval.row:
                interval.row = renumbered(interval.row, track.number, before, step)

    def _write_step(self, *_: Any) -> None:
        """Does nothing: only host times are known here. `drain` writes the step with
        device times.
        """

    def drain(self) -> None:
        """Write the steps that the device has finished, in order."""
        while self._steps and self.marks.is_past(self._steps[0].end):
            step = self._steps.popleft()
            self._write(step, self.marks.between(step.begin, step.end))
        while len(self._steps) > AHEAD:
            self._write(self._steps.popleft(), -1)

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
            self._write(self._steps.popleft(), -1)
        for track in list(self._held):
            self._write_untimed(self._held.pop(track))
        super().finish()

    def _write(self, step: Waiting, length: int) -> None:
        """Write a step that took the device `length` ns; -1 if unknown."""
        if length < 0:
            self._write_untimed(step.held)
            whole, seconds, begin = step.ended - step.begun, UNKNOWN, step.begun
        else:
            times = [self._times(step.begin, one) for one in step.held]
            whole, begin = length, self._came_to(step, length, times)
            classes = self._write_rows(step.held, times, begin)
            classes[-1] += whole - sum(classes)
            seconds = tuple(ns * 1e-9 for ns in classes)
        self._reached = step.end, begin + whole
        self.writer.step(
            step.step, begin, begin + whole, seconds, micros=step.micros, engine=step.track
        )

    def _times(self, origin: int, interval: Interval) -> Times:
        if interval.is_hidden:
            return _HIDDEN
        length = self.marks.between(interval.begin, interval.end)
        return Times(self.marks.since(origin, interval.begin), length) if length >= 0 else _UNTIMED

    def _came_to(self, step: Waiting, length: int, times: list[Times]) -> int:
        """When the device began this step, ns of the host's clock.

        It came to no mark before the host had recorded it, nor to this step's before that of an
        earlier step and what lies between them, and it has ended this step by now.
        """
        mark, reached = self._reached
        lies_behind = self.marks.since(mark, step.begin)
        begin = step.begun if lies_behind is None else max(step.begun, reached + lies_behind)
        for interval, (since, _) in zip(step.held, times):
            if since is not None and interval.row and interval.row[0] == _SPAN:
                begin = max(begin, interval.row[_BEGIN] - since)
        return max(step.begun, min(begin, now() - length))

    def _write_untimed(self, held: list[Interval]) -> None:
        self._write_rows(held, [_HIDDEN if one.is_hidden else _UNTIMED for one in held], 0)

    def _write_rows(self, held: list[Interval], times: list[Times], begin: int) -> list[int]:
        """Write the held rows of a step that began at `begin`; return device time per class, ns. An
        interval of unknown length stays part of the one that contains it.
        """
        classes = [0] * len(CLASSES)
        sums: dict[Any, list[int]] = {}
        for interval, (since, length) in zip(held, times):
            if length >= 0:
                classes[interval.class_] += length - interval.inner
            if interval.above:
                interval.above.inner += length if length >= 0 else interval.inner
            self._write_row(interval.row, length, 0 if since is None else begin + since, sums)
        self.writer.collectives += map(tuple, sums.values())
        return classes

    def _write_row(
        self, row: tuple[int, ...], length: int, begin: int, sums: dict[Any, list[int]]
    ) -> None:
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
            _add(sums, filled)
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


class DeviceCollectives(Collectives):
    """Collectives whose waits are intervals on the device: they stall the compute stream, not the
    host.

    A wait on another stream holds up nothing until the compute stream waits for that stream, which
    `streams` records.
    """

    timeline: DeviceTimeline

    def __init__(self, timeline: DeviceTimeline) -> None:
        super().__init__(timeline)
        self._marks = timeline.marks
        self._record = self._hold
        self._mark = NONE  # the mark at which the current wait began
        self._interval: Interval | None = None
        self.streams: set[int] = set()  # that carried collectives, except the compute stream
        self.pending: set[int] = set()  # those of them that nobody has waited for since

    def _issuing(self, operation: Operation, guard: Guard) -> Callable[[Call], Call]:
        begins, around = guard(self.wait_begins), super()._issuing(operation, guard)

        def marked(raw: Call) -> Call:
            issuing = around(raw)

            def call(*args: Any, **kwargs: Any) -> Any:
                begins()
                return issuing(*args, **kwargs)

            return call

        return marked

    def wait_begins(self) -> None:
        """Record where a wait begins. A wait on a thread that does not train is ignored."""
        if not self.timeline.is_elsewhere():
            self._mark = self._marks.mark()

    def before_wait(self, args: Any, _: Any = None) -> tuple[Issued | None, int]:
        held = super().before_wait(args)
        self.wait_begins()
        return held

    def after_wait(self, held: tuple[Issued | None, int]) -> None:
        """Count the time also of a wait for a call that was not seen being issued; it
        has no row.
        """
        track = self.timeline.current
        if held[0] is None and track and not self.timeline.is_elsewhere():
            self._ended(COMMUNICATION)
            interval, self._interval = self._interval, None
            self.timeline.hold(track.number, cast("Interval", interval), ())
        super().after_wait(held)

    def issued(self, *call: Any) -> None:
        """As in the base class; also remember on which streams collectives run."""
        if self._mark == ASIDE and not self.timeline.is_elsewhere():
            here = self._marks.here
            self.streams.add(here)
            self.pending.add(here)
        super().issued(*call)

    def by_others(self, *calls: Any) -> None:
        self._ended(COMMUNICATION)
        super().by_others(*calls)

    def _waited(self, issued: Issued, wait: int, blocked: int, flags: int) -> None:
        self._ended(issued[0].class_)
        self._write(issued, wait, blocked, flags, self.timeline.where())

    def _ended(self, class_: int) -> None:
        above = self.timeline.innermost
        self._interval = Interval(class_, above, self._mark, self._marks.mark())

    def _forget(self, issued: Issued | None) -> None:
        """Python never waited for it. If a stream did, `streams` records that wait."""
        if issued:
            self._write(issued, issued[3], 0, 0, self.timeline.where())

    def _add(self, key: tuple[int, int, int], size: int, *when: int) -> None:
        name, group, engine = key
        begin, wait, _, step = when
        self._hold(
            (_COLLECTIVE, THINNED, engine, name, step, 0, begin, wait, -1, -1, size, group, 1, -1)
        )

    def _hold(self, row: tuple[int, ...]) -> None:
        """Hold the row with its interval, or with a hidden one if nothing was waited for."""
        interval, self._interval = self._interval, None
        hidden = Interval(COMMUNICATION, None, ASIDE, ASIDE)
        self.timeline.hold(row[_CALL_AT["engine"]], interval or hidden, row)
