"""The events as one pandas frame with fixed column types, and keys to group it by."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from dsprof.events import COLUMNS
from dsprof.recording.table import distinct

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
    words = _text(known)
    return words.astype("category") if name in WORDS else words


def _text(column: pd.Series[Any]) -> pd.Series[Any]:
    if not isinstance(column.dtype, pd.CategoricalDtype):
        return column.astype("string").astype("str")
    words = column.cat.categories.astype("str").array
    codes = column.cat.codes.to_numpy()
    return pd.Series(words.take(codes, allow_fill=True), column.index, name=column.name)


def whole(column: pd.Series[Any]) -> Codes:
    """A whole-number or category column as codes; missing is -1."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        return np.asarray(column.cat.codes, np.int64)
    return column.to_numpy(np.int64, na_value=-1)


def known_rank(frame: pd.DataFrame) -> pd.DataFrame:
    """A line that names no rank counts as rank 0's: one process prints both kinds."""
    return frame.assign(rank=frame["rank"].fillna(0))


def keys(frame: pd.DataFrame, *columns: str) -> Codes:
    """One number a row, equal where all `columns` are; ordered as the columns are."""
    arrays = [whole(frame[name]) for name in columns]
    heads = runs(*arrays)
    code = np.zeros(len(heads), np.int64)
    for array in arrays:
        if _is_one(array):
            continue
        dense, seen = pd.factorize(array[heads], sort=True)
        code = code * max(len(seen), 1) + dense
    return np.repeat(code, np.diff(heads, append=len(frame)))


def runs(*columns: npt.ArrayLike) -> Codes:
    """Where rows begin to differ from the row before in any of `columns`.

    Rows of one step and rank mostly stand together: what is the same for all of them is
    worked out once a run of rows.
    """
    arrays = [np.asarray(column) for column in columns]
    new = np.zeros(len(arrays[0]), bool)
    new[:1] = True
    for array in arrays:
        if not _is_one(array):
            new[1:] |= array[1:] != array[:-1]
    return np.flatnonzero(new)


def _is_one(array: npt.NDArray[Any]) -> bool:
    """Whether it is one whole number all along: a look costs less than to compare neighbours."""
    alike = array.dtype.kind in "iu" and len(array) > 0 and array[0] == array[-1]
    return bool(alike and array.min() == array.max())


def places(column: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], Codes]:
    """Each whole number once, in order, and which of them every row is."""
    heads = runs(column)
    known = distinct(column[heads])
    codes = np.searchsorted(known, column[heads])
    return known, np.repeat(codes, np.diff(heads, append=len(column)))


def positions(table: pd.DataFrame, rows: pd.DataFrame, *columns: str) -> Codes:
    """Row of `table` (sorted by `columns`, each key once) that each of `rows` belongs to, or -1.

    `columns` are whole numbers.
    """
    heads, place = stretches(table, rows, *columns)
    return np.repeat(place, np.diff(heads, append=len(rows)))


def stretches(table: pd.DataFrame, rows: pd.DataFrame, *columns: str) -> tuple[Codes, Codes]:
    """Where stretches of `rows` of one key begin, and the row of `table` of each, or -1."""
    arrays = [plain(rows[name]) for name in columns]
    heads = runs(*arrays)
    if not len(table):
        return heads, np.full(len(heads), -1, np.int64)
    there, sought = _codes([whole(table[name]) for name in columns], [a[heads] for a in arrays])
    at = np.minimum(np.searchsorted(there, sought), len(there) - 1)
    return heads, np.where(there[at] == sought, at, -1)


def of_part(rows: pd.DataFrame, values: npt.ArrayLike) -> Numbers:
    """Of each row the sum of `values` over all rows of its segment and engine; NaN adds nothing."""
    _, part = np.unique(keys(rows, "segment", "engine"), return_inverse=True)
    known = np.asarray(values, np.float64)
    sums = np.bincount(part, np.where(np.isnan(known), 0.0, known)).astype(np.float64)
    return np.asarray(sums[part])


def within(table: pd.DataFrame, rows: pd.DataFrame, *columns: str) -> pd.DataFrame:
    """Those of `rows` whose key `table` has; no copy of them is made where they stand together."""
    heads, place = stretches(table, rows, *columns)
    there = np.flatnonzero(place >= 0)
    if len(there) and there[-1] - there[0] == len(there) - 1:
        return rows.iloc[heads[there[0]] : np.append(heads, len(rows))[there[-1] + 1]]
    return rows[np.repeat(place >= 0, np.diff(heads, append=len(rows)))]


def _codes(table: Sequence[Codes], rows: Sequence[npt.NDArray[Any]]) -> tuple[Codes, Codes]:
    """One number a row of both, ordered as the columns are; -1 for rows of no row of `table`."""
    there = np.zeros(len(table[0]), np.int64)
    sought = np.zeros(len(rows[0]), np.int64)
    outside = np.zeros(len(sought), bool)
    for one, other in zip(table, rows, strict=True):
        known = distinct(one)
        dense = bool(known[-1] - known[0] < 2 * len(known) + 1000)
        base = np.arange(known[0], known[-1] + 1) if dense else known
        there = there * len(base) + np.searchsorted(base, one)
        inside = (other >= base[0]) & (other <= base[-1])
        outside |= ~inside
        missing = other.dtype.kind == "f"  # or may be; as a whole number it could be any
        held = np.where(inside, other, base[0]) if missing else other
        place = held.astype(np.int64) - base[0] if dense else np.searchsorted(base, held)
        if not dense:
            outside |= base[np.minimum(place, len(base) - 1)] != held
        sought = sought * len(base) + place
    sought[outside] = -1
    return there, sought


def plain(column: pd.Series[Any]) -> npt.NDArray[Any]:
    """A whole-number column as numpy holds it, not copied if it can be; missing is -1."""
    return column.to_numpy() if isinstance(column.dtype, np.dtype) else whole(column)


def visits(step: npt.NDArray[Any], rank: npt.NDArray[Any]) -> Codes:
    """Step of every distinct pair of step and rank, in order.

    A row that names no rank (-1) counts as the lowest one's: one process prints both kinds.
    """
    heads = runs(step, rank)
    step, ranks = step[heads].astype(np.int64), rank[heads]
    codes, seen = pd.factorize(ranks, sort=True)
    if len(seen) and seen[0] < 0:
        codes = np.maximum(codes - 1, 0)
    width = max(len(seen), 1)
    pair = step * width + codes
    in_order = bool(np.all(pair[1:] > pair[:-1]))
    return step if in_order else np.unique(pair) // width


def where(rows: pd.DataFrame, wanted: npt.ArrayLike) -> pd.DataFrame:
    """The wanted rows; no copy of them is made where they stand together."""
    mask = np.asarray(wanted, bool)
    first, count = int(mask.argmax()) if len(mask) else 0, int(np.count_nonzero(mask))
    if mask[first : first + count].all():
        return rows.iloc[first : first + count]
    return rows[mask]


def numbers(column: pd.Series[Any]) -> Numbers:
    """A number column as floats; missing is NaN."""
    return column.to_numpy(np.float64, na_value=np.nan)


def of_kind(events: pd.DataFrame, kind: str, *names: str) -> pd.DataFrame:
    """The events of a kind, or those that have one of `names`."""
    wanted = among(events["kind"], [kind])
    return where(events, wanted & among(events["name"], names) if names else wanted)


_FEW: Final = 8  #: words that are sooner compared one by one than looked up for each row


def among(column: pd.Series[Any], words: Iterable[str]) -> npt.NDArray[np.bool_]:
    """Which rows of a column of categories hold one of `words`."""
    known, codes = column.array.categories, column.array.codes
    wanted = [known.get_loc(word) for word in dict.fromkeys(words) if word in known]
    if len(wanted) > _FEW:
        held = np.zeros(len(known) + 1, bool)
        held[wanted] = True
        return np.asarray(held[codes])  # -1: no word, the last one
    found = np.zeros(len(codes), bool)
    for code in wanted:
        found |= codes == code
    return found


def categories(codes: npt.NDArray[Any], words: Sequence[str]) -> pd.Categorical:
    """A word a row, of `words`; -1 is no word. Categories are those that are met, in order."""
    met = np.flatnonzero(np.bincount(codes + 1, minlength=len(words) + 1)[1:]).tolist()
    names = sorted({words[code] for code in met})
    place = {name: i for i, name in enumerate(names)}
    into = np.full(len(words) + 1, -1, np.int64)
    into[met] = [place[words[code]] for code in met]
    return pd.Categorical.from_codes(into[codes], pd.Index(names, dtype="str"))
