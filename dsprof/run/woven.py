"""Rows of many processes in the order of steps and ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
_NEAR: Final = 1 << 17  # rows that are placed together


@dataclass(frozen=True)
class Table:
    """A column that is worked out where it is placed, without room of its own.

    Attributes:
        dtype: of its values.
        among: at least each value once, of a column of codes.
        of: the values of some visits. [visits, rows of a visit]
    """

    dtype: np.dtype[Any]
    among: Array
    of: Callable[[slice], Array]


@dataclass(frozen=True)
class Part:
    """Rows of one process, in order of visit.

    Attributes:
        visits: engine and step as one number, each once.
        lengths: rows of each.
        columns: of all rows, of one visit where all others hold the same, or a `Table` of them.
    """

    visits: Array
    lengths: Array
    columns: Mapping[str, Array | Table]

    def rows(self, name: str) -> Array:
        """A column of all rows."""
        column = self.columns[name]
        if isinstance(column, Table):
            return column.of(slice(None)).ravel()
        return column if len(column) == self.lengths.sum() else np.tile(column, len(self.visits))

    def table(self, name: str) -> Callable[[slice], Array]:
        """What gives the values of some visits, where all have equally many rows."""
        column = self.columns[name]
        if isinstance(column, Table):
            return column.of
        return self.rows(name).reshape(len(self.visits), -1).__getitem__

    def among(self, name: str) -> Array:
        """At least each value of a column of codes once."""
        column = self.columns[name]
        return column.among if isinstance(column, Table) else column


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
    visits = parts[0].visits
    if not all(np.array_equal(visits, part.visits) for part in parts):
        visits = distinct(np.concatenate([part.visits for part in parts]))
    lengths = np.zeros((len(visits), len(parts)), np.int32)
    for n, part in enumerate(parts):
        lengths[rows_of(visits, part.visits), n] = part.lengths
    engine, step = (visits >> 32).astype(np.int16), (visits & STEPS).astype(np.int32)
    if len(visits) and (lengths == lengths[0]).all():
        width = int(lengths[0].sum())
        return _side_by_side(parts, visits, lengths, wanted) | {
            "engine": np.repeat(engine, width),
            "step": np.repeat(step, width),
            "rank": _again(np.repeat(ranks, lengths[0]), len(visits)),
        }
    of_visit = lengths.sum(axis=1)
    return _placed(parts, visits, lengths, wanted) | {
        "engine": np.repeat(engine, of_visit),
        "step": np.repeat(step, of_visit),
        "rank": np.repeat(np.tile(ranks, len(visits)), lengths.ravel()),
    }


def _again(values: Array, times: int) -> Array:
    """As `np.tile`, without its copy in between."""
    found = np.empty((times, len(values)), values.dtype)
    found[:] = values
    return found.reshape(-1)


def _side_by_side(
    parts: Sequence[Part], visits: Array, lengths: Array, wanted: Mapping[str, Source]
) -> Columns:
    """The columns, where each part has equally many rows in every visit."""
    ends = lengths[0].cumsum()
    found = {}
    for name, source in wanted.items():
        columns = [part.columns[source.name] for part in parts]
        once = [column for column in columns if not isinstance(column, Table)]
        if [len(column) for column in once] == lengths[0].tolist():
            one = np.concatenate(once)
            found[name] = _again(one if source.into is None else source.into[one], len(visits))
        else:
            found[name] = _room(parts, len(visits) * int(ends[-1]), source)
            _place(parts, ends, found[name].reshape(len(visits), -1), source)
    return found


def _place(parts: Sequence[Part], ends: Array, found: Array, source: Source) -> None:
    """Fill a column: visits by rows of a visit. A few visits at a time stay near the core."""
    near = max(1, _NEAR // max(1, found.shape[1]))
    tables = [part.table(source.name) for part in parts]

    def place(first: int) -> None:
        some = slice(first, first + near)
        for table, end in zip(tables, ends.tolist(), strict=True):
            values = table(some)
            values = values if source.into is None else source.into[values]
            found[some, end - values.shape[1] : end] = values

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(place, range(0, len(found), near)))


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
