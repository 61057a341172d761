"""Which rows of a whole run's recordings are told one by one, as events."""

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

NEAR: Final = 100  #: steps before and behind a problem that are told

Columns = dict[str, Array]


@dataclass(frozen=True)
class Kept:
    """Rows of one file that may be told.

    Attributes:
        forgotten: it is a `kept` file.
        lines: their numbers.
        rows: whole rows, or the heads of values.
    """

    path: str
    forgotten: bool
    lines: Array
    rows: Array


class Said:
    """Which metrics of which steps lower ranks have told already."""

    def __init__(self) -> None:
        self._steps: dict[tuple[int, int, str], Array] = {}

    def wanted(self, recording: Recording, rows: Columns) -> Array:
        """All rows of values but metrics that are told; what is not finite is told of each rank."""
        wanted = np.ones(len(rows["kind"]), bool)
        where = np.flatnonzero(rows["kind"] == RowKind.METRIC)
        metrics = {name: column[where] for name, column in rows.items()}
        new = self.lacks(recording.segment, recording.names.text, metrics)
        wanted[where] = new | ~np.isfinite(metrics["value"])
        return wanted

    def lacks(self, segment: int, names: Mapping[int, str], rows: Columns) -> Array:
        """Of rows of metrics, those of steps that nobody has told of.

        Rows without a name are step times.
        """
        new = rows["step"] < 0
        for key, where in _by_metric(segment, names, rows):
            known = self._steps.get(key)
            new[where] = True if known is None else ~_among(rows["step"][where], known)
        return np.asarray(new)

    def tell(self, segment: int, names: Mapping[int, str], rows: Columns) -> None:
        """From now on these are told."""
        for key, where in _by_metric(segment, names, rows):
            steps, known = rows["step"][where], self._steps.get(key)
            if known is None:
                self._steps[key] = distinct(steps)
            elif not _among(steps, known).all():
                self._steps[key] = distinct(np.concatenate([known, steps]))


def _by_metric(
    segment: int, names: Mapping[int, str], rows: Columns
) -> Iterator[tuple[tuple[int, int, str], Array]]:
    """Segment, engine and name of each metric, and where its rows of steps stand."""
    code = rows["engine"].astype(np.int64)
    if "name" in rows:
        code |= rows["name"].astype(np.int64) << 8
    code[rows["step"] < 0] = -1
    for one in distinct(code):
        if one >= 0:
            key = segment, int(one & 255), names.get(int(one >> 8), "")
            yield key, np.flatnonzero(code == one)


def _among(steps: Array, known: Array) -> Array:
    """Which steps are known; `known` is in order, each once."""
    if int(known[-1]) - int(known[0]) < len(known):  # without a gap
        return np.asarray((steps >= known[0]) & (steps <= known[-1]))
    return np.isin(steps, known)


def around_problems(kept: Sequence[Kept], files: Sequence[str], steps: Columns) -> list[Kept]:
    """The steps near each problem: what was survived shows in the steps behind it."""
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


def _of_steps(path: str, steps: Columns, where: Array) -> Kept:
    """STEP rows, without their classes."""
    rows = np.zeros(len(where), DTYPES[RowKind.STEP])
    rows["kind"] = RowKind.STEP
    for name in ("engine", "step", "begin", "duration"):
        rows[name] = steps[name][where]
    lines = steps["line"][where].astype(np.int64)
    return Kept(path, False, lines, rows.view(np.uint8).reshape(-1, ROW))


def told(
    recording: Recording, files: Sequence[str], steps: Columns, kept: Sequence[Kept], said: Said
) -> pa.Table:
    """Events of the rows that are told, and the settings of the header."""
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
    """Each row once, at its full size."""
    lines, first = np.unique(np.concatenate([one.lines for one in kept]), return_index=True)
    rows = np.zeros((sum(len(one.rows) for one in kept), ROW), np.uint8)
    at = 0
    for one in kept:
        rows[at : at + len(one.rows), : one.rows.shape[1]] = one.rows
        at += len(one.rows)
    return lines, rows[first]
