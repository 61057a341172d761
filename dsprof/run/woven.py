"""Rows of many processes in the order of steps and ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from dsprof.recording.bulk import Process
from dsprof.recording.table import distinct
from dsprof.recording.told import Columns

Array = npt.NDArray[Any]

THREADS: Final = 2
STEPS: Final = (1 << 32) - 1  #: of a visit, the bits of the step
_NEAR: Final = 512  # visits whose rows are placed together


@dataclass(frozen=True)
class Part:
    """Rows of one process, in order of visit.

    Attributes:
        visits: engine and step as one number, each once.
        lengths: rows of each.
        columns: of all rows, or of one visit where all others hold the same.
    """

    visits: Array
    lengths: Array
    columns: Columns

    def rows(self, name: str) -> Array:
        """A column of all rows."""
        column = self.columns[name]
        return column if len(column) == self.lengths.sum() else np.tile(column, len(self.visits))


@dataclass(frozen=True)
class Source:
    """A column to make: the values of another one, or what its codes become."""

    name: str
    into: Array | None = None


def visits_of(columns: Columns) -> Array:
    """Engine and step of each row as one number, ordered as they are."""
    visits: Array = columns["engine"].astype(np.int64) << 32
    visits |= columns["step"]
    return visits


def rows_of(visits: Array, some: Array) -> Array:
    """Where `some` of them stand among all."""
    if np.array_equal(visits, some):
        return np.arange(len(visits))
    return np.searchsorted(visits, some)


def woven(
    processes: Sequence[Process], parts: Sequence[Part], wanted: Mapping[str, Source]
) -> Columns:
    """The rows of all processes in order of segment, engine, step and rank.

    Args:
        processes: in order of segment and rank.
        parts: their rows.
        wanted: columns to make, besides those four; an unknown rank is -1.
    """
    found = []
    for segment in sorted({process.segment for process in processes}):
        mine = [n for n, process in enumerate(processes) if process.segment == segment]
        ranks = [-1 if (rank := processes[n].rank) is None else rank for n in mine]
        rows = _of_launch([parts[n] for n in mine], np.array(ranks, np.int32), wanted)
        found.append(rows | {"segment": np.full(len(rows["step"]), segment, np.int16)})
    if len(found) == 1:
        return found[0]
    return {name: np.concatenate([rows[name] for rows in found]) for name in found[0]}


def _of_launch(parts: Sequence[Part], ranks: Array, wanted: Mapping[str, Source]) -> Columns:
    visits = distinct(np.concatenate([part.visits for part in parts]))
    lengths = np.zeros((len(visits), len(parts)), np.int32)
    for n, part in enumerate(parts):
        lengths[rows_of(visits, part.visits), n] = part.lengths
    of_visit = lengths.sum(axis=1)
    even = len(visits) > 0 and bool((lengths == lengths[0]).all())
    placed = _side_by_side if even else _placed
    return placed(parts, visits, lengths, wanted) | {
        "engine": np.repeat((visits >> 32).astype(np.int16), of_visit),
        "step": np.repeat((visits & STEPS).astype(np.int32), of_visit),
        "rank": np.tile(np.repeat(ranks, lengths[0]), len(visits))
        if even
        else np.repeat(np.tile(ranks, len(visits)), lengths.ravel()),
    }


def _side_by_side(
    parts: Sequence[Part], visits: Array, lengths: Array, wanted: Mapping[str, Source]
) -> Columns:
    """The columns, where each part has equally many rows in every visit."""
    ends = lengths[0].cumsum()
    found = {}
    for name, source in wanted.items():
        columns = [part.columns[source.name] for part in parts]
        if [len(column) for column in columns] == lengths[0].tolist():
            one = np.concatenate(columns)
            found[name] = np.tile(one if source.into is None else source.into[one], len(visits))
        else:
            found[name] = _room(parts, len(visits) * int(ends[-1]), source)
            _place(parts, ends, found[name].reshape(len(visits), -1), source)
    return found


def _place(parts: Sequence[Part], ends: Array, found: Array, source: Source) -> None:
    """Fill a column: visits by rows of a visit. A few visits at a time stay near the core."""

    def place(first: int) -> None:
        some = slice(first, first + _NEAR)
        for column, end in zip(columns, ends, strict=True):
            values = column[some]
            values = values if source.into is None else source.into[values]
            found[some, end - column.shape[1] : end] = values

    columns = [part.rows(source.name).reshape(len(found), -1) for part in parts]
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(place, range(0, len(found), _NEAR)))


def _placed(
    parts: Sequence[Part], visits: Array, lengths: Array, wanted: Mapping[str, Source]
) -> Columns:
    """The columns, with each part's rows where they belong."""
    found = {name: _room(parts, int(lengths.sum()), source) for name, source in wanted.items()}
    ends = lengths.ravel().cumsum(dtype=np.int64)
    begins = (ends - lengths.ravel()).reshape(lengths.shape)

    def place(n: int) -> None:
        part = parts[n]
        own = np.cumsum(part.lengths) - part.lengths
        begin = begins[rows_of(visits, part.visits), n] - own
        where = np.repeat(begin, part.lengths) + np.arange(int(part.lengths.sum()))
        for name, source in wanted.items():
            values = part.rows(source.name)
            found[name][where] = values if source.into is None else source.into[values]

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(place, range(len(parts))))
    return found


def _room(parts: Sequence[Part], size: int, source: Source) -> Array:
    if source.into is not None:
        return np.empty(size, source.into.dtype)
    return np.empty(size, np.result_type(*{part.columns[source.name].dtype for part in parts}))
