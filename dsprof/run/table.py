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
from dsprof.run.strings import TEXT

WORDS: Final = ("kind", "name", "raw", "host", "source", "pattern", "timers")
SURE: Final = ("segment", "engine", "record")  # never missing
WHOLE: Final = ("step", "steps", "rank", "count", "line")
MEASURES: Final = ("seconds", "bytes", "value")
STEP: Final = ("segment", "engine", "step")  # what tells one optimizer step from all others

Codes = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.float64]

#: Seconds; no phase, call or step of a training takes longer (a year has 31.6e6).
LONGEST: Final = 1e8


def frame_of(table: pa.Table) -> pd.DataFrame:
    """The events of a `Log` as a frame for `tidy`, with integers kept as integers."""
    whole = {pa.int8(), pa.int16(), pa.int32(), pa.int64()}
    frame: pd.DataFrame = table.unify_dictionaries().to_pandas(
        types_mapper=lambda kind: pd.Int64Dtype() if kind in whole else None
    )
    return frame


def tidy(events: pd.DataFrame) -> pd.DataFrame:
    """A copy with all columns of `events.COLUMNS`, in order, with fixed types.

    Words become categories, integers `Int64` (missing: NA), measures `float64` (missing: NaN), `at`
    a time stamp, `text` a string. Absent columns are added as missing.
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


_TOO_LARGE: Final = 2.0**63
_NOTHING: Final[pd.Series[Any]] = pd.Series([], dtype=object)


def _typed(name: str, known: pd.Series[Any]) -> pd.Series[Any]:
    if name in SURE:
        return known.fillna(0).astype("int64")
    if name in WHOLE:
        return known if known.dtype == "Int64" else _integers(pd.to_numeric(known))
    if name in MEASURES:
        return known if known.dtype == "float64" else pd.to_numeric(known).astype("float64")
    if name == "at":
        return pd.to_datetime(known)
    if isinstance(known.dtype, pd.CategoricalDtype) and name in WORDS:
        return known
    words = _text(known)
    return words.astype("category") if name in WORDS else words


def _integers(numbers: pd.Series[Any]) -> pd.Series[Any]:
    """Missing where a damaged row has no whole number, or one that is too large."""
    if numbers.dtype == "float64":
        are = (numbers == numbers.round()) & (numbers.abs() < _TOO_LARGE)
        numbers = numbers.where(are)
    return numbers.astype("Int64")


def _text(column: pd.Series[Any]) -> pd.Series[Any]:
    if not isinstance(column.dtype, pd.CategoricalDtype):
        return column.astype("string").astype(TEXT)
    words = column.cat.categories.astype(TEXT).array
    codes = column.cat.codes.to_numpy()
    return pd.Series(words.take(codes, allow_fill=True), column.index, name=column.name)


def whole(column: pd.Series[Any]) -> Codes:
    """An integer or category column as codes; missing is -1."""
    return np.asarray(plain(column), np.int64)


def known_rank(frame: pd.DataFrame) -> pd.DataFrame:
    """With rank 0 for lines that name no rank: the same process prints both kinds of lines."""
    return frame.assign(rank=frame["rank"].fillna(0))


def keys(frame: pd.DataFrame, *columns: str) -> Codes:
    """One number per row, equal if all `columns` are equal, and in their sort order."""
    arrays = [plain(frame[name]) for name in columns]
    heads = runs(*arrays)
    code = np.zeros(len(heads), np.int64)
    for array in arrays:
        if _is_one(array):
            continue
        dense, seen = pd.factorize(array[heads], sort=True)
        code = code * max(len(seen), 1) + dense
    return np.repeat(code, np.diff(heads, append=len(frame)))


def runs(*columns: npt.ArrayLike) -> Codes:
    """The rows that differ from the row before in any of `columns`.

    Rows of the same step and rank are mostly consecutive, so what they share is computed once per
    run of rows.
    """
    arrays = [np.asarray(column) for column in columns]
    new = np.zeros(len(arrays[0]), bool)
    new[:1] = True
    for array in arrays:
        if not _is_one(array):
            new[1:] |= array[1:] != array[:-1]
    return np.flatnonzero(new)


def _is_one(array: npt.NDArray[Any]) -> bool:
    """Whether all values are the same integer. This is cheaper than comparing neighbours."""
    alike = array.dtype.kind in "iu" and len(array) > 0 and array[0] == array[-1]
    return bool(alike and array.min() == array.max())


def places(column: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], Codes]:
    """The distinct integers, sorted, and for each row the index of its value."""
    heads = runs(column)
    known = distinct(column[heads])
    codes = np.searchsorted(known, column[heads])
    return known, np.repeat(codes, np.diff(heads, append=len(column)))


def positions(table: pd.DataFrame, rows: pd.DataFrame, *columns: str) -> Codes:
    """For each of `rows` the row of `table` with the same key, or -1.

    `columns` hold integers; `table` is sorted by them and has each key once.
    """
    heads, place = stretches(table, rows, *columns)
    return np.repeat(place, np.diff(heads, append=len(rows)))


def stretches(table: pd.DataFrame, rows: pd.DataFrame, *columns: str) -> tuple[Codes, Codes]:
    """Where runs of `rows` with the same key begin, and the row of `table` for each, or -1."""
    arrays = [plain(rows[name]) for name in columns]
    heads = runs(*arrays)
    if not len(table):
        return heads, np.full(len(heads), -1, np.int64)
    there, sought = _codes([whole(table[name]) for name in columns], [a[heads] for a in arrays])
    at = np.minimum(np.searchsorted(there, sought), len(there) - 1)
    return heads, np.where(there[at] == sought, at, -1)


def of_part(rows: pd.DataFrame, values: npt.ArrayLike) -> Numbers:
    """For each row, the sum of `values` over its segment and engine; NaN counts as 0."""
    part = keys(rows, "segment", "engine")
    known = np.asarray(values, np.float64)
    sums = np.bincount(part, np.where(np.isnan(known), 0.0, known)).astype(np.float64)
    return np.asarray(sums[part])


def within(table: pd.DataFrame, rows: pd.DataFrame, *columns: str) -> pd.DataFrame:
    """The `rows` whose key is in `table`; a view, not a copy, if they are consecutive."""
    heads, place = stretches(table, rows, *columns)
    there = np.flatnonzero(place >= 0)
    if len(there) and there[-1] - there[0] == len(there) - 1:
        return rows.iloc[heads[there[0]] : np.append(heads, len(rows))[there[-1] + 1]]
    return rows[np.repeat(place >= 0, np.diff(heads, append=len(rows)))]


def _codes(table: Sequence[Codes], rows: Sequence[npt.NDArray[Any]]) -> tuple[Codes, Codes]:
    """One number per row of both, in sort order of the columns; -1 for rows that have no match in
    `table`.
    """
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
        missing = other.dtype.kind == "f"  # may be NaN, which as an integer could be any number
        held = np.where(inside, other, base[0]) if missing else other
        place = held.astype(np.int64) - base[0] if dense else np.searchsorted(base, held)
        if not dense:
            outside |= base[np.minimum(place, len(base) - 1)] != held
        sought = sought * len(base) + place
    sought[outside] = -1
    return there, sought


def plain(column: pd.Series[Any]) -> npt.NDArray[Any]:
    """The same as a numpy array of whatever integers, without copying if possible."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        return np.asarray(column.array.codes)
    if isinstance(column.dtype, np.dtype):
        return column.to_numpy()
    return column.to_numpy(np.int64, na_value=-1)


def greatest(rows: pd.DataFrame, *columns: str) -> Codes:
    """The row with the greatest of the last column for each key of those before it, in their order.

    No value is missing in any of `columns`.
    """
    arrays = [stamps(rows[name]) if name == "at" else plain(rows[name]) for name in columns]
    order = np.lexsort(arrays[::-1])
    heads = runs(*(array[order] for array in arrays[:-1]))
    last: Codes = order[np.append(heads, len(order))[1:] - 1]
    return last


def stamps(column: pd.Series[Any]) -> npt.NDArray[np.datetime64]:
    """Time stamps as an array, in UTC if they name a time zone."""
    zoned = isinstance(column.dtype, pd.DatetimeTZDtype)
    return (column.dt.tz_convert(None) if zoned else column).to_numpy()


def take_turns(rows: pd.DataFrame) -> npt.NDArray[np.bool_]:
    """Which rows are of a launch with several engines."""
    if rows["engine"].nunique() < 2:
        return np.zeros(len(rows), bool)
    several: pd.Series[bool] = rows.groupby("segment")["engine"].transform("nunique") > 1
    return several.to_numpy()


def visits(step: npt.NDArray[Any], rank: npt.NDArray[Any]) -> Codes:
    """The step of every distinct pair of step and rank, in order.

    A row without a rank (-1) counts as the lowest rank's: the same process prints both kinds of
    lines.
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
    """The wanted rows; a view, not a copy, if they are consecutive, and `rows` if it is all."""
    mask = np.asarray(wanted, bool)
    count = int(np.count_nonzero(mask))
    if count == len(mask):
        return rows
    first = int(mask.argmax())
    if mask[first : first + count].all():
        return rows.iloc[first : first + count]
    return rows[mask]


def numbers(column: pd.Series[Any]) -> Numbers:
    """A numeric column as floats; missing is NaN."""
    return column.to_numpy(np.float64, na_value=np.nan)


def of_kind(events: pd.DataFrame, kind: str, *names: str) -> pd.DataFrame:
    """The events of a kind, optionally only those with one of `names`."""
    wanted = among(events["kind"], [kind])
    return where(events, wanted & among(events["name"], names) if names else wanted)


_FEW: Final = 8  #: up to this many words, comparing each is faster than a lookup per row


def among(column: pd.Series[Any], words: Iterable[str]) -> npt.NDArray[np.bool_]:
    """Which rows of a category column hold one of `words`."""
    known, codes = column.array.categories, column.array.codes
    wanted = [known.get_loc(word) for word in dict.fromkeys(words) if word in known]
    if len(wanted) > _FEW:
        held = np.zeros(len(known) + 1, bool)
        held[wanted] = True
        return np.asarray(held[codes])  # code -1, no word, indexes the last element
    found = np.zeros(len(codes), bool)
    for code in wanted:
        found |= codes == code
    return found


def categories(codes: npt.NDArray[Any], words: Sequence[str]) -> pd.Categorical:
    """A categorical with a word of `words` per row; -1 is missing. Its categories are the words
    that occur, sorted.
    """
    met = np.flatnonzero(np.bincount(codes + 1, minlength=len(words) + 1)[1:]).tolist()
    names = sorted({words[code] for code in met})
    place = {name: i for i, name in enumerate(names)}
    into = np.full(len(words) + 1, -1, np.int64)
    into[met] = [place[words[code]] for code in met]
    return pd.Categorical.from_codes(into[codes], pd.Index(names, dtype="str"))
