"""What is kept of a run that goes on: its last steps whole, a fair sample of all others.

Memory does not grow with the run. `recent` holds the last steps; `sample` holds steps
chosen by a hash of their number, half as many each time it is full: every part of the run
is told of alike, and what is told of a step is told whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dsprof.events import Kind
from dsprof.schema import SCHEMA as EVENTS

WINDOW: Final = 60  # steps, as long as they are not more than `ROWS`
LEAST: Final = 22  # steps, up to `MOST_ROWS`: rules need twenty besides the first
ROWS: Final = 100_000
MOST_ROWS: Final = 200_000
SAMPLE_ROWS: Final = 80_000
_WAITING: Final = 50_000  # rows that have come and are not in their place yet
_CONFIG: Final = 4_000
_PROBLEMS: Final = 4_000
_LOOSE: Final = 20_000  # rows of no step

_RECORD: Final = EVENTS.get_field_index("record")
SCHEMA: Final = EVENTS.set(_RECORD, pa.field("record", pa.int64()))
EMPTY: Final = pa.Table.from_batches([], SCHEMA)  # `empty_table` would import pandas

Array = np.ndarray[Any, np.dtype[np.int64]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]


class Store:
    """Takes events as they come.

    Attributes:
        every: of the steps long ago, one in so many is kept.
    """

    def __init__(self) -> None:
        self.every = 1
        self._config = self._problems = self._recent = self._sample = EMPTY
        self._shown: list[pa.Table] = []  # as they came
        self._fresh: list[pa.Table] = []
        self._new: list[pa.Table] = []
        self._old: list[pa.Table] = []
        self._records = self._waiting = 0

    def add(self, table: pa.Table, *, past: bool = False) -> None:
        """Rows that will not change; `past`: they are older than what is there already."""
        if len(table):
            (self._old if past else self._new).append(table)
            self._waiting += len(table)
        if self._waiting > _WAITING:
            self._settle()

    def show(self, tables: list[pa.Table]) -> None:
        """Rows that may still change: they count until the next call."""
        self._shown = [table for table in tables if len(table)]

    def forget(self, sources: Sequence[str]) -> None:
        """Whatever came of these is gone."""
        self._change(lambda table: _without(table, sources))
        for tables in (self._shown, self._new, self._old):
            tables[:] = [_without(table, sources) for table in tables]

    def relaunched(self, source: str, segment: int, more: int) -> None:
        """Rows of a source of the launches up to `segment` are of launches so many higher."""
        self._settle()
        self._change(lambda table: _raised(table, source, segment, more))

    def _change(self, action: Callable[[pa.Table], pa.Table]) -> None:
        """Change all that is in its place."""
        self._config, self._problems = action(self._config), action(self._problems)
        self._recent, self._sample = action(self._recent), action(self._sample)

    def recent(self) -> pa.Table:
        """The last steps of the last launch, with all that configures it."""
        self._settle()
        rows = pa.concat_tables([self._recent, *self._fresh]).unify_dictionaries()
        special = _is(rows, Kind.CONFIG, Kind.PROBLEM)
        config = pa.concat_tables([self._config, rows.filter(_is(rows, Kind.CONFIG))])
        problems = pa.concat_tables([self._problems, rows.filter(_is(rows, Kind.PROBLEM))])
        rows = _last_steps(rows.filter(pc.invert(special)))
        segment = _last_segment(pa.concat_tables([config, problems, rows]))
        failed = problems.filter(pc.equal(problems["segment"], segment))
        return pa.concat_tables([config, failed, rows]).unify_dictionaries()

    def sample(self) -> pa.Table:
        """All launches: every step while they are few, then some of them."""
        self._settle()
        fresh = [table.filter(_chosen(table, self.every)) for table in self._fresh]
        return pa.concat_tables(
            [self._config, self._problems, self._sample, *fresh]
        ).unify_dictionaries()

    def holds_only(self, recent: pa.Table) -> bool:
        """Whether these last steps are all that has ever come."""
        return self.every == 1 and len(self.sample()) == len(recent)

    def _counted(self, table: pa.Table) -> pa.Table:
        """In the columns of `SCHEMA`; no two records of two tables share a number."""
        record = table["record"].to_numpy().astype(np.int64)
        if len(record):
            record = record - record.min() + self._records
            self._records = int(record.max()) + 1
        return table.set_column(_RECORD, SCHEMA.field(_RECORD), pa.array(record)).cast(SCHEMA)

    def _settle(self) -> None:
        """Put what came in its place and let go of what is too old."""
        self._fresh = list(map(self._counted, self._shown))
        if not self._new and not self._old:
            return
        new = pa.concat_tables([EMPTY, *map(self._counted, self._new)]).unify_dictionaries()
        came = pa.concat_tables([*map(self._counted, self._old), new]).unify_dictionaries()
        self._new, self._old, self._waiting = [], [], 0
        config, problem = _is(came, Kind.CONFIG), _is(came, Kind.PROBLEM)
        self._config = _end(_joined(self._config, came.filter(config)), _CONFIG)
        self._problems = _end(_joined(self._problems, came.filter(problem)), _PROBLEMS)
        rest = new.filter(pc.invert(_is(new, Kind.CONFIG, Kind.PROBLEM)))
        self._recent = _last_steps(_joined(self._recent, rest))
        came = came.filter(pc.invert(pc.or_(config, problem)))
        self._sample = _joined(self._sample, came.filter(_chosen(came, self.every)))
        while len(self._sample) > SAMPLE_ROWS and self.every < _MOST:
            self.every *= 2
            self._sample = self._sample.filter(_chosen(self._sample, self.every))
        self._sample = _thinned(self._sample)


def _without(table: pa.Table, sources: Sequence[str]) -> pa.Table:
    theirs = pc.is_in(table["source"].cast(pa.string()), pa.array(sources, pa.string()))
    return table.filter(pc.invert(theirs))


def _raised(table: pa.Table, source: str, segment: int, more: int) -> pa.Table:
    place = SCHEMA.get_field_index("segment")
    old = table.column(place)
    own = pc.equal(table["source"].cast(pa.string()), source)
    new = pc.if_else(pc.and_(own, pc.less_equal(old, segment)), pc.add(old, more), old)
    return table.set_column(place, SCHEMA.field(place), new.cast(pa.int32()))


def _joined(one: pa.Table, other: pa.Table) -> pa.Table:
    """One table in one piece, words that nothing uses any more forgotten."""
    if not len(other):
        return one
    both = pa.concat_tables([one, other]).unify_dictionaries().combine_chunks()
    for place, field in enumerate(SCHEMA):
        if pa.types.is_dictionary(field.type) and len(both):
            words = both.column(place)
            if len(words.chunk(0).dictionary) > _WORDS + 2 * len(both):
                used = words.cast(pa.string()).dictionary_encode()
                both = both.set_column(place, field, used)
    return both


_MOST: Final = 1 << 20
_WORDS: Final = 1_000
_FAR: Final = 1 << 62


def _end(table: pa.Table, most: int) -> pa.Table:
    return table.slice(max(0, len(table) - most))


def _thinned(sample: pa.Table) -> pa.Table:
    """Rows of no step are all kept while they are few, then the last of them."""
    loose = sample["step"].is_null()
    old = np.flatnonzero(loose.to_numpy())[:-_LOOSE]
    if not len(old):
        return sample
    keep = np.ones(len(sample), bool)
    keep[old] = False
    return sample.filter(pa.array(keep))


def _is(table: pa.Table, *kinds: Kind) -> pa.ChunkedArray:
    found = pc.is_in(table["kind"].cast(pa.string()), pa.array([str(kind) for kind in kinds]))
    return pc.fill_null(found, fill_value=False)


def steps_of(table: pa.Table) -> Array:
    """Step of each row, -1 for none."""
    return np.asarray(pc.fill_null(table["step"], -1).to_numpy(), np.int64)


def _last_segment(table: pa.Table) -> int:
    top = pc.max(table["segment"]).as_py()
    return 0 if top is None else int(top)


def _chosen(table: pa.Table, every: int) -> pa.Array:
    """Rows of no step, and of the steps one in `every`: of 2 n never one that n left out."""
    step = steps_of(table)
    mixed = (step.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(40)
    return pa.array((step < 0) | (mixed % np.uint64(every) == 0))


def _last_steps(table: pa.Table) -> pa.Table:
    """The last launch's last steps, of engines that go on, and the last rows of no step."""
    if not len(table):
        return table
    step, segment = steps_of(table), table["segment"].to_numpy()
    here = segment == segment.max()
    keep = here & (step < 0)
    keep[np.flatnonzero(keep)[:-_LOOSE]] = False
    rows = np.flatnonzero(here & (step >= 0))
    if len(rows):
        engine, of_process = table["engine"].to_numpy()[rows], _of_process(table)[rows]
        behind = _behind(step[rows], engine, _moments(table)[rows], of_process)
        seen, counts = np.unique(behind[behind >= 0], return_counts=True)
        total = counts.cumsum()
        fits, most = (int(np.searchsorted(total, size)) for size in (ROWS, MOST_ROWS))
        steps = min(WINDOW, max(1, fits, min(LEAST, most)))
        keep[rows] = (behind >= 0) & (behind <= seen[:steps][-1])
    return table if keep.all() else table.filter(pa.array(keep))


def _of_process(table: pa.Table) -> Mask:
    """Rows of memory and GPUs: a recording counts them to no engine, and its steps to the first."""
    kind = table["kind"].cast(pa.string())
    are = pc.is_in(kind, pa.array([Kind.MEMORY.value, Kind.GPU.value]))
    return np.asarray(are.to_numpy(zero_copy_only=False), bool)


def _behind(step: Array, engine: Array, moment: Array, of_process: Mask) -> Array:
    """How far each row's step lies behind the last one of its engine; -1 where that one had ended
    before the one that is trained now began, as where a script trains a model for each fold.
    """
    mine = ~of_process if not of_process.all() else np.ones(len(step), bool)
    _, which = np.unique(engine, return_inverse=True)
    many = int(which.max()) + 1
    first, last, newest = np.full(many, _FAR), np.full(many, -_FAR), np.zeros(many, np.int64)
    np.minimum.at(first, which[mine], moment[mine])
    np.maximum.at(last, which[mine], moment[mine])
    now = last.argmax()
    over = (last < first[now])[which]
    if over.any():
        which, over = np.where(mine, which, now), np.where(mine, over, moment < first[now])
    np.maximum.at(newest, which[~over], step[~over])
    return np.where(over, -1, newest[which] - step)


def _moments(table: pa.Table) -> Array:
    """When each row was; where not all say so, their order."""
    at = table["at"].cast(pa.int64())
    return np.arange(len(table)) if at.null_count else np.asarray(at.to_numpy(), np.int64)
