"""Rows of a recording read again as a whole, with the moments that `bulk` does not keep."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from dsprof.errors import DsprofError
from dsprof.recording.layout import JSON, ROW, RowKind, header_size
from dsprof.recording.table import DTYPES

if TYPE_CHECKING:
    from dsprof.recording.bulk import Process
    from dsprof.recording.table import Array
    from dsprof.recording.told import Columns

_APART: Final = 1024  # rows; those of one step lie closer together than this and are read at once


def whole_rows(process: Process, kind: RowKind, which: Array) -> Array | None:
    """Rows of spans or collectives with all fields, in the dtype `table.DTYPES[kind]`.

    None if a file is no longer what it was: deleted to make room, or written anew.

    Args:
        process: of a `Bulk`, whose files may be closed.
        kind: SPAN or COLLECTIVE.
        which: indices into `process.spans` or `process.calls`, ascending.
    """
    columns = process.spans if kind == RowKind.SPAN else process.calls
    found = np.zeros(len(which), DTYPES[kind])
    for number in np.unique(columns["file"][which]):
        mine = np.flatnonzero(columns["file"][which] == number)
        rows = _of_file(process.files[int(number)], columns["line"][which[mine]].astype(np.int64))
        if rows is None:
            return None
        found[mine] = rows.view(DTYPES[kind])[:, 0]
    same = (found["kind"] == kind) & _agree(found, columns, which)
    return found if same.all() else None


def _of_file(path: str, lines: Array) -> Array | None:
    """Rows with these numbers, ascending. [rows x 64 bytes]"""
    found = np.zeros((len(lines), ROW), np.uint8)
    heads = np.flatnonzero(np.diff(lines, prepend=-_APART) >= _APART)
    try:
        with Path(path).open("rb") as file:
            begin = header_size(file.read(JSON), path)
            for first, end in zip(heads, [*heads[1:], len(lines)], strict=True):
                low, high = int(lines[first]), int(lines[end - 1])
                data = os.pread(file.fileno(), (high - low + 1) * ROW, begin + (low - 1) * ROW)
                if len(data) < (high - low + 1) * ROW:
                    return None
                rows = np.frombuffer(data, np.uint8).reshape(-1, ROW)
                found[first:end] = rows[lines[first:end] - low]
    except (OSError, DsprofError):
        return None
    return found


def _agree(rows: Array, columns: Columns, which: Array) -> Array:
    """Which rows are those that were read before."""
    same = np.ones(len(rows), bool)
    for name in ("engine", "name", "step", "duration"):
        same &= rows[name] == columns[name][which]
    return same
