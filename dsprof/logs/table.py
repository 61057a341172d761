"""Records of all sources as the one table of events."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dsprof.grammar import Grammar
from dsprof.logs.arrow import numbers, strings
from dsprof.logs.clocks import UNKNOWN
from dsprof.logs.place import Placed, Source, place
from dsprof.logs.records import Records
from dsprof.logs.rows import MEASURES, Rows
from dsprof.logs.torn import CUT_SHORT, may_lack_timers

SCHEMA: Final = pa.schema(
    [
        ("segment", pa.int32()),
        ("engine", pa.int16()),
        ("step", pa.int64()),
        ("steps", pa.int32()),
        ("rank", pa.int32()),
        ("host", pa.dictionary(pa.int32(), pa.string())),
        ("at", pa.timestamp("us")),
        ("kind", pa.dictionary(pa.int32(), pa.string())),
        ("name", pa.dictionary(pa.int32(), pa.string())),
        ("raw", pa.dictionary(pa.int32(), pa.string())),
        ("seconds", pa.float64()),
        ("bytes", pa.float64()),
        ("count", pa.float64()),
        ("value", pa.float64()),
        ("text", pa.dictionary(pa.int32(), pa.string())),
        ("source", pa.dictionary(pa.int32(), pa.string())),
        ("line", pa.int64()),
        ("pattern", pa.dictionary(pa.int32(), pa.string())),
        ("timers", pa.dictionary(pa.int32(), pa.string())),
        ("record", pa.int32()),
    ]
)


class Sheet:
    """One source's records, each column whole.

    Args:
        last: the records are asked for the last time: their memory is given back piece by
            piece as the table grows.
    """

    def __init__(
        self, name: str, rank: int | None, host: str | None, records: Records, *, last: bool = False
    ) -> None:
        self.name, self.records, self.last = name, records, last
        self.columns = {}
        for column, parts in records.columns.items():
            self.columns[column] = np.concatenate(parts) if parts else np.empty(0, np.int64)
            if last:
                parts.clear()
        self.torn = may_lack_timers(
            self.columns.pop("torn"), self.columns["signature"], records.reader.signatures.values
        )
        self.cut_short = records.reader.texts(CUT_SHORT) if self.torn.any() else -1
        if rank is not None:
            unknown = self.columns["rank"] < 0
            self.columns["rank"] = np.where(unknown, rank, self.columns["rank"]).astype(np.int32)
        if host is not None and len(self.columns["host"]):
            code = records.senders.hosts(host)
            unknown = self.columns["host"] < 0
            self.columns["host"] = np.where(unknown, code, self.columns["host"]).astype(np.int32)

    def rows(self) -> Iterator[Rows]:
        """Batches of rows, in order."""
        if not self.last:
            yield from self.records.rows
        while self.last and self.records.rows:
            yield self.records.rows.pop(0)

    def place(self, grammar: Grammar) -> Placed:
        c = self.columns
        bar, total = self._bars()
        source = Source(
            c["pattern"].astype(np.int64),
            c["step"].astype(np.int64),
            c["rank"].astype(np.int64),
            c["host"].astype(np.int64),
            c["signature"].astype(np.int64),
            c["at"],
            bar,
            total,
        )
        for name in ("pattern", "step", "signature"):
            del c[name]  # nothing asks for them any more
        return place(source, grammar, self.records.reader.signatures.values)

    def _bars(self) -> tuple[np.ndarray, np.ndarray]:
        """Position and length of the progress bar that each record shows, -1 if none."""
        count = self.records.count
        found = np.full(count, -1, np.int64), np.full(count, -1, np.int64)
        names = [key.name for key in self.records.reader.keys.values]
        for target, name in zip(found, ("bar_position", "bar_total"), strict=True):
            codes = [i for i, other in enumerate(names) if other == name]
            if not codes:
                break
            for rows in self.records.rows:
                here = np.flatnonzero(np.isin(rows.key, codes))
                if len(here):
                    told = np.nan_to_num(rows.measures["value"][here], nan=-1.0)
                    target[rows.record[here]] = told.astype(np.int64)
        return found


def events_table(sheets: Sequence[Sheet], grammar: Grammar) -> tuple[pa.Table, bool]:
    """The events of all sources, in order; and whether steps had to be counted."""
    batches = []
    base = 0
    counted = False
    several = _several_hosts(sheets)
    sources = strings([sheet.name for sheet in sheets])
    for number, sheet in enumerate(sheets):
        placed = sheet.place(grammar)
        counted |= placed.counted
        known = _of_records(sheet, placed, several, grammar) | {
            "source": _words(np.full(sheet.records.count, number, np.int32), sources),
            "record": numbers(np.arange(base, base + sheet.records.count, dtype=np.int32)),
        }
        records, keys = pa.record_batch(known), pa.record_batch(_of_keys(sheet, grammar))
        texts = strings(sheet.records.reader.texts.values)
        batches += [_batch(rows, sheet, records, keys, texts) for rows in sheet.rows()]
        base += sheet.records.count
    table = pa.Table.from_batches(batches, SCHEMA)
    return table.unify_dictionaries() if len(sheets) > 1 else table, counted


def _several_hosts(sheets: Sequence[Sheet]) -> bool:
    hosts = {
        sheet.records.senders.hosts.values[code]
        for sheet in sheets
        for code in np.unique(sheet.columns["host"]).tolist()
        if code >= 0
    }
    return len(hosts) > 1


def _ranks(sheet: Sheet, *, several: bool) -> np.ndarray:
    """Global ranks. On one host the local rank is the global one; on several it is not."""
    rank, local = sheet.columns.pop("rank"), sheet.columns.pop("local")
    return rank if several else np.where(rank < 0, local, rank).astype(np.int32)


def _of_records(
    sheet: Sheet, placed: Placed, several: bool, grammar: Grammar
) -> dict[str, pa.Array]:
    """Columns that are the same for all rows of a record, a value a record."""
    columns = sheet.columns
    hosts = strings(sheet.records.senders.hosts.values)
    return {
        "segment": numbers(placed.segment.astype(np.int32, copy=False)),
        "engine": numbers(placed.engine.astype(np.int16)),
        "step": _known(placed.step, pa.int64()),
        "steps": _known(placed.steps, pa.int32()),
        "rank": _known(_ranks(sheet, several=several), pa.int32()),
        "host": _words(columns["host"], hosts),
        "at": _known(columns["at"], pa.timestamp("us"), UNKNOWN),
        "line": numbers(columns["line"]),
        "timers": _words(placed.flavour, strings(list(grammar.timers))),
    }


def _of_keys(sheet: Sheet, grammar: Grammar) -> dict[str, pa.Array]:
    """Columns that are the same for all rows of a key, a value a key."""
    keys = sheet.records.reader.keys.values
    patterns = strings([pattern.id for pattern in grammar.patterns])
    found = {"pattern": _words(np.array([key.pattern for key in keys], np.int32), patterns)}
    for column in ("kind", "name", "raw"):
        words = [getattr(key, column) for key in keys]
        distinct = list(dict.fromkeys(words))
        number = {word: i for i, word in enumerate(distinct)}
        codes = np.array([number[word] for word in words], np.int32)
        found[column] = _words(codes, strings(distinct))
    return found


def _known(values: np.ndarray, kind: pa.DataType, missing: int = -1) -> pa.Array:
    return numbers(values, values == missing).cast(kind)


def _words(codes: np.ndarray, words: pa.Array) -> pa.Array:
    return pa.DictionaryArray.from_arrays(_known(codes, pa.int32()), words)


def _batch(
    rows: Rows, sheet: Sheet, records: pa.RecordBatch, keys: pa.RecordBatch, texts: pa.Array
) -> pa.RecordBatch:
    columns = {"text": _words(_texts(rows, sheet), texts)}
    for known, which in ((records, rows.record), (keys, rows.key)):
        taken = pc.take(known, numbers(which), boundscheck=False)
        columns |= dict(zip(known.schema.names, taken.columns, strict=True))
    columns |= {name: _measure(rows, name) for name in MEASURES}
    return pa.RecordBatch.from_arrays([columns[field.name] for field in SCHEMA], schema=SCHEMA)


def _texts(rows: Rows, sheet: Sheet) -> np.ndarray:
    text = np.full(len(rows.record), -1, np.int32) if rows.text is None else rows.text
    if sheet.cut_short < 0:
        return text
    return np.where((text < 0) & sheet.torn[rows.record], sheet.cut_short, text)


def _measure(rows: Rows, name: str) -> pa.Array:
    values = rows.measures.get(name)
    if values is None:
        return pa.nulls(len(rows.record), pa.float64())
    return numbers(values, np.isnan(values))
