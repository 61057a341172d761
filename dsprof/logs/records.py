"""Records as they are found, turned into columns a few thousand at a time.

A *record* is one match of one pattern; it gives any number of *rows*. What a record
knows (line, rank, host, time, its own step) is kept once per record; rows hold a key
(which says pattern, kind, name and the source's word) and their measures. Numbers are
read from text a whole column at a time.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Generic, TypeVar

import numpy as np

from dsprof import units
from dsprof.events import Kind
from dsprof.grammar import Grammar, Pairs, Pattern, Row
from dsprof.grammar.load import split_spec
from dsprof.grammar.model import UNITS, Measure
from dsprof.logs import clocks
from dsprof.logs.pairs import numbers_of, pairs_of

MEASURES: Final = ("seconds", "bytes", "count", "value")
_BATCH: Final = 16_384

_READERS: Final[dict[str, Callable[[str], float | None]]] = {
    "size": units.size,
    "duration": units.duration,
    "amount": units.amount,
    "tera": lambda text: None if (v := units.amount(text)) is None else v / 1e12,
    "clock": clocks.seconds_of_clock,
}

Groups = tuple[bytes | None, ...]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Key:
    """What a row is, apart from its numbers."""

    pattern: int
    kind: str
    name: str
    raw: str


@contextmanager
def without_cycle_collection() -> Iterator[None]:
    """Records are millions of small tuples and never form a cycle: looking for cycles
    among them would cost a sixth of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class Codes(Generic[T]):
    """Numbers for values in order of first use."""

    def __init__(self) -> None:
        self.values: list[T] = []
        self._codes: dict[T, int] = {}

    def __call__(self, value: T) -> int:
        code = self._codes.get(value)
        if code is None:
            code = self._codes[value] = len(self.values)
            self.values.append(value)
        return code


@dataclass(slots=True)
class Rows:
    """Rows of one batch: parallel arrays. A missing measure is NaN, a missing text -1."""

    record: np.ndarray
    key: np.ndarray
    measures: dict[str, np.ndarray]
    text: np.ndarray | None = None


#: Rank, local rank and host code; -1 where unknown.
Who = tuple[int, int, int]
NOBODY: Final = 0  # code of (-1, -1, -1)

#: Shape, offset, line, code of who, time stamp, groups, text of its pairs.
_New = tuple[int, int, int, int, bytes | None, Groups, bytes | None]
_SHAPES: Final = 1024  # more than a block has kinds of lines


def shape_of_record(pattern: int, block_line: int = -1) -> int:
    """Pattern and, if the record is a line of its block, which kind of line."""
    return pattern * _SHAPES + block_line + 1


class Records:
    """Grows by `add`; `finish` gives what was found, in order of place in the source."""

    def __init__(self, grammar: Grammar) -> None:
        self.grammar = grammar
        self.keys: Codes[Key] = Codes()
        self.hosts: Codes[str] = Codes()
        self.whos: Codes[Who] = Codes()
        self.whos((-1, -1, -1))
        self.texts: Codes[str] = Codes()
        self.signatures: Codes[frozenset[str]] = Codes()
        self.columns: dict[str, list[np.ndarray]] = {name: [] for name in _RECORD_TYPES}
        self.rows: list[Rows] = []
        self.per_pattern = np.zeros(len(grammar.patterns), np.int64)
        self.count = 0  # records in finished batches
        self.new: list[_New] = []
        self.torn: set[int] = set()  # places of new records that lost their end

    def __len__(self) -> int:
        return self.count + len(self.new)

    def add(  # noqa: PLR0917  # parallel to the columns
        self,
        pattern: int,
        offset: int,
        line: int,
        who: int,
        at: bytes | None,
        groups: Groups,
        block_line: int = -1,
    ) -> None:
        """One record without pairs; `who` is a code of `whos`."""
        shape = shape_of_record(pattern, block_line)
        self.new.append((shape, offset, line, who, at, groups, None))

    def may_be(self, who: int, other: int) -> bool:
        """Whether nothing that `who` tells contradicts `other`."""
        told = zip(self.whos.values[who], self.whos.values[other], strict=True)
        return all(mine < 0 or mine == theirs for mine, theirs in told)

    def join(self, later: Records, lines: int) -> None:
        """Adds the records of the range right behind, which begins after `lines` lines."""
        keys = _moved(self.keys, later.keys)
        hosts, texts = _moved(self.hosts, later.hosts), _moved(self.texts, later.texts)
        signatures = _moved(self.signatures, later.signatures)
        for name, parts in later.columns.items():
            for part in parts:
                moved = part
                if name == "line":
                    moved = part + lines
                elif name == "host":
                    moved = hosts[part]
                elif name == "signature":
                    moved = signatures[part]
                self.columns[name].append(moved)
        for rows in later.rows:
            text = None if rows.text is None else texts[rows.text]
            record = (rows.record + self.count).astype(np.int32, copy=False)
            self.rows.append(Rows(record, keys[rows.key], rows.measures, text))
        self.per_pattern += later.per_pattern
        self.count += later.count

    def flush_if_full(self) -> None:
        if len(self.new) >= _BATCH:
            self.flush()

    def flush(self) -> None:
        """Turns what was added since the last time into columns."""
        if not self.new:
            return
        count = len(self.new)
        shapes, offsets, lines, who, at, groups, bodies = zip(*self.new, strict=True)
        self.new.clear()
        shape, offset = np.array(shapes, np.int64), np.array(offsets, np.int64)
        rank, local, host = np.array(self.whos.values, np.int32).T[:, np.array(who, np.int32)]
        columns = {
            "line": np.array(lines, np.int64),
            "pattern": shape // _SHAPES,
            "rank": rank,
            "local": local,
            "host": host,
            "at": clocks.microseconds(at),
            "step": np.full(count, -1, np.int64),
            "signature": np.full(count, -1, np.int32),
            "torn": np.isin(offset, list(self.torn)) if self.torn else np.zeros(count, bool),
        }
        self.torn.clear()
        made: list[Rows] = []
        for records in _alike(shape):
            at_records = records.tolist()
            number, block_line = divmod(int(shape[records[0]]), _SHAPES)
            made += self._rows_of(
                number,
                block_line - 1,
                records,
                [groups[i] for i in at_records],
                [body for i in at_records if (body := bodies[i]) is not None],
                columns,
            )
        self.per_pattern += np.bincount(columns["pattern"], minlength=len(self.per_pattern))
        order = np.argsort(offset, kind="stable")
        place = np.empty(count, np.int64)
        place[order] = np.arange(count)
        for name, values in columns.items():
            self.columns[name].append(values[order].astype(_RECORD_TYPES[name], copy=False))
        if made:
            self.rows.append(_sorted_rows(made, place, self.count))
        self.count += count

    def settle(self) -> None:
        """Puts batches in order that overlap in the source: a bar is found when a later
        record asks for it, and a block may end in another range."""
        lines, base = self.columns["line"], 0
        for first, last in _overlapping([(int(part[0]), int(part[-1])) for part in lines]):
            count = sum(map(len, lines[first:last]))
            if last - first > 1:
                self._merge(first, last, base, count)
            base += count
        for parts in self.columns.values():
            parts[:] = [part for part in parts if len(part)]

    def _merge(self, first: int, last: int, base: int, count: int) -> None:
        """Makes one batch of batches that hold the records from `base` on."""
        order = np.argsort(np.concatenate(self.columns["line"][first:last]), kind="stable")
        place = np.empty(count, np.int64)
        place[order] = np.arange(count)
        for parts in self.columns.values():
            empty = parts[first][:0]
            parts[first:last] = [
                np.concatenate(parts[first:last])[order],
                *[empty] * (last - first - 1),
            ]
        inside = [base <= int(rows.record[0]) < base + count for rows in self.rows]
        if any(inside):
            at = inside.index(True)
            made = [rows for rows, here in zip(self.rows, inside, strict=True) if here]
            for rows in made:
                rows.record = rows.record - base
            self.rows[at : at + len(made)] = [_sorted_rows(made, place, base)]

    def _rows_of(  # noqa: PLR0917  # parallel to the columns
        self,
        number: int,
        block_line: int,
        records: np.ndarray,
        groups: Sequence[Groups],
        bodies: Sequence[bytes],
        columns: dict[str, np.ndarray],
    ) -> Iterable[Rows]:
        """Rows of all records of one pattern, or of one kind of line of its block."""
        pattern = self.grammar.patterns[number]
        if block_line >= 0:
            index, rows = _block_shape(pattern, block_line)
        else:
            index, rows = _group_index(pattern), pattern.rows
        texts = _columns_of(groups, index)
        self._record_groups(texts, records, columns)
        made = [self._rows_of_row(number, row, texts, records) for row in rows]
        yield from (some for some in made if some is not None)
        if pattern.timers:
            self._sign([some for some in made if some is not None], columns["signature"])
        if pattern.pairs is not None and block_line < 0:
            yield from self._rows_of_pairs(number, pattern.pairs, records, bodies, columns)

    def _sign(self, made: Sequence[Rows], signature: np.ndarray) -> None:
        """Notes which timers each record of a `timers` pattern holds."""
        names: dict[int, set[str]] = {}
        for rows in made:
            for record, code in zip(rows.record.tolist(), rows.key.tolist(), strict=True):
                key = self.keys.values[code]
                if key.kind == Kind.PHASE:
                    names.setdefault(record, set()).add(key.name)
        for record, words in names.items():
            signature[record] = self.signatures(frozenset(words))

    def _record_groups(
        self,
        texts: dict[str, list[bytes | None]],
        records: np.ndarray,
        columns: dict[str, np.ndarray],
    ) -> None:
        """Groups that belong to the record: its step, rank, host, time."""
        for name in ("step", "rank"):
            if name in texts:
                values, missing = numbers_of(texts[name])
                known = ~missing & (np.abs(values) < 2**31)
                columns[name][records[known]] = values[known].astype(np.int64)
        if "host" in texts:
            for record, text in zip(records.tolist(), texts["host"], strict=True):
                if text is not None:
                    columns["host"][record] = self.hosts(_plain(text))
        if "at" in texts:
            told = clocks.microseconds(texts["at"])
            known = told != clocks.UNKNOWN
            columns["at"][records[known]] = told[known]

    def _rows_of_row(
        self, number: int, row: Row, texts: dict[str, list[bytes | None]], records: np.ndarray
    ) -> Rows | None:
        count = len(records)
        measures: dict[str, np.ndarray] = {}
        text: np.ndarray | None = None
        present = np.zeros(count, bool)
        constant = True
        for measure in row.measures:
            if measure.column == "text":
                codes, told = self._texts_of(measure, texts, count)
                text = codes if text is None else np.where(codes >= 0, codes, text)
                if measure.group or "{" in measure.constant:
                    constant = False
                    present |= told
                continue
            values, told = _measure_of(measure, texts, count)
            measures[measure.column] = values
            if measure.group:
                constant = False
                present |= told
                text = self._say_nan(values, told, text)
        if constant:
            present[:] = True
        keys = self._keys_of(number, row, texts, count)
        present &= keys >= 0
        if not present.any():
            return None
        if present.all():
            return Rows(records, keys, measures, text)
        return Rows(
            records[present],
            keys[present],
            {column: values[present] for column, values in measures.items()},
            None if text is None else text[present],
        )

    def _say_nan(
        self, values: np.ndarray, told: np.ndarray, text: np.ndarray | None
    ) -> np.ndarray | None:
        """An empty cell means unknown; a printed nan must stay tellable."""
        printed = told & np.isnan(values)
        if not printed.any():
            return text
        if text is None:
            text = np.full(len(values), -1, np.int32)
        return np.where(printed & (text < 0), self.texts("nan"), text)

    def _texts_of(
        self, measure: Measure, texts: dict[str, list[bytes | None]], count: int
    ) -> tuple[np.ndarray, np.ndarray]:
        if measure.group:
            column = texts.get(measure.group, [None] * count)
            codes = [-1 if t is None else self.texts(_plain(t)) for t in column]
        else:
            said = list(_fill(measure.constant, texts, count))
            codes = [-1 if t is None else self.texts(t) for t in said]
        array = np.array(codes, np.int32)
        return array, array >= 0

    def _keys_of(
        self, number: int, row: Row, texts: dict[str, list[bytes | None]], count: int
    ) -> np.ndarray:
        timed = self.grammar.patterns[number].timers and row.kind == Kind.PHASE
        canonical = self.grammar.timer_names if timed else {}
        if "{" not in row.name and "{" not in row.raw:
            name = canonical.get(row.name, row.name)
            return np.full(
                count, self.keys(Key(number, row.kind, name, row.raw or row.name)), np.int32
            )
        names = _fill(row.name, texts, count)
        raws = _fill(row.raw or row.name, texts, count)
        return np.array(
            [
                -1
                if name is None
                else self.keys(Key(number, row.kind, canonical.get(name, name), raw or name))
                for name, raw in zip(names, raws, strict=True)
            ],
            np.int32,
        )

    def _rows_of_pairs(
        self,
        number: int,
        pairs: Pairs,
        records: np.ndarray,
        bodies: Sequence[bytes],
        columns: dict[str, np.ndarray],
    ) -> Iterable[Rows]:
        found = pairs_of(bodies, pairs)
        specs = [self._pair_spec(number, pairs, key) for key in found.key]
        if pairs.timers:
            columns["signature"][records] = self._signatures(
                len(bodies), found.record, found.code, specs
            )
        values, missing = numbers_of(found.value)
        key = np.array([spec[0] for spec in specs] or [-1], np.int32)[found.code]
        column = np.array([spec[1] for spec in specs] or [-1], np.int8)[found.code]
        values = values * np.array([spec[2] for spec in specs] or [1.0])[found.code]
        present = (column >= 0) & ~missing
        measures = {
            name: np.where(column == position, values, np.nan)
            for position, name in enumerate(MEASURES)
            if (column == position).any()
        }
        text = self._say_nan(values, present, None)
        for i, unit in _worded(found.code, specs):
            told = found.value[i] if isinstance(found.value, list) else found.value[i].as_py()
            text = self._read_worded(i, unit, _plain(told), measures, present, text)
        yield Rows(
            records[found.record[present]],
            key[present],
            {name: cells[present] for name, cells in measures.items()},
            None if text is None else text[present],
        )

    def _read_worded(  # noqa: PLR0917  # parallel to the columns
        self,
        i: int,
        unit: str,
        told: str,
        measures: dict[str, np.ndarray],
        present: np.ndarray,
        text: np.ndarray | None,
    ) -> np.ndarray | None:
        """One value that is more than a number: a size, a duration, a text."""
        if unit == "text":
            text = np.full(len(present), -1, np.int32) if text is None else text
            text[i] = self.texts(told)
            present[i] = True
            return text
        number = _READERS[unit](told)
        if number is not None:
            column = UNITS[unit][0]
            measures.setdefault(column, np.full(len(present), np.nan))[i] = number
            present[i] = True
        return text

    def _pair_spec(self, number: int, pairs: Pairs, raw: bytes) -> tuple[int, int, float, str]:
        """Key code, column number (-1: not a plain number), factor and reader of a pair's key."""
        word = _plain(raw)
        spec = pairs.keys.get(word)
        if spec == "":
            return -1, -1, 1.0, ""
        if spec is None:
            name = self.grammar.timer_names.get(word, word) if pairs.timers else word
            kind, _, unit = split_spec(pairs.default.replace("{key}", "key"), "")
        else:
            kind, name, unit = split_spec(spec, "")
        key = self.keys(Key(number, kind, name, word))
        column, factor = UNITS[unit]
        if isinstance(factor, str):
            return key, -1, 1.0, factor
        return key, MEASURES.index(column), factor, ""

    def _signatures(
        self,
        count: int,
        record: np.ndarray,
        code: np.ndarray,
        specs: Sequence[tuple[int, int, float, str]],
    ) -> np.ndarray:
        """Which set of timers each line holds: lines of one set share a number."""
        # A sum of random words tells sets apart; the seed keeps runs alike.
        words = np.random.default_rng(7).integers(1, 2**62, max(len(specs), 1), np.int64)
        total = np.zeros(count, np.int64)
        np.add.at(total, record, words[code])
        _, first, which = np.unique(total, return_index=True, return_inverse=True)
        named = []
        for line in first:
            here = code[np.searchsorted(record, line) : np.searchsorted(record, line, "right")]
            names = {self.keys.values[specs[c][0]].name for c in here.tolist() if specs[c][0] >= 0}
            named.append(self.signatures(frozenset(names)))
        return np.array(named, np.int32)[which]


_RECORD_TYPES: Final = {
    "line": np.int64,
    "pattern": np.int16,
    "rank": np.int32,
    "local": np.int32,
    "host": np.int32,
    "at": np.int64,
    "step": np.int64,
    "signature": np.int32,
    "torn": np.bool_,
}


def _moved(codes: Codes[T], other: Codes[T]) -> np.ndarray:
    """For each code of `other` the code here; the last one, for -1, stays -1."""
    return np.array([*map(codes, other.values), -1], np.int32)


def _alike(shape: np.ndarray) -> list[np.ndarray]:
    """Which records share a shape, for each shape."""
    order = np.argsort(shape, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(shape[order])) + 1)


def _worded(
    code: np.ndarray, specs: Sequence[tuple[int, int, float, str]]
) -> Iterable[tuple[int, str]]:
    worded = np.array([bool(spec[3]) for spec in specs] or [False])
    if worded.any():
        for i in np.flatnonzero(worded[code]).tolist():
            yield i, specs[code[i]][3]


def _plain(text: bytes) -> str:
    return text.decode("utf-8", "replace").strip()


def _group_index(pattern: Pattern) -> dict[str, int]:
    """Group name → place in the tuple that a match gives: the lead's groups, then the regex's."""
    index: dict[str, int] = {}
    shift = 0
    for regex in (pattern.lead, pattern.regex):
        if regex is not None:
            index |= {name: shift + i - 1 for name, i in regex.groupindex.items()}
            shift += regex.groups
    return index


def _block_shape(pattern: Pattern, block_line: int) -> tuple[dict[str, int], tuple[Row, ...]]:
    block = pattern.block
    assert block is not None
    if block_line == len(block.lines):  # the JSON object
        assert block.json is not None
        kind, name = block.json
        return {"json": 0}, (Row(kind, name, "", (Measure("text", "json", "", "text"),)),)
    line = block.lines[block_line]
    kept = [name for other in block.lines for name in other.keep]
    names = list(line.regex.groupindex)
    index = {name: i - 1 for name, i in line.regex.groupindex.items()}
    for place, name in enumerate(dict.fromkeys(kept)):
        if name not in names:
            index[name] = line.regex.groups + place
    return index, line.rows


def _columns_of(groups: Sequence[Groups], index: dict[str, int]) -> dict[str, list[bytes | None]]:
    if not groups or not index:
        return {}
    turned = list(zip(*groups, strict=True))
    return {name: list(turned[place]) for name, place in index.items()}


def _measure_of(
    measure: Measure, texts: dict[str, list[bytes | None]], count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Values in seconds, bytes or units of one, and where the source told one."""
    _, factor = UNITS[measure.unit]
    if not measure.group:
        value = units.number(measure.constant)
        scaled = (
            float("nan") if value is None else value * (factor if isinstance(factor, float) else 1)
        )
        return np.full(count, scaled), np.zeros(count, bool)
    column = texts.get(measure.group, [None] * count)
    if isinstance(factor, str):
        read = _READERS[factor]
        said = [None if text is None else read(_plain(text)) for text in column]
        values = np.array([np.nan if v is None else v for v in said], np.float64)
        return values, np.array([v is not None for v in said], bool)
    values, missing = numbers_of(column)
    return values * factor, ~missing


def _fill(template: str, texts: dict[str, list[bytes | None]], count: int) -> Iterable[str | None]:
    """The template with each record's groups in it; None where one of them is missing."""
    used = [name for name in texts if "{" + name + "}" in template]
    if not used:
        return [template] * count
    columns = [texts[name] for name in used]
    known: dict[tuple[bytes | None, ...], str | None] = {}
    filled: list[str | None] = []
    for values in zip(*columns, strict=True):
        if values not in known:
            known[values] = _fill_one(template, used, values)
        filled.append(known[values])
    return filled


def _fill_one(template: str, names: Sequence[str], values: Sequence[bytes | None]) -> str | None:
    for name, value in zip(names, values, strict=True):
        if value is None:
            return None
        template = template.replace("{" + name + "}", _plain(value)[:200])
    return template


def _overlapping(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Consecutive spans that overlap, as ranges of their numbers; a span alone is one too."""
    groups: list[tuple[int, int, int]] = []  # first number, lowest, highest
    for number, span in enumerate(spans):
        first, (low, high) = number, span
        while groups and groups[-1][2] > low:
            first, lowest, highest = groups.pop()
            low, high = min(low, lowest), max(high, highest)
        groups.append((first, low, high))
    firsts = [first for first, _, _ in groups]
    return list(pairwise([*firsts, len(spans)]))


def _sorted_rows(parts: Sequence[Rows], place: np.ndarray, base: int) -> Rows:
    """All rows of a batch as one, ordered by the place of their record."""
    record = place[np.concatenate([p.record for p in parts])]
    order = np.argsort(record, kind="stable")
    sizes = [len(p.record) for p in parts]
    measures = {}
    for name in MEASURES:
        if any(name in p.measures for p in parts):
            whole = np.full(len(record), np.nan)
            for part, end in zip(parts, np.cumsum(sizes), strict=True):
                if name in part.measures:
                    whole[end - len(part.record) : end] = part.measures[name]
            measures[name] = whole[order]
    text = None
    if any(p.text is not None for p in parts):
        text = np.concatenate(
            [
                np.full(n, -1, np.int32) if p.text is None else p.text
                for p, n in zip(parts, sizes, strict=True)
            ]
        )[order]
    key = np.concatenate([p.key for p in parts])[order]
    return Rows((record[order] + base).astype(np.int32), key.astype(np.int32), measures, text)
