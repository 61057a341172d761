"""Bytes to events and back to plain Python, for tests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from dsprof import grammar
from dsprof.logs import Log, Reader
from dsprof.logs.sources.source import Source

PFX = b"[2024-03-15 13:21:52,800] [INFO] [logging.py:96:log_dist] [Rank 0] "
STEP = b"step=%d, skipped=0, lr=[0.001], mom=[(0.9, 0.999)]"
TIMERS = (
    b"time (ms) | fwd: 10.00 | bwd: 20.50 | bwd_inner: 18.00 | bwd_allreduce: 2.50 | step: 1.25"
)

Row = dict[str, Any]


def read(data: bytes, portions: Iterable[int] = (), *, name: str = "run.log") -> Log:
    """The log's text read in portions of those sizes, the rest in one."""
    reader = Reader(grammar.builtin(), Source(name))
    at = 0
    for size in portions:
        reader.feed(data[at : at + size])
        at += size
    reader.feed(data[at:])
    reader.finish()
    return reader.log()


def rows(data: bytes, **wanted: object) -> list[Row]:
    """Events of a text that have those values."""
    every: list[Row] = read(data).events.to_pylist()
    return [row for row in every if all(row[key] == value for key, value in wanted.items())]


def plain(table: pa.Table) -> pa.Table:
    """Without the source's name, with words instead of codes."""
    columns = {}
    for name in table.column_names:
        column = table[name]
        is_coded = pa.types.is_dictionary(column.type)
        columns[name] = column.cast(column.type.value_type) if is_coded else column
    del columns["source"]
    return pa.table(columns).combine_chunks()


def difference(one: pa.Table, two: pa.Table) -> str:
    """Where two tables of events differ; "" if nowhere."""
    a, b = plain(one).to_pylist(), plain(two).to_pylist()
    for at, (left, right) in enumerate(zip(a, b, strict=False)):
        parts = [k for k in left if repr(left[k]) != repr(right[k])]
        if parts:
            return f"row {at}: {[(k, left[k], right[k]) for k in parts]} in {left}"
    return "" if len(a) == len(b) else f"{len(a)} rows, {len(b)} rows"
