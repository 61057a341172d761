"""Rows of a recording as rows of the events table."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dsprof.events import CLASSES, Kind
from dsprof.recording.layout import (
    NAME_BITS,
    ON_DEVICE,
    ROW,
    ROWS,
    TEXT,
    RowKind,
    Unit,
    rank_of,
)
from dsprof.recording.stream import Portion
from dsprof.recording.wall_clock import Clock
from dsprof.schema import SCHEMA

Array = npt.NDArray[Any]

#: The timer flavour of all recordings.
FLAVOUR: Final = "hook"
#: The phase that holds forwards that nothing learns from.
EVALUATION: Final = "evaluation"

_NUMPY: Final = {"B": "u1", "H": "<u2", "h": "<i2", "I": "<u4", "i": "<i4", "Q": "<u8", "q": "<i8",
                 "d": "<f8", "f": "<f4"}  # fmt: skip


def dtype_of(layout: struct.Struct, fields: Iterable[str]) -> np.dtype[Any]:
    """The numpy dtype of rows packed with `layout`."""
    names, formats, offsets, at = [], [], [], 0
    waiting = iter(fields)
    for times, code in re.findall(r"(\d*)([a-zA-Z])", layout.format):
        repeat = 1 if code == "s" else int(times or 1)
        for _ in range(repeat):
            if code != "x":
                names.append(next(waiting))
                formats.append(f"S{times}" if code == "s" else _NUMPY[code])
                offsets.append(at)
            at += struct.calcsize(f"<{times}s" if code == "s" else f"<{code}")
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": ROW})


DTYPES: Final = {kind: dtype_of(*row) for kind, row in ROWS.items()}
_COMMON: Final = DTYPES[RowKind.METRIC]  # kind, unit, engine, name, step and time, as in all rows

#: Row kind → kind of event.
EVENTS: Final = {
    RowKind.SPAN: Kind.PHASE,
    RowKind.COLLECTIVE: Kind.COMM,
    RowKind.STEP: Kind.METRIC,
    RowKind.METRIC: Kind.METRIC,
    RowKind.MEMORY: Kind.MEMORY,
    RowKind.GPU: Kind.GPU,
    RowKind.PROBLEM: Kind.PROBLEM,
    RowKind.CONFIG: Kind.CONFIG,
}
_IS_EVENT: Final = np.isin(np.arange(256), list(EVENTS))
_COLUMNS: Final = {Unit.VALUE: "value", Unit.SECONDS: "seconds", Unit.BYTES: "bytes",
                   Unit.COUNT: "count"}  # fmt: skip


def distinct(values: Array) -> Array:
    """The distinct integers in `values`, sorted. Faster than `np.unique` if they are close
    together.
    """
    low, high = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    if low == high:
        return values[:1].copy()
    if high - low > 4 * len(values) + 1000:
        return np.asarray(np.unique(values))
    met = np.zeros(high - low + 1, bool)
    met[values.astype(np.int64) - low] = True
    found = np.flatnonzero(met) + low
    return found.astype(values.dtype)


class Names:
    """What the ids of a process mean: text, path and class of each."""

    def __init__(self) -> None:
        self.text: dict[int, str] = {}
        self.path: dict[int, str] = {}
        self.class_: dict[int, str] = {}
        self._pieces: dict[int, list[bytes]] = {}

    def define(self, rows: bytes, kinds: bytes) -> None:
        """Read the definitions among `rows`, whose kinds are given; a long name comes in pieces."""
        at = kinds.find(RowKind.TEXT)
        while at >= 0:
            self._take(TEXT.unpack_from(rows, at * ROW)[1:])
            at = kinds.find(RowKind.TEXT, at + 1)

    def _take(self, row: tuple[Any, ...]) -> None:
        used, class_, number, parent, piece, pieces, data = row
        if number >> NAME_BITS:
            return  # damaged: no writer defines so many names
        waiting = self._pieces.setdefault(number, [])
        del waiting[piece:]
        waiting.append(data[:used])
        if len(waiting) < pieces:
            return
        del self._pieces[number]
        text = b"".join(waiting).decode("utf-8", "replace")
        above = self.path.get(parent)
        self.text[number] = text
        self.path[number] = text if above is None else f"{above}/{text}"
        known = 0 < class_ <= len(CLASSES)
        self.class_[number] = CLASSES[class_ - 1] if known else self.class_.get(parent, "other")


class Words:
    """The values of one dictionary column, and the index of each id's value."""

    def __init__(self, meaning: Mapping[int, str]) -> None:
        self.values: list[str] = list(dict.fromkeys(meaning.values()))
        self._place = {word: i for i, word in enumerate(self.values)}
        self._of_id = np.full(max(meaning, default=0) + 2, -1, np.int32)
        for number, word in meaning.items():
            self._of_id[number] = self._place[word]

    def of(self, ids: Array) -> Array:
        """Indices of ids; -1 for an undefined id."""
        return np.take(self._of_id, ids, mode="clip")

    def add(self, word: str) -> int:
        if word not in self._place:
            self._place[word] = len(self.values)
            self.values.append(word)
        return self._place[word]

    def column(self, codes: Array) -> pa.Array:
        mask = codes < 0
        if mask.any():  # pyarrow looks up a null's index, too, when it unifies dictionaries
            indices = pa.array(np.maximum(codes, 0), pa.int32(), mask=mask)
        else:
            indices = pa.array(codes, pa.int32())
        return pa.DictionaryArray.from_arrays(indices, pa.array(self.values, pa.string()))


class Sheet:
    """The events of some rows, filled in by kind, in the order of the rows."""

    def __init__(self, rows: bytes, names: Names) -> None:
        raw = np.frombuffer(rows, np.uint8).reshape(-1, ROW)
        self.place = np.flatnonzero(_IS_EVENT[raw[:, 0]])
        self._raw = raw if len(self.place) == len(raw) else raw[self.place]
        common = self._raw.reshape(-1).view(_COMMON)
        self.kind, self.engine, self.step = (
            np.ascontiguousarray(common[name]) for name in ("kind", "engine", "step")
        )
        self.when = common["at"].copy()
        size = len(common)
        self.steps = self.step >= 0
        self.words = {
            "name": Words(names.text),
            "raw": Words(names.path),
            "text": Words(names.text),
        }
        ids = np.ascontiguousarray(common["name"])
        self.codes = {column: self.words[column].of(ids) for column in ("name", "raw")}
        self.codes["text"] = np.full(size, -1, np.int32)
        self.measures = {name: np.full(size, np.nan) for name in _COLUMNS.values()}
        self._spans(Words(names.class_))
        self._collectives()
        self._steps()
        self._values()

    @property
    def of_node(self) -> Array:
        """Which rows describe the node and not the rank that wrote them: samples of GPUs."""
        return np.asarray(self.kind == RowKind.GPU)

    def _of(self, *kinds: RowKind) -> tuple[Array, Array]:
        """Indices of the rows of these kinds, and the rows."""
        wanted = np.zeros(256, bool)
        wanted[list(kinds)] = True
        where = np.flatnonzero(wanted[self.kind])
        return where, self._raw[where].reshape(-1).view(DTYPES[kinds[0]])

    def _spans(self, classes: Words) -> None:
        where, rows = self._of(RowKind.SPAN)
        self.measures["seconds"][where] = rows["duration"] * 1e-9
        self.measures["value"][where] = _known(rows["gpu"]) * 1e-9
        self.when[where] = np.where(rows["gpu_begin"] > 0, rows["gpu_begin"], rows["begin"])
        self.measures["count"][where] = 1
        self.steps[where] &= rows["micro"] < 0
        into = np.array([self.words["text"].add(word) for word in classes.values] or [0], np.int32)
        self.codes["text"][where] = into[classes.of(rows["name"])]

    def _collectives(self) -> None:
        where, rows = self._of(RowKind.COLLECTIVE)
        self.measures["seconds"][where] = _known(rows["duration"]) * 1e-9
        self.measures["value"][where] = _known(rows["blocked"]) * 1e-9
        on_device = rows["flags"] & ON_DEVICE != 0
        self.when[where] = np.where(on_device, rows["wait"], rows["begin"])
        self.measures["bytes"][where] = rows["size"]
        self.measures["count"][where] = rows["count"]
        self.codes["text"][where] = self.words["text"].of(rows["group"])
        self.steps[where] &= rows["micro"] < 0

    def _steps(self) -> None:
        where, rows = self._of(RowKind.STEP)
        self.measures["seconds"][where] = rows["duration"] * 1e-9
        self.when[where] += rows["duration"]
        for column in ("name", "raw"):
            self.codes[column][where] = self.words[column].add("step_seconds")

    def _values(self) -> None:
        where, rows = self._of(
            RowKind.METRIC, RowKind.MEMORY, RowKind.GPU, RowKind.PROBLEM, RowKind.CONFIG
        )
        self.codes["text"][where] = self.words["text"].of(rows["text"])
        for unit, column in _COLUMNS.items():
            mine = rows["unit"] == unit
            self.measures[column][where[mine]] = rows["value"][mine]
        metrics = (rows["kind"] == RowKind.METRIC) & np.isnan(rows["value"])
        self.codes["text"][where[metrics]] = self.words["text"].add("nan")

    def seconds_by_class(self) -> tuple[Array, Array, Array]:
        """Row, class (as an index into `CLASSES`) and seconds of what whole steps took."""
        where, rows = self._of(RowKind.STEP)
        step, class_, seconds = seconds_by_class(rows)
        return where[step], class_, seconds


def seconds_by_class(rows: Array) -> tuple[Array, Array, Array]:
    """What STEP rows took in each class, as far as known: index of the row, of the class, and
    seconds. They stand for the phases of steps whose spans are deleted.
    """
    seconds = np.stack([rows[word] for word in CLASSES], 1).astype(np.float64)
    step, class_ = np.nonzero(np.isfinite(seconds))
    return step, class_, seconds[step, class_]


def _known(nanoseconds: Array) -> Array:
    return np.where(nanoseconds < 0, np.nan, nanoseconds.astype(np.float64))


class Origin:
    """What all rows of a process have in common."""

    def __init__(self, meta: Mapping[str, Any], segment: int = 0) -> None:
        host = meta.get("host")
        self.segment = segment
        self.rank = rank_of(meta)
        self.host = host if isinstance(host, str) else None

    def ranks(self, size: int, others: Array | None) -> pa.Array:
        """The process's rank for each row, missing where `others` is true."""
        if self.rank is None:
            return pa.nulls(size, pa.int32())
        return pa.array(np.full(size, self.rank, np.int32), mask=others)

    def table(self, columns: dict[str, Any], size: int, source: str) -> pa.Table:
        """`columns`, completed to a table of the schema; missing columns are null."""
        columns |= {
            "segment": np.full(size, self.segment, np.int32),
            "rank": self.ranks(size, columns.pop("of_node", None)),
            "host": _word(self.host, size),
            "source": _word(source, size),
            "record": np.arange(size, dtype=np.int32),
        }
        arrays = [
            pa.nulls(size, field.type) if columns.get(field.name) is None
            else pa.array(columns[field.name], field.type)
            for field in SCHEMA
        ]  # fmt: skip
        return pa.Table.from_arrays(arrays, schema=SCHEMA)


def _timers(mine: Array) -> pa.Array:
    return Words({0: FLAVOUR}).column(np.where(mine, np.int32(0), np.int32(-1)))


def _word(word: str | None, size: int) -> pa.Array:
    codes = np.full(size, -1 if word is None else 0, np.int32)
    return Words({} if word is None else {0: word}).column(codes)


def events_of(
    portion: Portion, names: Names, clock: Clock, origin: Origin, lines: Array | None = None
) -> pa.Table:
    """The events of some rows, in order; `lines` are their numbers if they are not consecutive.

    Where spans and collectives are deleted, each step gives one phase per class.
    """
    sheet = Sheet(portion.rows, names)
    size = len(sheet.kind)
    kinds = Words({int(kind): str(event) for kind, event in EVENTS.items()})
    columns = {
        "engine": sheet.engine.astype(np.int16),
        "step": pa.array(sheet.step.astype(np.int64), mask=sheet.step < 0),
        "steps": pa.array(np.ones(size, np.int32), mask=~sheet.steps),
        "at": clock.utc(sheet.when) // 1000,
        "kind": kinds.column(kinds.of(sheet.kind)),
        "line": sheet.place + portion.first if lines is None else lines[sheet.place],
        "timers": _timers(sheet.kind == RowKind.SPAN),
        "of_node": sheet.of_node,
        **{name: pa.array(column, from_pandas=True) for name, column in sheet.measures.items()},
        **{name: sheet.words[name].column(codes) for name, codes in sheet.codes.items()},
    }
    table = origin.table(columns, size, portion.path)
    if not portion.kept:
        return table
    return pa.concat_tables([table, _classes(sheet, table, origin, portion.path)])


def _classes(sheet: Sheet, table: pa.Table, origin: Origin, source: str) -> pa.Table:
    row, class_, seconds = sheet.seconds_by_class()
    size = len(row)
    words = Words(dict(enumerate(CLASSES))).column(class_.astype(np.int32))
    of_step = table.take(pa.array(row))
    columns = {
        "kind": _word(str(Kind.PHASE), size),
        "timers": _word(FLAVOUR, size),
        "name": words,
        "raw": words,
        "text": words,
        "seconds": seconds,
        **{
            name: of_step[name].combine_chunks()
            for name in ("engine", "step", "steps", "at", "line")
        },
    }
    return origin.table(columns, size, source)
