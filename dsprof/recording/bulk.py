"""The recordings of a whole run, as columns: too many rows for one table of events.

Sixty-four ranks that record ten rows in each of 100,000 steps write 64 million rows. Rows that
repeat for every step and rank (spans, calls, steps) are read into narrow columns per process, from
which views are built. All other rows that are listed one by one fit into a table of events.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dsprof.events import Class
from dsprof.recording.clocks import skews
from dsprof.recording.layout import NAME_BITS, ROW, RowKind
from dsprof.recording.read import Recording, Recordings, numbered
from dsprof.recording.stream import Portion
from dsprof.recording.table import DTYPES, EVALUATION, Array, seconds_by_class
from dsprof.recording.told import Columns, Kept, Said, around_problems, last_step, told
from dsprof.schema import SCHEMA

#: Ids from here on stand for classes: phases of steps whose spans are deleted.
FORGOTTEN: Final = 1 << NAME_BITS
LONGEST: Final = 10**17  #: ns; longer or negative durations are invalid, and their rows are listed
_AT_A_TIME: Final = 2  # files read at the same time
_HEAD: Final = 32  # bytes of a value's row that are not always zero
_METRIC: Final = ("kind", "engine", "name", "step", "value")
_FIELDS: Final = {
    RowKind.SPAN: ("engine", "name", "step", "duration", "gpu"),
    RowKind.COLLECTIVE: (
        "engine", "name", "step", "blocked", "duration", "size", "group", "count",
    ),
    RowKind.STEP: ("engine", "step", "begin", "duration"),
}  # fmt: skip
#: The least valid duration in ns: that of a call may be unknown (-1), a step takes time.
_LEAST: Final = {RowKind.SPAN: 0, RowKind.COLLECTIVE: -1, RowKind.STEP: 1}


@dataclass(frozen=True)
class Process:
    """What one process recorded about its steps.

    Attributes:
        recording: its header, names and clock.
        files: its files; the column `file` is an index into this list.
        spans, calls, steps: rows that belong to a step, in order: `engine`, `step`, `line`, `file`,
        and as in `layout.ROWS` `name`, `duration`, `gpu`, `blocked`, `size`, `group`, `count`,
        `begin`. Times in nanoseconds; -1 is unknown.
    """

    recording: Recording
    files: list[str]
    spans: Columns
    calls: Columns
    steps: Columns

    @property
    def rank(self) -> int | None:
        return self.recording.rank

    @property
    def segment(self) -> int:
        return self.recording.segment


@dataclass(frozen=True)
class Bulk:
    """All processes of a run, ordered by launch and rank, and the events that are listed one by
    one.

    `told` holds every event that does not belong to a step (settings, problems, memory, GPUs); of
    step times and each metric, for each step those of the lowest rank that has them; invalid values
    (not finite, impossible times); saves, and evaluations after the last step; the steps around
    each problem; and each process's first and last event and last step. `rows` is the number of all
    events.
    """

    processes: list[Process]
    told: pa.Table
    facts: dict[str, Any]
    rows: int


class _Reader:
    """Separates the rows of one process by kind.

    Metrics that `said` already has from lower ranks are not kept.
    """

    def __init__(self, recording: Recording, said: Said) -> None:
        self.recording = recording
        self.files: list[str] = []
        self.kept: list[Kept] = []
        self.events = 0
        self._said = said
        self._columns: dict[RowKind, list[Columns]] = {kind: [] for kind in _FIELDS}
        self._last: Kept | None = None
        for portion in recording.portions():
            self._take(portion)
        if self._last is not None:
            self.kept.append(self._last)
        self.process = self._process()
        self.kept += around_problems(self.kept, self.files, self.process.steps)
        self.kept += last_step(self.files, self.process.steps)

    def _process(self) -> Process:
        spans, calls, steps = (_together(self._columns.pop(kind), kind) for kind in _FIELDS)
        if (spans["gpu"] < 0).all():
            del spans["gpu"]
        return Process(self.recording, self.files, spans, calls, steps)

    def _take(self, portion: Portion) -> None:
        if portion.path not in self.files:
            self.files.append(portion.path)
        kind = np.frombuffer(portion.kinds, np.uint8)
        values = np.flatnonzero((kind >= RowKind.METRIC) & (kind <= RowKind.CONFIG))
        rows = {wanted: np.flatnonzero(kind == wanted) for wanted in _FIELDS}
        self._edges(portion, [found for found in (*rows.values(), values) if len(found)])
        for wanted, where in rows.items():
            self._rows(portion, where, wanted)
        self._values(portion, values)

    def _edges(self, portion: Portion, events: Sequence[Array]) -> None:
        """Note the first and the last event of the process, of whatever kind."""
        if not events:
            return
        self.events += sum(map(len, events))
        first, last = min(one[0] for one in events), max(one[-1] for one in events)
        if self._last is None:
            self.kept.append(_kept(portion, np.array([first])))
        self._last = _kept(portion, np.array([last]))

    def _rows(self, portion: Portion, where: Array, wanted: RowKind) -> None:
        rows = np.frombuffer(portion.rows, DTYPES[wanted])
        found = {name: rows[name][where] for name in _FIELDS[wanted]}
        step, duration = found["step"], found["duration"]
        if not (_inside(step, 1) and _inside(duration, _LEAST[wanted], LONGEST)):
            inside = step > 0
            odd = ~inside | (duration > LONGEST) | (duration < _LEAST[wanted])
            self.kept.append(_kept(portion, where[odd]))
            where, found = where[inside], {name: one[inside] for name, one in found.items()}
        file = np.full(len(where), self.files.index(portion.path), np.int16)
        line = (where + portion.first).astype(np.int64 if portion.first >> 30 else np.int32)
        self._columns[wanted].append(found | {"line": line, "file": file})
        if wanted == RowKind.SPAN:
            listed = self._saves(found["name"])
            listed |= self._evaluations(found["name"]) & (where > _last_end(portion))
            self.kept.append(_kept(portion, where[listed]))
        if wanted == RowKind.STEP and portion.kept:
            self._columns[RowKind.SPAN].append(_classes(rows[where], line, file))

    def _saves(self, name: Array) -> Array:
        """Which spans are of saving or loading checkpoints."""
        classes = self.recording.names.class_.items()
        return _are(name, [number for number, word in classes if word == Class.CHECKPOINT])

    def _evaluations(self, name: Array) -> Array:
        texts = self.recording.names.text.items()
        return _are(name, [number for number, word in texts if word == EVALUATION])

    def _values(self, portion: Portion, where: Array) -> None:
        rows = np.frombuffer(portion.rows, DTYPES[RowKind.METRIC])
        found = {name: rows[name][where] for name in _METRIC}
        where = where[self._said.wanted(self.recording, found)]
        if len(where):
            self.kept.append(_kept(portion, where, _HEAD))


def _last_end(portion: Portion) -> int:
    """The place of the last step's end; -1 if none ends here."""
    return portion.kinds.rfind(RowKind.STEP)


def _are(names: Array, numbers: Iterable[int]) -> Array:
    found = np.zeros(len(names), bool)
    for one in numbers:
        found |= names == one
    return found


def seconds_of(nanoseconds: Array) -> npt.NDArray[np.float64]:
    """Seconds; NaN if unknown or invalid."""
    seconds: npt.NDArray[np.float64] = nanoseconds * 1e-9
    if not _inside(nanoseconds, 0, LONGEST):
        seconds[(nanoseconds < 0) | (nanoseconds > LONGEST)] = np.nan
    return seconds


def _inside(values: Array, least: int, most: int | None = None) -> bool:
    """Whether all values lie in the range. Computes minimum and maximum instead of two masks."""
    if not len(values):
        return True
    return bool(values.min() >= least and (most is None or values.max() <= most))


def _kept(portion: Portion, where: Array, size: int = ROW) -> Kept:
    rows = np.frombuffer(portion.rows, np.uint8).reshape(-1, ROW)[where, :size]
    return Kept(portion.path, portion.kept, where + portion.first, rows)


def _classes(rows: Array, line: Array, file: Array) -> Columns:
    """One span per class, for steps whose spans are deleted."""
    step, class_, seconds = seconds_by_class(rows)
    return {
        "engine": rows["engine"][step],
        "name": (FORGOTTEN + class_).astype(np.uint32),
        "step": rows["step"][step],
        "duration": np.round(seconds * 1e9).astype(np.int64),
        "gpu": np.full(len(step), -1, np.int64),
        "line": line[step],
        "file": file[step],
    }


def _together(parts: Sequence[Columns], kind: RowKind) -> Columns:
    if not parts:
        types = DTYPES[kind]
        empty = {name: np.empty(0, types[name]) for name in _FIELDS[kind]}
        return empty | {"line": np.empty(0, np.int32), "file": np.empty(0, np.int16)}
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def read_bulk(paths: Iterable[str | os.PathLike[str]]) -> Bulk:
    """Read all recordings under `paths`.

    Args:
        paths: folders and files.

    Raises:
        DsprofError: a file is not a recording, or has a newer format.
    """
    recordings = Recordings([Path(path) for path in paths])
    recordings.discover()
    order = sorted(recordings.recordings, key=lambda one: (one.segment, one.rank or 0))
    lowest = {one.segment: one for one in reversed(order)}
    said, processes, tables, events = Said(), {}, {}, 0
    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        # The lowest ranks first: other ranks need not keep what they have.
        for group in (list(lowest.values()), [one for one in order if lowest[one.segment] != one]):
            for reader in pool.map(partial(_Reader, said=said), group):
                one = reader.recording
                processes[id(one)] = reader.process
                tables[id(one)] = told(one, reader.files, reader.process.steps, reader.kept, said)
                events += reader.events
    each = [processes[id(one)] for one in order]
    facts = recordings.facts() | {"clocks": skews([(one.recording, one.steps) for one in each])}
    recordings.close()
    table = pa.concat_tables([SCHEMA.empty_table(), *(tables[id(one)] for one in order)])
    table = numbered(table.unify_dictionaries())
    return Bulk(each, table, facts, events)
