"""The events as one pandas frame with fixed column types, and keys to group it by."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from dsprof.events import COLUMNS

WORDS: Final = ("kind", "name", "raw", "host", "source", "pattern", "timers")
SURE: Final = ("segment", "engine", "record")  # never missing
WHOLE: Final = ("step", "steps", "rank", "count", "line")
MEASURES: Final = ("seconds", "bytes", "value")

Codes = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.float64]


def frame_of(table: pa.Table) -> pd.DataFrame:
    """The events of a `Log` as a frame that `tidy` takes, whole numbers kept whole."""
    whole = {pa.int8(), pa.int16(), pa.int32(), pa.int64()}
    frame: pd.DataFrame = table.unify_dictionaries().to_pandas(
        types_mapper=lambda kind: pd.Int64Dtype() if kind in whole else None
    )
    return frame


def tidy(events: pd.DataFrame) -> pd.DataFrame:
    """A copy with every column of the contract, in its order, and one type a column.

    Words become categories, whole numbers `Int64` (missing: NA), measures `float64`
    (missing: NaN), `at` a time stamp, `text` a string. Columns that are not there are missing.
    """
    index = pd.RangeIndex(len(events))
    columns: dict[str, Any] = {}
    for name in COLUMNS:
        if name in events:
            columns[name] = _typed(name, events[name].set_axis(index))
        elif name == "record":
            columns[name] = index
        else:
            columns[name] = 0 if name in SURE else _typed(name, _NOTHING).reindex(index)
    return pd.DataFrame(columns, index=index)


_NOTHING: Final[pd.Series[Any]] = pd.Series([], dtype=object)


def _typed(name: str, known: pd.Series[Any]) -> pd.Series[Any]:
    if name in SURE:
        return known.fillna(0).astype("int64")
    if name in WHOLE:
        return known if known.dtype == "Int64" else pd.to_numeric(known).astype("Int64")
    if name in MEASURES:
        return known if known.dtype == "float64" else pd.to_numeric(known).astype("float64")
    if name == "at":
        return pd.to_datetime(known)
    if isinstance(known.dtype, pd.CategoricalDtype) and name in WORDS:
        return known
    words = known.astype("string").astype("str")
    return words.astype("category") if name in WORDS else words


def whole(column: pd.Series[Any]) -> Codes:
    """A whole-number or category column as codes; missing is -1."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        return np.asarray(column.cat.codes, np.int64)
    return np.asarray(column.fillna(-1), np.int64)


def known_rank(frame: pd.DataFrame) -> pd.DataFrame:
    """A line that names no rank counts as rank 0's: one process prints both kinds."""
    return frame.assign(rank=frame["rank"].fillna(0))


def keys(frame: pd.DataFrame, *columns: str) -> Codes:
    """One number a row, equal where all `columns` are; ordered as the columns are."""
    code = np.zeros(len(frame), np.int64)
    for name in columns:
        dense, seen = pd.factorize(whole(frame[name]), sort=True)
        code = code * max(len(seen), 1) + dense
    return code


def positions(table: pd.DataFrame, rows: pd.DataFrame, *columns: str) -> Codes:
    """Row of `table` (sorted by `columns`, each key once) that each of `rows` belongs to, or -1.

    `columns` are whole numbers.
    """
    names = list(columns)
    code = keys(pd.concat([table[names], rows[names]]), *columns)
    there, sought = code[: len(table)], code[len(table) :]
    if not len(there):
        return np.full(len(rows), -1, np.int64)
    at = np.minimum(np.searchsorted(there, sought), len(there) - 1)
    return np.where(there[at] == sought, at, -1)


def numbers(column: pd.Series[Any]) -> Numbers:
    """A number column as floats; missing is NaN."""
    return column.to_numpy(np.float64, na_value=np.nan)


def of_kind(events: pd.DataFrame, kind: str) -> pd.DataFrame:
    return events[events["kind"] == kind]
