"""Collects records and turns them into columns, a few thousand at a time.

A *record* is one match of one pattern; it gives any number of *rows* (see `rows`). What belongs to
the record (line, rank, host, time, its own step) is stored once per record.
"""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import Final

import numpy as np

from dsprof.grammar import Grammar, Pattern
from dsprof.logs.columns import clocks
from dsprof.logs.columns.measures import Groups, Texts, columns_of, numbers_of, plain
from dsprof.logs.prefixes.senders import Sender, Senders
from dsprof.logs.scanning.rows import RowReader, Rows, layout_of, sorted_rows
from dsprof.logs.scanning.torn import stop_short

_BATCH: Final = 16_384

_SHAPES: Final = 1024  # exceeds the number of line kinds in a block

_COLUMNS: Final = {
    "offset": np.int64,
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


def shape_of_record(pattern: int, block_line: int = -1) -> int:
    """A number for the pattern and, if the record is a line of its block, the kind of line."""
    return pattern * _SHAPES + block_line + 1


@contextmanager
def without_cycle_collection() -> Iterator[None]:
    """Pause garbage collection: records are millions of small tuples without cycles, and looking
    for cycles among them would take a sixth of the time.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class Column:
    """An array that grows as a single buffer: many small ones would leave holes in memory when
    freed.
    """

    def __init__(self, kind: type) -> None:
        self._kind = np.dtype(kind)
        self._bytes = bytearray()

    def extend(self, values: np.ndarray) -> None:
        self._bytes += np.ascontiguousarray(values, self._kind).data

    def view(self) -> np.ndarray:
        """The whole array. The column cannot grow while this is in use."""
        return np.frombuffer(self._bytes, self._kind)

    def take(self) -> np.ndarray:
        """The whole array, which the column then no longer holds."""
        values = self.view()
        self._bytes = bytearray()
        return values


@dataclass(slots=True)
class Alike:
    """Records of one shape found since the last flush, as parallel lists.

    `senders` holds what is known about each sender, or the prefix that states it. `bodies` holds
    the text of their pairs, and is empty if this shape has none.
    """

    offsets: list[int] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    senders: list[Sender | bytes] = field(default_factory=list)
    groups: list[Groups] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)

    def add(
        self, offset: int, line: int, sender: Sender | bytes, groups: Groups, body: bytes | None
    ) -> None:
        """Add one record; `body` is the text of its pairs."""
        self.offsets.append(offset)
        self.lines.append(line)
        self.senders.append(sender)
        self.groups.append(groups)
        if body is not None:
            self.bodies.append(body)


class Records:
    """The records of a source. They are added to `new`; `flush` and `settle` put them in order of
    position.

    Attributes:
        new: records not flushed yet, by shape.
        torn: offsets of those among them that lost their end.
        columns: what belongs to each record.
        rows: the rows of the records, one entry per batch.
        reader, senders: the words behind the codes in rows and columns.
        per_pattern: number of records of each pattern.
        count: records in finished batches.
    """

    def __init__(self, grammar: Grammar, month: int | None = 0) -> None:
        self.reader = RowReader(grammar)
        self.senders = Senders(month)
        self.columns = {name: Column(kind) for name, kind in _COLUMNS.items()}
        self.rows: list[Rows] = []
        self.per_pattern = np.zeros(len(grammar.patterns), np.int64)
        self.count = 0
        self._sizes: list[int] = []  # records in each batch
        self.new: defaultdict[int, Alike] = defaultdict(Alike)
        self.torn: set[int] = set()
        self._patterns = grammar.patterns

    def __getstate__(self) -> dict[str, object]:
        """What another process needs: the results, not the means of finding them."""
        return vars(self) | {"new": {}, "_patterns": ()}

    def join(self, later: Records, lines: int, size: int) -> None:
        """Add the records of the range that follows after `lines` lines and `size` bytes."""
        keys = self.reader.keys.taken_from(later.reader.keys)
        texts = self.reader.texts.taken_from(later.reader.texts)
        hosts = self.senders.hosts.taken_from(later.senders.hosts)
        signatures = self.reader.signatures.taken_from(later.reader.signatures)
        columns = {name: column.view() for name, column in later.columns.items()}
        offset = columns["offset"] + size
        columns |= {
            "offset": offset,
            "line": columns["line"] + lines,
            "host": hosts[columns["host"]],
            "signature": signatures[columns["signature"]],
            "at": self.senders.joined(later.senders, columns["at"], offset, size),
        }
        for name, values in columns.items():
            self.columns[name].extend(values)
        self._sizes += later._sizes
        for rows in later.rows:
            rows.record += self.count
            rows.key[:] = keys[rows.key]
            if rows.text is not None:
                rows.text[:] = texts[rows.text]
        self.rows += later.rows
        self.per_pattern += later.per_pattern
        self.count += later.count

    def flush_if_full(self) -> None:
        if sum(len(alike.offsets) for alike in self.new.values()) >= _BATCH:
            self.flush()

    def flush(self) -> None:
        """Turn what was added since the last flush into columns."""
        if not self.new:
            return
        new = sorted(self.new.items())
        self.new.clear()
        sizes = [len(alike.offsets) for _, alike in new]
        count = sum(sizes)
        offset = _joined(alike.offsets for _, alike in new)
        columns = {
            "offset": offset,
            "line": _joined(alike.lines for _, alike in new),
            "pattern": np.repeat(np.array([shape // _SHAPES for shape, _ in new]), sizes),
            **self.senders.read_all([s for _, alike in new for s in alike.senders], offset),
            "step": np.full(count, -1, np.int64),
            "signature": np.full(count, -1, np.int32),
            "torn": np.isin(offset, list(self.torn)) if self.torn else np.zeros(count, bool),
        }
        self.torn.clear()
        made: list[Rows] = []
        for (shape, alike), end in zip(new, np.cumsum(sizes).tolist(), strict=True):
            records = np.arange(end - len(alike.offsets), end)
            made += self._read(shape, records, alike.groups, alike.bodies, columns)
        self.per_pattern += np.bincount(columns["pattern"], minlength=len(self.per_pattern))
        order = np.argsort(offset, kind="stable")
        place = np.empty(count, np.int64)
        place[order] = np.arange(count)
        for name, values in columns.items():
            self.columns[name].extend(values[order])
        self._sizes.append(count)
        if any(len(rows.record) for rows in made):
            self.rows.append(sorted_rows(made, place, self.count))
        self.count += count

    def _read(  # parallel
        self,
        shape: int,
        records: np.ndarray,
        groups: Sequence[Groups],
        bodies: Sequence[bytes],
        columns: dict[str, np.ndarray],
    ) -> list[Rows]:
        """The rows of all records of one shape; what belongs to the records themselves is put into
        `columns`.
        """
        number, block_line = divmod(shape, _SHAPES)
        pattern = self._patterns[number]
        index, rows = layout_of(pattern, block_line - 1)
        texts = columns_of(groups, index)
        self._record_groups(texts, records, columns)
        if "epoch_steps" in texts:
            columns["step"][records] = _over_epochs(texts, columns["step"][records], pattern)
        made = self.reader.of_groups(number, rows, texts, records)
        if pattern.timers:
            self.reader.sign(made, columns["signature"])
        if bodies:
            made += self.reader.of_pairs(number, bodies, records, columns["signature"])
            if pattern.pairs is not None and pattern.pairs.timers:
                columns["torn"][records] |= stop_short(bodies, pattern.pairs)
        return made

    def _record_groups(
        self, texts: dict[str, Texts], records: np.ndarray, columns: dict[str, np.ndarray]
    ) -> None:
        """Store the groups that belong to the record itself: step, rank, host, time."""
        for name in ("step", "rank"):
            if name in texts:
                values, missing = numbers_of(texts[name])
                known = ~missing & (np.abs(values) < 2**31)
                columns[name][records[known]] = values[known].astype(np.int64)
        if "group_rank" in texts:  # no other than what its prefix says, which counts all ranks
            values, missing = numbers_of(texts["group_rank"])
            known = ~missing & (values < 2**31) & (columns["rank"][records] < 0)
            columns["rank"][records[known]] = values[known].astype(np.int64)
        if "host" in texts:
            for record, text in zip(records.tolist(), texts["host"], strict=True):
                if text is not None:
                    columns["host"][record] = self.senders.hosts(plain(text))
        if "at" in texts:
            told, at = clocks.microseconds(texts["at"]), columns["at"]
            at[records] = clocks.as_logged(told, at[records])

    def settle(self) -> None:
        """Sort batches that overlap in the source: a bar is found only when a later record asks for
        it, and a block may end in another range.
        """
        offset, bounds = self.columns["offset"].view(), [0, *np.cumsum(self._sizes).tolist()]
        spans = [(int(offset[low]), int(offset[high - 1])) for low, high in pairwise(bounds)]
        apart = [(bounds[first], bounds[end], end - first) for first, end in _overlapping(spans)]
        for low, high, batches in apart:
            if batches > 1:
                self._merge(low, high)
        self._sizes = [high - low for low, high, _ in apart]

    def _merge(self, base: int, end: int) -> None:
        """Merge the batches that hold the records from `base` to `end` into one."""
        order = np.argsort(self.columns["offset"].view()[base:end], kind="stable")
        place = np.empty(end - base, np.int64)
        place[order] = np.arange(end - base)
        for column in self.columns.values():
            part = column.view()[base:end]
            part[:] = part[order]
        inside = [base <= int(rows.record[0]) < end for rows in self.rows]
        if any(inside):
            at = inside.index(True)
            made = [rows for rows, here in zip(self.rows, inside, strict=True) if here]
            for rows in made:
                rows.record = rows.record - base
            self.rows[at : at + len(made)] = [sorted_rows(made, place, base)]


def _over_epochs(texts: dict[str, Texts], step: np.ndarray, pattern: Pattern) -> np.ndarray:
    """Steps that restart with each epoch, numbered through all epochs; -1 if unknown."""
    epoch, length = (numbers_of(texts[name])[0] for name in ("epoch", "epoch_steps"))
    told = (epoch - pattern.first_epoch) * length + step
    return np.where((step >= 0) & (told >= 0) & (told < 2**31), told, -1).astype(np.int64)


def _joined(parts: Iterable[list[int]]) -> np.ndarray:
    return np.array([*chain.from_iterable(parts)], np.int64)


def _overlapping(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges of indices of consecutive spans that overlap; a single span is a range, too."""
    groups: list[tuple[int, int, int]] = []  # first index, lowest, highest
    for number, span in enumerate(spans):
        first, (low, high) = number, span
        while groups and groups[-1][2] > low:
            first, lowest, highest = groups.pop()
            low, high = min(low, lowest), max(high, highest)
        groups.append((first, low, high))
    firsts = [first for first, _, _ in groups]
    return list(pairwise([*firsts, len(spans)]))
