"""Rows of one kind with all fields: for timelines, and to align ranks at collectives."""

from __future__ import annotations

import os
from typing import Any, Final

import numpy as np
import pyarrow as pa

from dsprof.recording.layout import ROW, RowKind
from dsprof.recording.read import Recording, Recordings
from dsprof.recording.stream import Portion
from dsprof.recording.table import DTYPES, Array, Words

_MOMENTS: Final = ("begin", "wait", "at")
_LENGTHS: Final = ("duration", "blocked", "gpu")
_WORDS: Final = ("group", "text")


def read_rows(kind: RowKind, *paths: str | os.PathLike[str]) -> pa.Table:
    """All rows of `kind` under `paths`, in the order in which each process wrote them.

    Columns: `segment`, `rank`, `line`, `name`, `path`, and the row's own fields as in
    `layout.ROWS`. Moments are nanoseconds since 1970 (UTC, int64), durations are seconds, null if
    unknown; ids are replaced by their text.

    Raises:
        DsprofError: a file is not a recording, or has a newer format.
    """
    recordings = Recordings(paths)
    recordings.discover()
    tables = [
        _table(recording, portion, kind)
        for recording in recordings.recordings
        for portion in recording.portions()
    ]
    recordings.close()
    return pa.concat_tables(tables).unify_dictionaries() if tables else pa.table({})


def _table(recording: Recording, portion: Portion, kind: RowKind) -> pa.Table:
    raw = np.frombuffer(portion.rows, np.uint8).reshape(-1, ROW)
    where = np.flatnonzero(raw[:, 0] == kind)
    rows = raw[where].reshape(-1).view(DTYPES[kind])
    size = len(rows)
    columns: dict[str, Any] = {
        "segment": np.full(size, recording.segment, np.int32),
        "rank": pa.array([recording.rank] * size, pa.int32()),
        "line": where + portion.first,
    }
    for field in rows.dtype.names or ():
        columns |= _columns(recording, field, rows[field])
    del columns["kind"]
    return pa.table(columns)


def _columns(recording: Recording, field: str, values: Array) -> dict[str, Any]:
    names = recording.names
    if field == "name":
        return {
            "name": _meant(names.text, values),
            "path": _meant(names.path, values),
        }
    if field in _WORDS:
        return {field: _meant(names.text, values)}
    if field in _MOMENTS and values.dtype.kind == "i":  # STEP has a class `wait`, a float
        return {field: recording.clock.utc(values)}
    if field == "gpu_begin":
        return {field: pa.array(recording.clock.utc(values), mask=values <= 0)}
    if field in _LENGTHS:
        return {field: pa.array(values * 1e-9, mask=values < 0)}
    return {field: pa.array(np.ascontiguousarray(values))}


def _meant(meaning: dict[int, str], ids: Array) -> pa.Array:
    words = Words(meaning)
    return words.column(words.of(ids))
