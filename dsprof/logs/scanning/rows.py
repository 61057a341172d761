"""The rows that records give, all records of one kind at a time.

A row holds a key, which says pattern, kind, name and the source's word, and its
measures. Numbers are read from text a whole column at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from dsprof.events import Kind
from dsprof.grammar import Grammar, Pairs, Pattern, Row
from dsprof.grammar.load import split_spec
from dsprof.grammar.model import UNITS, Measure
from dsprof.logs.columns.codes import Codes
from dsprof.logs.columns.measures import (
    LONGEST_TEXT,
    READERS,
    Texts,
    filled,
    measure_of,
    numbers_of,
    plain,
)
from dsprof.logs.columns.pairs import GLUED, pairs_of

MEASURES: Final = ("seconds", "bytes", "count", "value")


@dataclass(frozen=True, slots=True)
class Key:
    """What a row is, apart from its numbers."""

    pattern: int
    kind: str
    name: str
    raw: str


@dataclass(slots=True)
class Rows:
    """Rows of one batch: parallel arrays. A missing measure is NaN, a missing text -1."""

    record: np.ndarray
    key: np.ndarray
    measures: dict[str, np.ndarray]
    text: np.ndarray | None = None

    def where(self, present: np.ndarray) -> Rows:
        """The rows that are there."""
        if present.all():
            return self
        return Rows(
            self.record[present],
            self.key[present],
            {column: values[present] for column, values in self.measures.items()},
            None if self.text is None else self.text[present],
        )


@dataclass(frozen=True, slots=True)
class _Spec:
    """What a pair's key says of its value.

    `column` is a place in MEASURES if the value is a plain number to be multiplied by
    `factor`, else -1; `reader` then names the unit that reads it, "" if nothing does.
    """

    key: int
    column: int
    factor: float
    reader: str


_NOTHING: Final = _Spec(-1, -1, 1.0, "")


class RowReader:
    """Reads the rows of records; remembers the words that rows refer to by number."""

    def __init__(self, grammar: Grammar) -> None:
        self.keys: Codes[Key] = Codes()
        self.texts: Codes[str] = Codes()
        self.signatures: Codes[frozenset[str]] = Codes()
        self._patterns = grammar.patterns
        self._timer_names = grammar.timer_names

    def __getstate__(self) -> dict[str, object]:
        """What another process needs: what was found, not the means of finding."""
        return {name: getattr(self, name) for name in ("keys", "texts", "signatures")}

    def of_groups(
        self, number: int, rows: Sequence[Row], texts: dict[str, Texts], records: np.ndarray
    ) -> list[Rows]:
        """What the groups of the records' matches say."""
        made = (self._of_row(number, row, texts, records) for row in rows)
        return [some for some in made if some is not None]

    def of_pairs(
        self, number: int, bodies: Sequence[bytes], records: np.ndarray, signature: np.ndarray
    ) -> Iterator[Rows]:
        """What the records' pairs say; notes in `signature` which timers each holds."""
        pairs = self._patterns[number].pairs
        assert pairs is not None
        found = pairs_of(bodies, pairs)
        specs = [self._spec(number, pairs, key) for key in found.key] or [_NOTHING]
        key, column, factor = (
            np.array([getattr(spec, name) for spec in specs])[found.code]
            for name in ("key", "column", "factor")
        )
        if pairs.timers:
            signature[records] = self._signatures(len(bodies), found.record, found.code, specs)
        values, missing = numbers_of(found.value)
        if pairs.timers and missing.any():
            values, missing = _freed(found.value, values, missing)
        values = values * factor
        present = (column >= 0) & ~missing
        measures = {
            name: np.where(column == place, values, np.nan)
            for place, name in enumerate(MEASURES)
            if any(spec.column == place for spec in specs)
        }
        text = self._say_nan(values, present, None)
        for i, unit in _worded(found.code, specs):
            told = found.value[i] if isinstance(found.value, list) else found.value[i].as_py()
            text = self._read_worded(i, unit, plain(told), measures, present, text)
        yield Rows(records[found.record], key.astype(np.int32), measures, text).where(present)

    def sign(self, made: Sequence[Rows], signature: np.ndarray) -> None:
        """Notes in `signature` which timers each record of a `timers` pattern holds."""
        names: dict[int, set[str]] = {}
        for rows in made:
            for record, code in zip(rows.record.tolist(), rows.key.tolist(), strict=True):
                key = self.keys.values[code]
                if key.kind == Kind.PHASE:
                    names.setdefault(record, set()).add(key.name)
        for record, words in names.items():
            signature[record] = self.signatures(frozenset(words))

    def _of_row(
        self, number: int, row: Row, texts: dict[str, Texts], records: np.ndarray
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
            values, told = measure_of(measure, texts, count)
            measures[measure.column] = values
            if measure.group:
                constant = False
                present |= told
                text = self._say_nan(values, told, text)
        keys = self._keys_of(number, row, texts, count)
        present = (present | constant) & (keys >= 0)
        return Rows(records, keys, measures, text).where(present) if present.any() else None

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
        self, measure: Measure, texts: dict[str, Texts], count: int
    ) -> tuple[np.ndarray, np.ndarray]:
        if measure.group:
            column = texts.get(measure.group, [None] * count)
            codes = [-1 if t is None else self.texts(plain(t)) for t in column]
        else:
            said = filled(measure.constant, texts, count, LONGEST_TEXT)
            codes = [-1 if t is None else self.texts(t) for t in said]
        array = np.array(codes, np.int32)
        return array, array >= 0

    def _keys_of(self, number: int, row: Row, texts: dict[str, Texts], count: int) -> np.ndarray:
        timed = self._patterns[number].timers and row.kind == Kind.PHASE
        canonical = self._timer_names if timed else {}
        if "{" not in row.name and "{" not in row.raw:
            name = canonical.get(row.name, row.name)
            key = self.keys(Key(number, row.kind, name, row.raw or row.name))
            return np.full(count, key, np.int32)
        names = filled(row.name, texts, count)
        raws = filled(row.raw or row.name, texts, count)
        codes = [
            -1
            if name is None
            else self.keys(Key(number, row.kind, canonical.get(name, name), raw or name))
            for name, raw in zip(names, raws, strict=True)
        ]
        return np.array(codes, np.int32)

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
        number = READERS[unit](told)
        if number is not None:
            column = UNITS[unit][0]
            measures.setdefault(column, np.full(len(present), np.nan))[i] = number
            present[i] = True
        return text

    def _spec(self, number: int, pairs: Pairs, raw: bytes) -> _Spec:
        word = plain(raw)
        spec = pairs.keys.get(word)
        if spec == "":
            return _NOTHING
        if spec is None and not pairs.default:
            return _NOTHING
        if spec is None:
            kind, name, unit = split_spec(pairs.default, "")
            own = self._timer_names.get(word, word) if pairs.timers else word
            name = name.replace("{key}", own)
        else:
            kind, name, unit = split_spec(spec, "")
        key = self.keys(Key(number, kind, name, word))
        column, factor = UNITS[unit]
        if isinstance(factor, str):
            return _Spec(key, -1, 1.0, factor)
        return _Spec(key, MEASURES.index(column), factor, "")

    def _signatures(
        self, count: int, record: np.ndarray, code: np.ndarray, specs: Sequence[_Spec]
    ) -> np.ndarray:
        """Which set of timers each line holds: lines of one set share a number."""
        # A sum of random words tells sets apart; the seed keeps runs alike.
        words = np.random.default_rng(7).integers(1, 2**62, len(specs), np.int64)
        total = np.zeros(count, np.int64)
        np.add.at(total, record, words[code])
        _, first, which = np.unique(total, return_index=True, return_inverse=True)
        named = []
        for line in first:
            here = code[np.searchsorted(record, line) : np.searchsorted(record, line, "right")]
            names = {
                self.keys.values[specs[c].key].name for c in here.tolist() if specs[c].key >= 0
            }
            named.append(self.signatures(frozenset(names)))
        return np.array(named, np.int32)[which]


def layout_of(pattern: Pattern, block_line: int) -> tuple[dict[str, int], tuple[Row, ...]]:
    """Where a match's tuple holds each group, and what rows they make: of the pattern, or
    of one kind of line of its block if `block_line` is not -1."""
    if block_line >= 0:
        return _layout_of_block(pattern, block_line)
    index: dict[str, int] = {}
    shift = 0
    for regex in (pattern.lead, pattern.regex):  # in this order in a match's tuple
        if regex is not None:
            index |= {name: shift + i - 1 for name, i in regex.compiled.groupindex.items()}
            shift += regex.compiled.groups
    return index, pattern.rows


def _layout_of_block(pattern: Pattern, block_line: int) -> tuple[dict[str, int], tuple[Row, ...]]:
    block = pattern.block
    assert block is not None
    if block_line == len(block.lines):  # the JSON object
        assert block.json is not None
        kind, name = block.json
        return {"json": 0}, (Row(kind, name, "", (Measure("text", "json", "", "text"),)),)
    line = block.lines[block_line]
    kept = dict.fromkeys(name for other in block.lines for name in other.keep)
    regex = line.regex.compiled
    index = {name: regex.groups + place for place, name in enumerate(kept)}
    return index | {name: i - 1 for name, i in regex.groupindex.items()}, line.rows


def _freed(
    texts: list[bytes] | pa.Array, values: np.ndarray, missing: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """With the numbers of timers that text is glued to: another line, the end of a JSON string."""
    values, missing = values.copy(), missing.copy()
    for i in np.flatnonzero(missing).tolist():
        text = texts[i] if isinstance(texts, list) else texts[i].as_py()
        number = GLUED.match(text)
        if number is not None:
            values[i], missing[i] = float(number[1]), False
    return values, missing


def _worded(code: np.ndarray, specs: Sequence[_Spec]) -> Iterable[tuple[int, str]]:
    worded = np.array([bool(spec.reader) for spec in specs])
    if worded.any():
        for i in np.flatnonzero(worded[code]).tolist():
            yield i, specs[code[i]].reader


def sorted_rows(parts: Sequence[Rows], place: np.ndarray, base: int) -> Rows:
    """All rows of a batch as one, ordered by the place of their record."""
    record = place[np.concatenate([p.record for p in parts])]
    order = np.argsort(record, kind="stable")
    told = [name for name in MEASURES if any(name in p.measures for p in parts)]
    measures = {name: _measured(parts, name)[order] for name in told}
    text = None
    if any(p.text is not None for p in parts):
        texts = [np.full(len(p.record), -1, np.int32) if p.text is None else p.text for p in parts]
        text = np.concatenate(texts)[order]
    key = np.concatenate([p.key for p in parts])[order]
    return Rows((record[order] + base).astype(np.int32), key.astype(np.int32), measures, text)


def _measured(parts: Sequence[Rows], name: str) -> np.ndarray:
    """A measure of all parts; nan in those that have none."""
    told = [p.measures.get(name) for p in parts]
    return np.concatenate(
        [
            np.full(len(p.record), np.nan) if t is None else t
            for p, t in zip(parts, told, strict=True)
        ]
    )
