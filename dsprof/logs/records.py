"""Records as they are found, turned into columns a few thousand at a time.

A *record* is one match of one pattern; it gives any number of *rows*. What a record
knows (line, rank, host, time, its own step) is kept once per record; rows hold a key
(which says pattern, kind, name and the source's word) and their measures. Numbers are
read from text a whole column at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

import numpy as np

from dsprof import units
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


@dataclass(slots=True)
class _Pending:
    records: list[int] = field(default_factory=list)
    groups: list[Groups] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)


class Records:
    """Grows by `add`; `finish` gives what was found, in order of place in the source."""

    def __init__(self, grammar: Grammar) -> None:
        self.grammar = grammar
        self.keys: Codes[Key] = Codes()
        self.hosts: Codes[str] = Codes()
        self.texts: Codes[str] = Codes()
        self.signatures: Codes[frozenset[str]] = Codes()
        self.columns: dict[str, list[np.ndarray]] = {name: [] for name in _RECORD_TYPES}
        self.rows: list[Rows] = []
        self.per_pattern = np.zeros(len(grammar.patterns), np.int64)
        self.count = 0  # records in finished batches
        self._pending: dict[tuple[int, int], _Pending] = {}
        self._new: dict[str, list[int]] = {}
        self._at: list[bytes | None] = []
        self._clear()

    def _clear(self) -> None:
        self._pending = {}
        self._new = {name: [] for name in ("offset", "line", "pattern", "rank", "local", "host")}
        self._at = []

    def __len__(self) -> int:
        return self.count + len(self._at)

    def add(
        self,
        pattern: int,
        offset: int,
        line: int,
        who: tuple[int, int, int],
        at: bytes | None,
        groups: Groups,
        body: bytes | None,
        block_line: int = -1,
    ) -> None:
        """One record. `who` is rank, local rank (-1 if unknown) and host code (-1 likewise)."""
        number = len(self._at)
        new = self._new
        new["offset"].append(offset)
        new["line"].append(line)
        new["pattern"].append(pattern)
        new["rank"].append(who[0])
        new["local"].append(who[1])
        new["host"].append(who[2])
        self._at.append(at)
        pending = self._pending.get((pattern, block_line))
        if pending is None:
            pending = self._pending[pattern, block_line] = _Pending()
        pending.records.append(number)
        pending.groups.append(groups)
        if body is not None:
            pending.bodies.append(body)

    def flush_if_full(self) -> None:
        if len(self._at) >= _BATCH:
            self.flush()

    def flush(self) -> None:
        """Turns what was added since the last time into columns."""
        count = len(self._at)
        if count == 0:
            return
        columns = {name: np.array(values, _RECORD_TYPES[name]) for name, values in self._new.items()}
        columns["at"] = clocks.microseconds(self._at)
        columns["step"] = np.full(count, -1, np.int64)
        columns["signature"] = np.full(count, -1, np.int32)
        made: list[Rows] = []
        for (number, block_line), pending in self._pending.items():
            pattern = self.grammar.patterns[number]
            made += self._rows_of(number, pattern, block_line, pending, columns)
        self.per_pattern += np.bincount(columns["pattern"], minlength=len(self.per_pattern))
        order = np.argsort(columns.pop("offset"), kind="stable")
        place = np.empty(count, np.int64)
        place[order] = np.arange(count)
        for name, values in columns.items():
            self.columns[name].append(values[order].astype(_RECORD_TYPES[name], copy=False))
        if made:
            self.rows.append(_sorted_rows(made, place, self.count))
        self.count += count
        self._clear()

    def _rows_of(
        self,
        number: int,
        pattern: Pattern,
        block_line: int,
        pending: _Pending,
        columns: dict[str, np.ndarray],
    ) -> Iterable[Rows]:
        records = np.array(pending.records, np.int64)
        if block_line >= 0:
            assert pattern.block is not None
            index, rows = _block_shape(pattern, block_line)
        else:
            index, rows = _group_index(pattern), pattern.rows
        texts = _columns_of(pending.groups, index)
        self._record_groups(texts, records, columns)
        for row in rows:
            made = self._rows_of_row(number, row, texts, records)
            if made is not None:
                yield made
        if pattern.pairs is not None and block_line < 0:
            yield from self._rows_of_pairs(number, pattern.pairs, records, pending.bodies, columns)

    def _record_groups(
        self, texts: dict[str, list[bytes | None]], records: np.ndarray, columns: dict[str, np.ndarray]
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
        if "{" not in row.name and "{" not in row.raw:
            code = self.keys(Key(number, row.kind, row.name, row.raw or row.name))
            return np.full(count, code, np.int32)
        names = _fill(row.name, texts, count)
        raws = _fill(row.raw or row.name, texts, count)
        return np.array(
            [
                -1 if name is None else self.keys(Key(number, row.kind, name, raw or name))
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
            columns["signature"][records] = self._signatures(len(bodies), found.record, found.code, specs)
        values, missing = numbers_of(found.value)
        code_of = np.array([s[0] for s in specs] or [-1], np.int32)
        column_of = np.array([s[1] for s in specs] or [-1], np.int8)
        factor_of = np.array([s[2] for s in specs] or [1.0])
        column = column_of[found.code]
        for position, name in enumerate(MEASURES):
            here = np.flatnonzero((column == position) & ~missing)
            if len(here):
                said = values[here] * factor_of[found.code[here]]
                text = self._say_nan(said, np.ones(len(here), bool), None)
                yield Rows(records[found.record[here]], code_of[found.code[here]], {name: said}, text)
        yield from self._worded_pairs(records, found.record, found.code, found.value, specs)

    def _worded_pairs(
        self,
        records: np.ndarray,
        record: np.ndarray,
        code: np.ndarray,
        value: object,
        specs: Sequence[tuple[int, int, float, str]],
    ) -> Iterable[Rows]:
        """Values that are more than a number: sizes, texts."""
        worded = np.array([bool(s[3]) for s in specs] or [False])
        here = np.flatnonzero(worded[code])
        for i in here.tolist():
            key, _, _, unit = specs[code[i]]
            text = _plain(value[i] if isinstance(value, list) else value[i].as_py())  # type: ignore[index]
            at = records[record[i : i + 1]]
            keys = np.array([key], np.int32)
            if unit == "text":
                yield Rows(at, keys, {}, np.array([self.texts(text)], np.int32))
                continue
            number = _READERS[unit](text)
            if number is not None:
                yield Rows(at, keys, {UNITS[unit][0]: np.array([number])})

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
    "offset": np.int64,
    "line": np.int64,
    "pattern": np.int16,
    "rank": np.int32,
    "local": np.int32,
    "host": np.int32,
    "at": np.int64,
    "step": np.int64,
    "signature": np.int32,
}


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
        scaled = float("nan") if value is None else value * (factor if isinstance(factor, float) else 1)
        return np.full(count, scaled), np.zeros(count, bool)
    column = texts.get(measure.group, [None] * count)
    if isinstance(factor, str):
        read = _READERS[factor]
        said = [None if text is None else read(_plain(text)) for text in column]
        values = np.array([np.nan if v is None else v for v in said], np.float64)
        return values, np.array([v is not None for v in said], bool)
    values, missing = numbers_of(column)  # type: ignore[arg-type]
    return values * factor, ~missing


def _fill(
    template: str, texts: dict[str, list[bytes | None]], count: int
) -> Iterable[str | None]:
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
            [np.full(n, -1, np.int32) if p.text is None else p.text for p, n in zip(parts, sizes, strict=True)]
        )[order]
    key = np.concatenate([p.key for p in parts])[order]
    return Rows((record[order] + base).astype(np.int32), key.astype(np.int32), measures, text)
