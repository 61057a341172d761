"""Writes a recording inside training, with the standard library only, without locks or threads.

Recording a span appends a tuple to a list. `flush` packs what has gathered and writes all or none
of it to the file. Everything here may raise: the hook catches errors in one place and stops
recording.
"""

from __future__ import annotations

import itertools
import math
import os
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import starmap
from pathlib import Path
from typing import Any, Final

from dsprof.errors import DsprofError
from dsprof.events import CLASSES
from dsprof.recording.layout import (
    CLOCK,
    COLLECTIVE,
    MARK,
    NAME_BITS,
    PHASE,
    PIECE,
    SPAN,
    STAND,
    STANDING,
    STEP,
    TEXT,
    UNKNOWN,
    VALUE,
    RowKind,
    Unit,
)
from dsprof.recording.ring import Ring, unwritable

CLOCK_EVERY: Final = 60_000_000_000  # ns between two readings of both clocks
_MOST_SAID: Final = 10 * PIECE  # bytes: its rows, its name's and END must fit into `SPARE`

_SPAN, _COLLECTIVE, _STEP = int(RowKind.SPAN), int(RowKind.COLLECTIVE), int(RowKind.STEP)
_METRIC, _MEMORY, _GPU = int(RowKind.METRIC), int(RowKind.MEMORY), int(RowKind.GPU)
_BYTES, _SECONDS = int(Unit.BYTES), int(Unit.SECONDS)


class Writer:
    """The recording of one process. Times are ns of `time.perf_counter_ns`; step -1 means none.

    Names are ids from `name`. The id of a phase's name stands for its whole path. Spans,
    collectives, values and steps may also be appended directly to `spans`, `collectives`, `values`
    and `steps`, as tuples in the order of `layout.SPAN`, `COLLECTIVE`, `VALUE` and `STEP`; these
    lists are never replaced by others.

    In a forked child the writer writes nothing.
    """

    def __init__(self, ring: Ring) -> None:
        self.spans: list[tuple[int, ...]] = []
        self.collectives: list[tuple[int, ...]] = []
        self.values: list[tuple[float, ...]] = []
        self.steps: list[tuple[float, ...]] = []
        self.flushed_ns = time.perf_counter_ns()
        self.ring = ring
        self._marks: list[bytes] = []  # CLOCK and END rows
        self._samples: list[bytes] = []  # GPU samples: many, so they are lost with their part
        self._texts: list[bytes] = []  # definitions not yet in the file
        self._defined: list[bytes] = []  # all definitions: each part repeats them
        self._names: dict[tuple[str, int, str], int] = {}
        self._ids: dict[tuple[str, int], int] = {}
        self._numbers = itertools.count(1)
        self._clock_ns = self.flushed_ns
        self._turns: list[object] = []  # who writes, and behind it who came meanwhile
        self._is_to_close = False
        _WRITERS.add(self)

    @classmethod
    def create(
        cls,
        folder: str | os.PathLike[str],
        header: Mapping[str, Any],
        *,
        keep_bytes: int = 256 << 20,
    ) -> Writer:
        """Start a new recording in `folder`, which is created if missing.

        Args:
            folder: the run folder; all ranks share it, and no two processes share a file.
            header: `rank`, `host`, `world`, `restart`, `launch`, `versions`, `config`, ...; process
                id and clocks are added. docs/recording.md lists the keys that readers know.
            keep_bytes: how many bytes of spans and collectives are kept; the oldest are deleted.

        Raises:
            DsprofError: the folder cannot be written to, or the disk is full.
        """
        place = Path(folder)
        try:
            place.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise unwritable(place, error) from error
        meta = {"pid": os.getpid(), **header, "clock": dict(zip(CLOCKS, clocks()))}
        stem = f"rank-{int(header.get('rank') or 0):05}.{os.getpid()}"
        for attempt in range(1, 1000):  # containers reuse process ids
            name = stem if attempt == 1 else f"{stem}-{attempt}"
            if any(place.glob(f"{name}.*")):  # its first part may have been deleted already
                continue
            try:
                return cls(Ring(place, name, meta, keep_bytes))
            except FileExistsError:
                continue
        raise DsprofError("holds a thousand recordings of this rank", str(place), "clear it")

    @property
    def path(self) -> Path:
        """The file that is being written now."""
        return self.ring.path

    def name(self, text: str, parent: int = 0, class_: str = "") -> int:
        """The id of `text`, or of the path that `text` forms under the id `parent`.

        `class_` (of `events.Class`) is the class of the phase's own time; by default its parent's.
        Repeated calls are fast.
        """
        known = self._names.get((text, parent, class_))
        return self._define(text, parent, class_) if known is None else known

    def _define(self, text: str, parent: int, class_: str) -> int:
        known = self._ids.get((text, parent))
        number = next(self._numbers) if known is None else known
        if number >> NAME_BITS:
            raise DsprofError("holds a million names", str(self.path), "use fewer")
        if known is None or class_:
            rows = _definition(number, text, parent, class_)
            self._texts += rows
            self._defined += rows
        self._ids[text, parent] = self._names[text, parent, class_] = number
        return number

    def span(  # noqa: PLR0917 - a row's fields are its parameters
        self,
        name: int,
        begin_ns: int,
        end_ns: int,
        step: int = -1,
        micro: int = -1,
        gpu_ns: int = -1,
        engine: int = 0,
        thread: int = 0,
        gpu_begin_ns: int = 0,
    ) -> None:
        """Record a phase that ended; `gpu_ns` is its duration on the compute stream, where it began
        at `gpu_begin_ns`.
        """
        self.spans.append(
            (
                _SPAN,
                engine,
                name,
                step,
                micro,
                begin_ns,
                end_ns - begin_ns,
                gpu_ns,
                thread,
                gpu_begin_ns,
            )
        )

    def collective(  # noqa: PLR0917
        self,
        name: int,
        group: int,
        begin_ns: int,
        wait_ns: int,
        blocked_ns: int,
        step: int = -1,
        micro: int = -1,
        size: int = 0,
        count: int = 1,
        seq: int = 0,
        duration_ns: int = -1,
        flags: int = 0,
        engine: int = 0,
    ) -> None:
        """Record a collective or point-to-point call, `name` below the phase that it blocked.

        Args:
            name: id of the operation's path.
            group: id of the group's name, 0 if unknown.
            begin_ns: when it was issued.
            wait_ns: when the host began to wait for it.
            blocked_ns: exposed time of all `count` calls together; -1 if unknown.
            size: bytes of one call.
            count: at most 65535.
            duration_ns: duration of the collective itself if the backend tells it, else -1.
            flags: `ASYNC`, `THINNED`.
        """
        self.collectives.append(
            (_COLLECTIVE, flags, engine, name, step, seq, begin_ns, wait_ns, blocked_ns,
             duration_ns, size, group, count, micro)
        )  # fmt: skip

    def step(  # noqa: PLR0917
        self,
        step: int,
        begin_ns: int,
        end_ns: int,
        classes: Sequence[float] = UNKNOWN,
        micros: int = 1,
        engine: int = 0,
    ) -> None:
        """Record an optimizer step that ended; all its rows are complete once this is flushed.

        `classes` are seconds per `events.Class`, NaN if unknown. They stand for the step's phases
        once the part that holds those has been deleted.
        """
        self.steps.append((_STEP, engine, step, micros, begin_ns, end_ns - begin_ns, *classes))

    def metric(  # noqa: PLR0917
        self,
        name: int,
        value: float,
        step: int = -1,
        unit: int = 0,
        engine: int = 0,
        at_ns: int = 0,
        text: int = 0,
    ) -> None:
        """Record a number. `unit` (of `Unit`) selects its column; `at_ns` 0 means now."""
        self._value(_METRIC, unit, engine, name, step, text, at_ns, value)

    def memory(
        self,
        name: int,
        size: float,
        step: int = -1,
        at_ns: int = 0,
        unit: int = _BYTES,
    ) -> None:
        """Record bytes in use, or another `unit`; `name` is one of `events.MEMORY`."""
        self._value(_MEMORY, unit, 0, name, step, 0, at_ns, size)

    def gpu(  # noqa: PLR0917
        self,
        name: int,
        value: float,
        step: int = -1,
        unit: int = 0,
        gpu: int = 0,
        at_ns: int = 0,
    ) -> None:
        """Record a sample of a GPU; `gpu` is the id of its UUID. May be called from any thread."""
        at = at_ns or time.perf_counter_ns()
        self._samples.append(VALUE.pack(_GPU, unit, 0, name, step, gpu, at, value))

    def problem(
        self, name: str, text: str, step: int = -1, value: float = math.nan, engine: int = 0
    ) -> None:
        what = self.name(text) if text else 0
        self._value(RowKind.PROBLEM, 0, engine, self.name(name), step, what, 0, value)

    def last_words(self, name: str, text: str) -> None:
        """Record a last problem when the disk is full, in the space reserved for it.

        All rows that are waiting to be written are dropped.
        """
        del self.spans[:], self.collectives[:], self.values[:], self.steps[:]
        del self._samples[:], self._texts[:]
        self.ring.spare = b""
        self.problem(name, text.encode("utf-8", "replace")[:_MOST_SAID].decode("utf-8", "ignore"))

    def config(self, name: str, value: float | str, engine: int = 0) -> None:
        words, number = (value, math.nan) if isinstance(value, str) else ("", value)
        text = self.name(words) if words else 0
        self._value(RowKind.CONFIG, 0, engine, self.name(name), -1, text, 0, number)

    def _value(  # noqa: PLR0917
        self,
        kind: int,
        unit: int,
        engine: int,
        name: int,
        step: int,
        text: int,
        at_ns: int,
        value: float,
    ) -> None:
        at = at_ns or time.perf_counter_ns()
        self.values.append((kind, unit, engine, name, step, text, at, value))

    def in_flight(self, name: int, seq: int = 0, at_ns: int = 0) -> None:
        """Set the in-flight cell to the operation that the process is in; 0 for none. Survives
        SIGKILL.
        """
        cell = self.ring.cell
        cell[1] = at_ns
        cell[0] = seq << NAME_BITS | name  # one aligned store: both belong to one call

    def stand(self, since_ns: int, seconds: float, stack: str) -> None:
        """Record where training stands still: the calls that it was seen in for so long, "" if they
        are unknown, and the in-flight cell. May be called from any thread.

        Its time is when that began, because a later row would be a sign that training goes on.
        """
        name, text = self.name(STANDING), self.name(stack) if stack else 0
        cell = *self.ring.cell, self.ring.keeps_cell
        self._marks.append(
            STAND.pack(_METRIC, _SECONDS, 0, name, -1, text, since_ns, seconds, *cell)
        )
        self.mark_clock()

    def mark_clock(self) -> None:
        """Record both clocks, as they are now."""
        self._marks.append(CLOCK.pack(RowKind.CLOCK, *clocks()))

    def flush(self) -> None:
        """Write all waiting rows to the file, all or none.

        A call while another is running (from a signal handler or a second thread) does nothing.

        Raises:
            DsprofError: the file cannot be written. It remains readable; the waiting rows are lost.
        """
        try:
            self._alone(self._flush)
        finally:
            if self._is_to_close:
                self.close()

    def _alone(self, action: Callable[[], None]) -> None:
        """Run `action` unless one is running already, which may be the one that a signal handler
        interrupted.

        No lock: Ctrl-C between acquiring it and the `try` behind would leave it locked for ever.
        For the same reason a turn is taken back twice.
        """
        mine, turns = object(), self._turns
        try:
            try:
                turns.append(mine)
                if turns[0] is mine:
                    action()
            finally:
                if mine in turns:
                    turns.remove(mine)
        finally:
            if mine in turns:
                turns.remove(mine)

    def _flush(self) -> None:
        self.flushed_ns = now = time.perf_counter_ns()
        if now - self._clock_ns > CLOCK_EVERY and not self._is_to_close:  # which reads them, too
            self._clock_ns = now
            self.mark_clock()
        # Names are taken last and written first, so that they precede every row that uses them.
        marks, steps, values, collectives, spans, samples, texts = _taken(
            self._marks, self.steps, self.values, self.collectives, self.spans, self._samples,
            self._texts,
        )  # fmt: skip
        if not self.ring.is_open:
            return
        calls = starmap(COLLECTIVE.pack, collectives)
        detail = b"".join([*starmap(SPAN.pack, spans), *calls, *samples])
        lasting = [*starmap(VALUE.pack, values), *starmap(STEP.pack, steps), *marks]
        self._append(texts, detail, lasting)
        if not self._is_to_close and self.ring.is_full(step_ended=bool(steps)):  # END is the last
            self.ring.turn(b"".join(self._defined))

    def flush_beside(self) -> None:
        """Write what was recorded by `stand`, and no row of training: that fails by itself where
        the file cannot be written, and loses no half of a step to another thread.

        Raises:
            DsprofError: as `flush`.
        """
        try:
            self._alone(self._flush_beside)
        finally:
            if self._is_to_close:
                self.close()

    def _flush_beside(self) -> None:
        spare = self.ring.spare
        marks, texts = _taken(self._marks, self._texts)
        if not self.ring.is_open:
            return
        try:
            self._append(texts, b"", marks)
        except DsprofError:
            self.ring.spare, self.ring.failed = spare, False
            raise

    def _append(self, texts: list[bytes], detail: bytes, lasting: list[bytes]) -> None:
        """All or nothing; raises as `flush`."""
        try:
            self.ring.append(b"".join(texts), detail, b"".join(lasting))
        except BaseException:  # including Ctrl-C in the middle
            self._texts = self._defined[:]  # some of them may be among the lost rows
            raise

    def close(self) -> None:
        """Flush and mark the end. A second call does nothing.

        Raises:
            DsprofError: the end cannot be written, or the file was removed in the meantime.

        A call that interrupts a flush, as from a signal handler, leaves closing to that flush: it
        still needs its file, whose descriptor may by then belong to another file.
        """
        self._is_to_close = True  # first: another thread's flush may be just about to end
        while self.ring.is_open and not self._turns:  # two that meet may each leave it to the other
            self._alone(self._close)

    def _close(self) -> None:
        try:
            self.in_flight(0)
            self.ring.cell[PHASE] = 0
            self.mark_clock()
            self._marks.append(MARK.pack(RowKind.END, time.perf_counter_ns()))
            self._flush()
        finally:
            self.ring.close()

    def disown(self) -> None:
        """Close the writer that a fork inherited. It belongs to the parent, which reports its
        errors.
        """
        self._turns = []
        with suppress(DsprofError):
            self.ring.close()


CLOCKS: Final = ("perf_ns", "wall_ns", "error_ns")


def clocks() -> tuple[int, int, int]:
    """`perf_counter_ns`, wall clock (ns since 1970, UTC), and how far the two readings may be
    apart.

    Of five attempts, each reading the wall clock between two readings of the other, the closest
    counts: the scheduler may suspend the process during any of them.
    """
    readings = []
    for _ in range(5):
        before, wall, after = time.perf_counter_ns(), time.time_ns(), time.perf_counter_ns()
        readings.append((after - before, (before + after) // 2, wall))
    width, perf, wall = min(readings)
    return perf, wall, width


def _definition(number: int, text: str, parent: int, class_: str) -> list[bytes]:
    """The TEXT rows that define `number` as `text`, of which at most 3 MB are kept."""
    data = text.encode("utf-8", "replace")[: 0xFFFF * PIECE]
    pieces = [data[i : i + PIECE] for i in range(0, len(data), PIECE)] or [b""]
    code = CLASSES.index(class_) + 1 if class_ else 0
    return [
        TEXT.pack(RowKind.TEXT, len(piece), code, number, parent, i, len(pieces), piece)
        for i, piece in enumerate(pieces)
    ]


def _taken(*waiting: list[Any]) -> list[list[Any]]:
    """Empty the lists, one after the other, and return what they held. They may grow meanwhile."""
    found = []
    for rows in waiting:
        taken = rows[:]
        if taken:
            del rows[: len(taken)]
        found.append(taken)
    return found


_WRITERS: Final[weakref.WeakSet[Writer]] = weakref.WeakSet()


def _disown_all() -> None:
    for writer in list(_WRITERS):
        writer.disown()


os.register_at_fork(after_in_child=_disown_all)
