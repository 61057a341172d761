"""Joins the records of all sources into one table of events."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from dsprof.grammar import Grammar
from dsprof.logs.columns.arrow import numbers, numpy_of, strings
from dsprof.logs.columns.clocks import UNKNOWN
from dsprof.logs.columns.codes import Codes
from dsprof.logs.joining.sheet import Sheet
from dsprof.logs.placing.jobs import SETTINGS, Jobs, Told, jobs_of
from dsprof.logs.placing.kinds import goes_wrong, is_summary
from dsprof.logs.placing.place import Placed, Source
from dsprof.logs.placing.several import Extent, extent_of, launches_of, rivals
from dsprof.logs.placing.stepless import beside_others, counted_beside
from dsprof.logs.scanning.rows import MEASURES, Key, Rows
from dsprof.schema import SCHEMA

_SHARED: Final = 100_000  # records of a source from which on several threads pay off

#: Makes one column, as a list of batches.
Column = Callable[[], "list[pa.Array]"]

_TYPES: Final = {
    field.name: np.dtype(
        "i4" if pa.types.is_dictionary(field.type) else f"i{field.type.byte_width}"
    )
    for field in SCHEMA
}


class Events(NamedTuple):
    """The rows of one job.

    Attributes:
        table: in the columns of SCHEMA, ordered by source and line.
        counted: whether step numbers had to be counted.
        clashes: pairs of sources that may show the same steps of the same rank.
        sheets: what the table was made from.
        jobs: the sources of each job, first those of the table; a single job if nothing shows
            several.
        why: what shows that there are several.
    """

    table: pa.Table
    counted: bool
    clashes: tuple[tuple[str, str], ...]
    sheets: Sequence[Sheet]
    jobs: tuple[tuple[str, ...], ...]
    why: str


def events_table(sheets: Sequence[Sheet], grammar: Grammar, threads: int = 1) -> Events:
    """The events of all sources of a job; files of a later launch become later segments."""
    words = _Words(grammar)
    columns: dict[str, list[pa.Array]] = {name: [] for name in SCHEMA.names}
    base = 0
    counted = False
    sources = [sheet.source(grammar) for sheet in sheets]
    extents = [_extent(*one, grammar) for one in zip(sheets, sources, strict=True)]
    jobs, why = _jobs(sheets, extents)
    names = tuple(tuple(sheets[i].name for i in job) for job in jobs)
    sheets, extents = [sheets[i] for i in jobs[0]], [extents[i] for i in jobs[0]]
    sources = [sources[i] for i in reversed(jobs[0])]
    segments: list[list[pa.Array]] = []
    last: list[int] = []
    several = _several_hosts(sheets)
    for sheet in sheets:
        workers = threads if sheet.records.count >= _SHARED else 1
        made, placed = _columns_of(
            sheet, sources.pop, grammar, words, base, threads=workers, several=several
        )
        counted |= placed.counted
        last.append(int(placed.segment.max(initial=0)))
        segments.append(made.pop("segment"))
        for name, parts in made.items():
            columns[name] += parts
        base += sheet.records.count
    families = [sheet.family for sheet in sheets]
    launches = beside_others(launches_of(extents), extents, families)
    if len(sheets) > 1 and any(last):
        wrong = np.array([goes_wrong(pattern) for pattern in grammar.patterns])
        segments = counted_beside(segments, columns, extents, launches, wrong)
    columns["segment"] = _numbered(segments, last, launches)
    clashing = tuple((sheets[i].name, sheets[j].name) for i, j in rivals(extents))
    return Events(_table(columns, words), counted, clashing, sheets, names, why)


def _jobs(sheets: Sequence[Sheet], extents: Sequence[Extent]) -> Jobs:
    if len(sheets) < 2:
        return Jobs([list(range(len(sheets)))], "")
    told = (
        Told(sheet.family, sheet.settings(SETTINGS), extent, sheet.records.count)
        for sheet, extent in zip(sheets, extents, strict=True)
    )
    return jobs_of(list(told))


def _extent(sheet: Sheet, source: Source, grammar: Grammar) -> Extent:
    met = np.flatnonzero(np.bincount(source.pattern.astype(np.intp)))  # a few, of hundreds
    told = np.zeros((3, len(grammar.patterns) or 1), bool)
    for at in met.tolist():
        pattern = grammar.patterns[at]
        told[:, at] = pattern.place == "own", pattern.starts, is_summary(pattern)
    own, starts, ends = told.take(source.pattern, axis=1)
    return extent_of(source, own, starts, ends, sheet.records.senders.hosts.values)


def _numbered(
    segments: Sequence[list[pa.Array]], last: Sequence[int], launches: Sequence[int]
) -> list[pa.Array]:
    """Segments of all sources, renumbered to follow those of earlier launches.

    Args:
        last: the highest segment of each source.
        launches: the launch of each source.
    """
    before = np.zeros(max(launches, default=0) + 2, np.int32)
    for launch, highest in zip(launches, last, strict=True):
        before[launch + 1] = max(before[launch + 1], highest + 1)
    before = np.cumsum(before, dtype=np.int32)
    return [
        numbers(numpy_of(part)[0] + before[launch]) if before[launch] else part
        for parts, launch in zip(segments, launches, strict=True)
        for part in parts
    ]


class _Words:
    """The words behind the codes of all batches, which share these dictionaries, so that none has
    to be rebuilt at the end.
    """

    def __init__(self, grammar: Grammar) -> None:
        self.of: dict[str, Codes[str]] = {
            field.name: Codes() for field in SCHEMA if pa.types.is_dictionary(field.type)
        }
        for pattern in grammar.patterns:
            self.of["pattern"](pattern.id)
        for flavour in grammar.timers:
            self.of["timers"](flavour)

    def of_keys(self, keys: Sequence[Key]) -> dict[str, np.ndarray]:
        """Columns that depend only on the key, as one code per key."""
        found = {
            column: np.array([self.of[column](getattr(key, column)) for key in keys], np.int32)
            for column in ("kind", "name", "raw")
        }
        return found | {"pattern": np.array([key.pattern for key in keys], np.int32)}


def _several_hosts(sheets: Sequence[Sheet]) -> bool:
    hosts = {
        sheet.records.senders.hosts.values[code]
        for sheet in sheets
        for code in np.unique(sheet.columns["host"]).tolist()
        if code >= 0
    }
    return len(hosts) > 1


def _columns_of(
    sheet: Sheet,
    take: Callable[[], Source],
    grammar: Grammar,
    words: _Words,
    base: int,
    *,
    threads: int,
    several: bool,
) -> tuple[dict[str, list[pa.Array]], Placed]:
    """The rows of a sheet: each column of SCHEMA in batches, words as codes.

    To save memory, columns are made one after the other, and what a column is made from is freed
    before the next one: the two are never in memory as a whole. `threads` columns are made at once.
    `take` returns what is needed to place the sheet's records, and keeps no reference to it.
    """
    source = take()
    texts = words.of["text"].taken_from(sheet.records.reader.texts)
    keys = words.of_keys(sheet.records.reader.keys.values)
    batches = sheet.rows()
    lengths = [len(rows.key) for rows in batches]
    unknown = pa.nulls(max(lengths, default=0), pa.float64())
    own: dict[str, Column] = {name: partial(_measure, name, batches, unknown) for name in MEASURES}
    own["text"] = lambda: _batches(
        "text", (texts.take(_texts(rows, sheet)) for rows in batches), lengths
    )
    for name, codes in keys.items():
        own[name] = partial(_of_codes, name, codes, batches, lengths)
    made: dict[str, list[pa.Array]] = {}
    with _making(own, threads, made):
        placed = sheet.place(source, grammar)
    del source
    record = [rows.record for rows in batches]
    batches.clear()
    spans = [_span(which) for which in record]
    same: dict[str, Column] = {}
    of_records = _of_records(sheet, placed, words, several=several)
    while of_records:
        name, values = of_records.popitem()
        same[name] = partial(_of_spans, name, values, spans, lengths)
    with _making(same, threads, made):
        made["record"] = [numbers(which + base if base else which) for which in record]
    return made, placed


@contextmanager
def _making(
    columns: dict[str, Column], threads: int, made: dict[str, list[pa.Array]]
) -> Iterator[None]:
    """Fill `made` with each column by the end of the block, freeing what it is made from at once.

    `threads - 1` threads begin right away; this one joins them after the body of the block.
    """
    with ThreadPoolExecutor(threads) as pool:
        others = [pool.submit(_make, columns, made) for _ in range(threads - 1)]
        yield
        _make(columns, made)  # here, too: glibc keeps for a thread what that thread frees
        for done in others:
            done.result()


def _make(columns: dict[str, Column], made: dict[str, list[pa.Array]]) -> None:
    """Make columns, the last one first, until none is left."""
    while True:
        try:
            name, column = columns.popitem()
        except KeyError:  # another thread took the last one
            return
        made[name] = column()


def _of_records(
    sheet: Sheet, placed: Placed, words: _Words, *, several: bool
) -> dict[str, np.ndarray]:
    """Columns that depend only on the record, as one value per record."""
    hosts = words.of["host"].taken_from(sheet.records.senders.hosts)
    source = np.int32(words.of["source"](sheet.name))
    return {
        "segment": placed.segment,
        "engine": placed.engine,
        "step": placed.step,
        "steps": placed.steps,
        "rank": _ranks(sheet, several=several),
        "host": hosts[sheet.columns.pop("host")],
        "at": sheet.columns.pop("at"),
        "line": sheet.columns.pop("line"),
        "timers": placed.flavour,
        "source": np.broadcast_to(source, sheet.records.count),
    }


def _ranks(sheet: Sheet, *, several: bool) -> np.ndarray:
    """Global ranks. On a single host the local rank is the global rank; with several hosts it is
    not.
    """
    rank, local = sheet.columns.pop("rank"), sheet.columns.pop("local")
    return rank if several else np.where(rank < 0, local, rank)


class _Span(NamedTuple):
    """The records of a batch, which are consecutive, and the number of rows of each."""

    first: int
    end: int
    rows: np.ndarray


def _span(record: np.ndarray) -> _Span:
    first, end = int(record[0]), int(record[-1]) + 1
    return _Span(first, end, np.bincount(record - first).astype(np.int32))  # kept for all batches


def _of_spans(
    name: str, values: np.ndarray, spans: Sequence[_Span], lengths: Sequence[int]
) -> list[pa.Array]:
    """A column that depends only on the record."""
    values = values.astype(_TYPES[name], copy=False)
    parts = (values[span.first : span.end] for span in spans)
    return _batches(name, parts, lengths, [span.rows for span in spans])


def _of_codes(
    name: str, codes: np.ndarray, batches: Sequence[Rows], lengths: Sequence[int]
) -> list[pa.Array]:
    """A column that depends only on the key."""
    return _batches(name, (codes.take(rows.key) for rows in batches), lengths)


def _batches(
    name: str,
    batches: Iterable[np.ndarray],
    lengths: Sequence[int],
    each: Sequence[np.ndarray] | None = None,
) -> list[pa.Array]:
    """Make a column. Batches with one and the same value share memory, which saves space and the
    time to write it.

    Args:
        lengths: rows of each batch.
        each: for each batch, how many rows each of its values covers; by default one.
    """
    same: dict[bytes, pa.Array] = {}
    made = []
    for number, (values, length) in enumerate(zip(batches, lengths, strict=True)):
        if (values != values[0]).any():
            made.append(_known(name, values if each is None else values.repeat(each[number])))
            continue
        value = values[:1].tobytes()
        if value not in same:
            same[value] = _known(name, np.full(max(lengths), values[0]))
        made.append(same[value][:length])
    return made


def _known(name: str, values: np.ndarray) -> pa.Array:
    """A column of the type in SCHEMA, or its codes if it holds words."""
    values = values.astype(_TYPES[name], copy=False)
    missing = values == (UNKNOWN if name == "at" else -1)
    if pa.types.is_dictionary(SCHEMA.field(name).type) and missing.any():
        values = np.maximum(values, 0)  # pyarrow looks up a null's index, too, to unify
    found = numbers(values, missing)
    return found.cast(SCHEMA.field(name).type) if name == "at" else found


def _texts(rows: Rows, sheet: Sheet) -> np.ndarray:
    text = np.full(len(rows.record), -1, np.int32) if rows.text is None else rows.text
    if sheet.cut_short < 0:
        return text
    return np.where((text < 0) & sheet.torn[rows.record], sheet.cut_short, text)


def _measure(name: str, batches: Sequence[Rows], unknown: pa.Array) -> list[pa.Array]:
    """A numeric column; `unknown` is an array of nulls as long as the longest batch."""
    every = [rows.measures.get(name) for rows in batches]
    return [
        unknown[: len(rows.record)] if values is None else numbers(values, np.isnan(values))
        for rows, values in zip(batches, every, strict=True)
    ]


def _table(columns: dict[str, list[pa.Array]], words: _Words) -> pa.Table:
    made = []
    for field in SCHEMA:
        parts = columns[field.name]
        if field.name in words.of:
            said = strings(words.of[field.name].values)
            parts = [pa.DictionaryArray.from_arrays(part, said, safe=False) for part in parts]
        made.append(pa.chunked_array(parts, field.type))
    return pa.Table.from_arrays(made, schema=SCHEMA)
