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

    def once(self, name: str) -> Array | None:
        """A column of one visit, if all others hold the same."""
        column = self.columns[name]
        return None if isinstance(column, Table) or len(column) != self.lengths[0] else column

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

    def meant(self, values: Array) -> Array:
        """What values of the other column are in this one."""
        return values if self.into is None else self.into[values]


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
    there = [n for n, part in enumerate(parts) if len(part.visits)]
    if there and _even([parts[n] for n in there]):
        return _side_by_side([parts[n] for n in there], ranks[there], wanted)
    visits = distinct(np.concatenate([part.visits for part in parts]))
    lengths = np.zeros((len(visits), len(parts)), np.int32)
    for n, part in enumerate(parts):
        lengths[rows_of(visits, part.visits), n] = part.lengths
    engine, step = _engine_and_step(visits)
    of_visit = lengths.sum(axis=1)
    return _placed(parts, visits, lengths, wanted) | {
        "engine": np.repeat(engine, of_visit),
        "step": np.repeat(step, of_visit),
        "rank": np.repeat(np.tile(ranks, len(visits)), lengths.ravel()),
    }


def _engine_and_step(visits: Array) -> tuple[Array, Array]:
    return (visits >> 32).astype(np.int16), (visits & STEPS).astype(np.int32)


def _even(parts: Sequence[Part]) -> bool:
    """Whether all have the same visits, and each equally many rows in every one."""
    return all(
        np.array_equal(part.visits, parts[0].visits)
        and bool((part.lengths == part.lengths[0]).all())
        for part in parts
    )


def _side_by_side(parts: Sequence[Part], ranks: Array, wanted: Mapping[str, Source]) -> Columns:
    """The columns of parts that are even: a few visits at a time, which stay near the core."""
    widths = [int(part.lengths[0]) for part in parts]
    shape = len(parts[0].visits), sum(widths)
    engine, step = _engine_and_step(parts[0].visits)
    given = {"engine": engine[:, None], "step": step[:, None], "rank": np.repeat(ranks, widths)}
    for name, source in wanted.items():
        once = [one for part in parts if (one := part.once(source.name)) is not None]
        if len(once) == len(parts):
            given[name] = source.meant(np.concatenate(once))
    tables = {
        name: [part.table(source.name) for part in parts]
        for name, source in wanted.items()
        if name not in given
    }
    rooms = {name: np.empty(shape, one.dtype) for name, one in given.items()}
    rooms |= {name: _room(parts, wanted[name], *shape) for name in tables}

    def place(first: int) -> None:
        some = slice(first, first + near)
        for name, one in given.items():
            rooms[name][some] = np.broadcast_to(one, shape)[some]
        for name, each in tables.items():
            for table, begin, width in zip(each, begins, widths, strict=True):
                rooms[name][some, begin : begin + width] = wanted[name].meant(table(some))

    near, begins = max(1, _NEAR // shape[1]), (np.cumsum(widths) - widths).tolist()
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(place, range(0, shape[0], near)))
    return {name: room.reshape(-1) for name, room in rooms.items()}


def _placed(
    parts: Sequence[Part], visits: Array, lengths: Array, wanted: Mapping[str, Source]
) -> Columns:
    """The columns, with each part's rows where they belong."""
    found = {name: _room(parts, source, int(lengths.sum())) for name, source in wanted.items()}
    ends = lengths.ravel().cumsum(dtype=np.int64)
    begins = (ends - lengths.ravel()).reshape(lengths.shape)

    def place(n: int) -> None:
        part = parts[n]
        own = np.cumsum(part.lengths) - part.lengths
        begin = begins[rows_of(visits, part.visits), n] - own
        where = np.repeat(begin, part.lengths) + np.arange(int(part.lengths.sum()))
        for name, source in wanted.items():
            found[name][where] = source.meant(part.rows(source.name))

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(place, range(len(parts))))
    return found


def _room(parts: Sequence[Part], source: Source, *shape: int) -> Array:
    if source.into is not None:
        return np.empty(shape, source.into.dtype)
    return np.empty(shape, np.result_type(*{part.columns[source.name].dtype for part in parts}))
