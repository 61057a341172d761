"""Which rows of a whole run's recordings are listed one by one, as events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from dsprof.recording.layout import ROW, RowKind
from dsprof.recording.read import Recording
from dsprof.recording.stream import Portion
from dsprof.recording.table import DTYPES, Array, distinct

NEAR: Final = 100  #: steps before and after a problem that are listed

Columns = dict[str, Array]


@dataclass(frozen=True)
class Kept:
    """Rows of one file that may be listed.

    Attributes:
        forgotten: whether it is a `kept` file.
        lines: the rows' numbers.
        rows: whole rows, or the first bytes of rows of values.
    """

    path: str
    forgotten: bool
    lines: Array
    rows: Array


class Said:
    """Keeps track of which metrics of which steps lower ranks have provided already."""

    def __init__(self) -> None:
        self._steps: dict[tuple[int, int, str], Array] = {}

    def wanted(self, recording: Recording, rows: Columns) -> Array:
        """Which rows to list: all but metrics that a lower rank provided. Values that are not
        finite are listed for every rank.
        """
        metric = rows["kind"] == RowKind.METRIC
        if metric.all():
            new = self.lacks(recording.segment, recording.names.text, rows)
            return np.asarray(new | ~np.isfinite(rows["value"]))
        wanted = np.ones(len(metric), bool)
        wanted[metric] = self.wanted(recording, {name: one[metric] for name, one in rows.items()})
        return wanted

    def lacks(self, segment: int, names: Mapping[int, str], rows: Columns) -> Array:
        """Which rows of metrics belong to steps for which no rank has provided the metric yet.

        Rows without a name are step times.
        """
        step = rows["step"]
        new, ends = step < 0, (int(step.min()), int(step.max())) if len(step) else (0, 0)
        code = _metric_of(rows)
        for one, key in _metrics(code, segment, names):
            known = self._steps.get(key)
            if known is None or not _covers(known, *ends):
                where = np.flatnonzero(code == one)
                new[where] = True if known is None else ~_among(step[where], known)
        return np.asarray(new)

    def tell(self, segment: int, names: Mapping[int, str], rows: Columns) -> None:
        """Remember that these rows are listed."""
        code = _metric_of(rows)
        for one, key in _metrics(code, segment, names):
            steps, known = rows["step"][code == one], self._steps.get(key)
            if known is None:
                self._steps[key] = distinct(steps)
            elif not _among(steps, known).all():
                self._steps[key] = distinct(np.concatenate([known, steps]))


def _metric_of(rows: Columns) -> Array:
    """Engine and name id of each row as one number; -1 for a row that belongs to no step."""
    code = rows["engine"].astype(np.int64)
    if "name" in rows:
        code |= rows["name"].astype(np.int64) << 8
    code[rows["step"] < 0] = -1
    return code


def _metrics(
    code: Array, segment: int, names: Mapping[int, str]
) -> Iterator[tuple[int, tuple[int, int, str]]]:
    """The distinct metrics among these numbers, each with its segment, engine and name."""
    for one in distinct(code).tolist():
        if one >= 0:
            yield one, (segment, one & 255, names.get(one >> 8, ""))


def _covers(known: Array, first: int, last: int) -> bool:
    """Whether `known` holds all steps from `first` to `last` without a gap; it is sorted and
    distinct.
    """
    begin, end = int(known[0]), int(known[-1])
    return begin <= first and last <= end and end - begin < len(known)


def _among(steps: Array, known: Array) -> Array:
    """Which steps are in `known`, which is sorted and distinct."""
    if _covers(known, int(known[0]), int(known[-1])):
        return np.asarray((steps >= known[0]) & (steps <= known[-1]))
    return np.isin(steps, known)


def around_problems(kept: Sequence[Kept], files: Sequence[str], steps: Columns) -> list[Kept]:
    """The steps around each problem. The effect of a problem that training survived shows in the
    steps after it.
    """
    found = []
    for number, path in enumerate(files):
        problems = [
            one.lines[one.rows[:, 0] == RowKind.PROBLEM] for one in kept if one.path == path
        ]
        lines = np.concatenate([np.empty(0, np.int64), *problems])
        here = np.flatnonzero(steps["file"] == number) if len(lines) else lines
        if len(here):
            at = np.searchsorted(steps["line"][here], lines)
            near = np.unique(np.clip(at[:, None] + np.arange(-NEAR, NEAR), 0, len(here) - 1))
            found.append(_of_steps(path, steps, here[near]))
    return found


def last_step(files: Sequence[str], steps: Columns) -> list[Kept]:
    """The last step of a process: how far it came, in case other processes end later."""
    end = len(steps["step"])
    return [_of_steps(files[steps["file"][-1]], steps, np.array([end - 1]))] if end else []


def _of_steps(path: str, steps: Columns, where: Array) -> Kept:
    """STEP rows, without their seconds per class."""
    rows = np.zeros(len(where), DTYPES[RowKind.STEP])
    rows["kind"] = RowKind.STEP
    for name in ("engine", "step", "begin", "duration"):
        rows[name] = steps[name][where]
    lines = steps["line"][where].astype(np.int64)
    return Kept(path, False, lines, rows.view(np.uint8).reshape(-1, ROW))


def told(
    recording: Recording, files: Sequence[str], steps: Columns, kept: Sequence[Kept], said: Said
) -> pa.Table:
    """Events of the rows that are listed, and the settings of the header."""
    tables = [recording.settings()]
    new = said.lacks(recording.segment, {}, steps)
    said.tell(recording.segment, {}, steps)
    for number, path in enumerate(files):
        first = _of_steps(path, steps, np.flatnonzero(new & (steps["file"] == number)))
        for forgotten in (False, True):
            rows = [one for one in (*kept, first) if (one.path, one.forgotten) == (path, forgotten)]
            if rows:
                tables.append(_events(recording, path, rows, said))
    return pa.concat_tables(tables)


def _events(recording: Recording, path: str, kept: Sequence[Kept], said: Said) -> pa.Table:
    lines, rows = _in_order(kept)
    fields = rows.reshape(-1).view(DTYPES[RowKind.METRIC])
    columns = {name: fields[name] for name in fields.dtype.names or ()}
    wanted = said.wanted(recording, columns)
    metrics = columns["kind"] == RowKind.METRIC
    said.tell(
        recording.segment,
        recording.names.text,
        {name: columns[name][metrics] for name in ("engine", "name", "step")},
    )
    return recording.events(Portion(path, 1, rows[wanted].tobytes(), kept=False), lines[wanted])


def _in_order(kept: Sequence[Kept]) -> tuple[Array, Array]:
    """Line numbers and rows, sorted, each once and padded to full size."""
    lines, first = np.unique(np.concatenate([one.lines for one in kept]), return_index=True)
    rows = np.zeros((sum(len(one.rows) for one in kept), ROW), np.uint8)
    at = 0
    for one in kept:
        rows[at : at + len(one.rows), : one.rows.shape[1]] = one.rows
        at += len(one.rows)
    return lines, rows[first]
