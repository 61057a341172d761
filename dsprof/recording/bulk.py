"""A whole run's recordings, column by column: what is too much for one table of events.

Sixty-four ranks that record ten rows in each of 100,000 steps leave 64 million rows. Those that
come with every step and rank (spans, calls, steps) stay narrow columns of their process; views
are made of them. What is left, and is told, fits a table of events.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from dsprof.recording.layout import CLASSES, NAME_BITS, ROW, RowKind
from dsprof.recording.read import Recording, Recordings, numbered
from dsprof.recording.stream import Portion
from dsprof.recording.table import DTYPES, SCHEMA, Array, distinct, is_event

#: Ids from here on are classes: phases of steps whose spans are forgotten.
FORGOTTEN: Final = 1 << NAME_BITS
LONGEST: Final = 10**17  #: ns; what lasts longer (or is negative) is no time, and is told
NEAR: Final = 100  #: steps before and behind a problem that are told
_HEAD: Final = 32  # bytes of a row of a value that are not zero
_FIELDS: Final = {
    RowKind.SPAN: ("engine", "name", "step", "duration", "gpu"),
    RowKind.COLLECTIVE: (
        "engine", "name", "step", "blocked", "duration", "size", "group", "count",
    ),
    RowKind.STEP: ("engine", "step", "begin", "duration"),
}  # fmt: skip

Columns = dict[str, Array]


@dataclass(frozen=True)
class Process:
    """What one process recorded of its steps.

    Attributes:
        recording: its header, names and clock.
        files: where it stands; `file` of a column counts in it.
        spans, calls, steps: rows of a step, in their order: `engine`, `step`, `line`, `file`, and
            what `layout.ROWS` calls `name`, `duration`, `gpu`, `blocked`, `size`, `group`,
            `count`, `begin`. Nanoseconds; -1 is unknown.
    """

    recording: Recording
    files: list[str]
    spans: Columns
    calls: Columns
    steps: Columns

    @property
    def rank(self) -> int | None:
        rank = self.recording.header.get("rank")
        return rank if isinstance(rank, int) else None

    @property
    def segment(self) -> int:
        return self.recording.segment


@dataclass(frozen=True)
class Bulk:
    """All processes of a run, by launch and rank, and the events that are told one by one.

    `told` has each event that is no row of a step (settings, problems, memory, GPUs), of step
    times and each metric those of the lowest rank that tells them of a step, whatever cannot be
    (values that are not finite, times no clock reads), the steps around each problem, and each
    process's first and last event. `rows` is how many events there are in all.
    """

    processes: list[Process]
    told: pa.Table
    facts: dict[str, Any]
    rows: int


@dataclass(frozen=True)
class _Kept:
    """Rows of one file that may be told."""

    path: str
    forgotten: bool
    lines: Array
    rows: Array  # whole rows, or the heads of values


class _Reader:
    """Takes the rows of one process apart."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.files: list[str] = []
        self.kept: list[_Kept] = []
        self._columns: dict[RowKind, list[Columns]] = {kind: [] for kind in _FIELDS}
        self._last: _Kept | None = None
        self.events = 0
        for portion in recording.portions():
            self._take(portion)
        if self._last is not None:
            self.kept.append(self._last)
        self.process = self._process()
        self._around_problems()

    def _process(self) -> Process:
        spans, calls, steps = (_together(self._columns[kind], kind) for kind in _FIELDS)
        if (spans["gpu"] < 0).all():
            del spans["gpu"]
        return Process(self.recording, self.files, spans, calls, steps)

    def _around_problems(self) -> None:
        """What was survived shows in the steps behind it."""
        steps = self.process.steps
        for number, path in enumerate(self.files):
            of_file = [one for one in self.kept if one.path == path]
            problems = [one.lines[one.rows[:, 0] == RowKind.PROBLEM] for one in of_file]
            lines = np.concatenate([np.empty(0, np.int64), *problems])
            here = np.flatnonzero(steps["file"] == number) if len(lines) else lines
            at = np.searchsorted(steps["line"][here], lines)
            near = np.unique(np.clip(at[:, None] + np.arange(-NEAR, NEAR), 0, len(here) - 1))
            if len(here):
                self.kept.append(_Kept(path, False, *_step_rows(steps, here[near])))

    def _take(self, portion: Portion) -> None:
        if portion.path not in self.files:
            self.files.append(portion.path)
        raw = np.frombuffer(portion.rows, np.uint8).reshape(-1, ROW)
        kind = raw[:, 0].copy()
        self._edges(portion, raw, kind)
        for one in _FIELDS:
            self._rows(portion, raw, kind, one)
        values = np.flatnonzero((kind >= RowKind.METRIC) & (kind <= RowKind.CONFIG))
        self._keep(portion, values, raw[values, :_HEAD])

    def _edges(self, portion: Portion, raw: Array, kind: Array) -> None:
        """The first and the last row of a process are told, of what kind they may be."""
        events = np.flatnonzero(is_event(kind))
        self.events += len(events)
        if not len(events):
            return
        if self._last is None:
            self._keep(portion, events[:1], raw[events[:1]])
        last = events[-1:]
        self._last = _Kept(portion.path, portion.kept, last + portion.first, raw[last].copy())

    def _rows(self, portion: Portion, raw: Array, kind: Array, wanted: RowKind) -> None:
        where = np.flatnonzero(kind == wanted)
        rows = raw[where].reshape(-1).view(DTYPES[wanted])
        odd = rows["step"] <= 0
        odd |= (rows["duration"] > LONGEST) | (rows["duration"] < -(wanted == RowKind.COLLECTIVE))
        if wanted == RowKind.STEP:
            odd |= rows["duration"] == 0
        if odd.any():
            self._keep(portion, where[odd], raw[where[odd]])
        inside = rows["step"] > 0
        if not inside.all():
            where, rows = where[inside], rows[inside]
        file = np.full(len(rows), self.files.index(portion.path), np.int16)
        line = (where + portion.first).astype(np.int64 if portion.first >> 30 else np.int32)
        found = {name: np.ascontiguousarray(rows[name]) for name in _FIELDS[wanted]}
        self._columns[wanted].append(found | {"line": line, "file": file})
        if wanted == RowKind.STEP and portion.kept:
            self._columns[RowKind.SPAN].append(_classes(rows, line, file))

    def _keep(self, portion: Portion, where: Array, rows: Array) -> None:
        if len(where):
            self.kept.append(_Kept(portion.path, portion.kept, where + portion.first, rows.copy()))


def _step_rows(steps: Columns, where: Array) -> tuple[Array, Array]:
    """Numbers and bytes of STEP rows, without their classes."""
    rows = np.zeros(len(where), DTYPES[RowKind.STEP])
    rows["kind"] = RowKind.STEP
    for name in _FIELDS[RowKind.STEP]:
        rows[name] = steps[name][where]
    return steps["line"][where].astype(np.int64), rows.view(np.uint8).reshape(-1, ROW)


def _classes(rows: Array, line: Array, file: Array) -> Columns:
    """A span a class, for steps whose spans are forgotten."""
    seconds = np.stack([rows[word] for word in CLASSES], 1).astype(np.float64)
    step, class_ = np.nonzero(np.isfinite(seconds))
    return {
        "engine": rows["engine"][step],
        "name": (FORGOTTEN + class_).astype(np.uint32),
        "step": rows["step"][step],
        "duration": np.round(seconds[step, class_] * 1e9).astype(np.int64),
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


def read_bulk(paths: Iterable[str | os.PathLike[str]], threads: int = 2) -> Bulk:
    """All recordings under `paths`.

    Args:
        paths: folders and files.
        threads: how many files are read at a time.

    Raises:
        DsprofError: a file is no recording, or of a newer format.
    """
    recordings = Recordings([Path(path) for path in paths])
    recordings.discover()
    with ThreadPoolExecutor(threads) as pool:
        readers = list(pool.map(_Reader, recordings.recordings))
    readers.sort(key=lambda reader: (reader.recording.segment, _rank(reader)))
    said = _Said()
    tables = [_told(reader, said) for reader in readers]
    facts = recordings.facts()
    recordings.close()
    table = pa.concat_tables([SCHEMA.empty_table(), *tables]).unify_dictionaries()
    events = sum(reader.events for reader in readers)
    return Bulk([reader.process for reader in readers], numbered(table), facts, events)


def _rank(reader: _Reader) -> int:
    rank = reader.recording.header.get("rank")
    return rank if isinstance(rank, int) else 0


class _Said:
    """Which metrics of which steps lower ranks have told already."""

    def __init__(self) -> None:
        self._steps: dict[tuple[int, int, str], Array] = {}

    def news(self, segment: int, names: dict[int, str], rows: Array | Columns) -> Array:
        """Of rows of metrics, those that tell of a step first; they are then told.

        Rows without a name are step times.
        """
        new = rows["step"] < 0
        code = rows["engine"].astype(np.int64)
        if _has_names(rows):
            code |= rows["name"].astype(np.int64) << 8
        for one in distinct(code[~new]):
            where = np.flatnonzero((code == one) & ~new)
            key = segment, int(one & 255), names.get(int(one >> 8), "")
            steps = rows["step"][where]
            known = self._steps.get(key)
            if known is None:
                new[where] = True
                self._steps[key] = distinct(steps)
            elif not np.array_equal(known, steps):
                new[where] = ~np.isin(steps, known)
                self._steps[key] = distinct(np.concatenate([known, steps]))
        return np.asarray(new)


def _has_names(rows: Array | Columns) -> bool:
    return "name" in (rows if isinstance(rows, dict) else rows.dtype.names or ())


def _told(reader: _Reader, said: _Said) -> pa.Table:
    """Events of the rows that are told, and the settings of the header."""
    recording = reader.recording
    tables = [recording.settings()]
    steps = reader.process.steps
    new = said.news(recording.segment, {}, steps)
    for number, path in enumerate(reader.files):
        first = _Kept(
            path, False, *_step_rows(steps, np.flatnonzero(new & (steps["file"] == number)))
        )
        reader.kept.append(first)
        for forgotten in (False, True):
            kept = [one for one in reader.kept if (one.path, one.forgotten) == (path, forgotten)]
            if not kept:
                continue
            lines, rows = _in_order(kept)
            chosen = _chosen(rows, said, recording)
            rows, lines = rows[chosen], lines[chosen]
            portion = Portion(path, 1, rows.tobytes(), kept=False)
            tables.append(recording.events(portion, lines))
    return pa.concat_tables(tables)


def _in_order(kept: Sequence[_Kept]) -> tuple[Array, Array]:
    """Each row once, at its full size."""
    lines, first = np.unique(np.concatenate([one.lines for one in kept]), return_index=True)
    rows = np.zeros((sum(len(one.rows) for one in kept), ROW), np.uint8)
    at = 0
    for one in kept:
        rows[at : at + len(one.rows), : one.rows.shape[1]] = one.rows
        at += len(one.rows)
    return lines, rows[first]


def _chosen(rows: Array, said: _Said, recording: Recording) -> Array:
    """All rows but metrics that a lower rank has told."""
    chosen = np.ones(len(rows), bool)
    where = np.flatnonzero(rows[:, 0] == RowKind.METRIC)
    metrics = rows[where].reshape(-1).view(DTYPES[RowKind.METRIC])
    news = said.news(recording.segment, recording.names.text, metrics)
    chosen[where] = news | ~np.isfinite(metrics["value"])
    return chosen
