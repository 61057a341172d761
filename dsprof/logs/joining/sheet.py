"""One source's records as the table is made of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container
from copy import copy
from typing import Final

import numpy as np

from dsprof.events import Kind
from dsprof.grammar import Grammar
from dsprof.logs.joining.doubled import doubled
from dsprof.logs.placing.place import Placed, Source, place
from dsprof.logs.scanning.records import Records
from dsprof.logs.scanning.rows import Rows
from dsprof.logs.scanning.torn import CUT_SHORT, may_lack_timers

_COUNTABLE: Final = 2.0**53  # beyond, a float tells no whole numbers apart
_NONE: Final = np.zeros(0)

#: Field of `Source`: the metric that tells it, and what stands where none does.
_COUNTS: Final[dict[str, tuple[str, np.generic]]] = {
    "bar": ("bar_position", np.int64(-1)),
    "total": ("bar_total", np.int64(-1)),
    "skipped": ("skipped", np.int64(-1)),
    "epoch": ("epoch", np.float64(np.nan)),
}


class Sheet:
    """One source's records, each column whole.

    Args:
        last: the records are asked for the last time: their memory is given back as the
            table grows.
        family: what the names of files that belong together share.
        local: the rank on its host that the name tells.

    Attributes:
        again: which records only say again what others said, known once `source` was asked for.
        repeated: their lines.
    """

    def __init__(
        self,
        name: str,
        rank: int | None,
        host: str | None,
        records: Records,
        *,
        last: bool = False,
        family: str = "",
        local: int | None = None,
    ) -> None:
        self.name, self.records, self.last = name, records, last
        self.family = family or name
        self.again = np.zeros(records.count, bool)
        self.repeated = np.zeros(0, np.int64)
        self.columns = {
            name: column.take() if last else column.view().copy()
            for name, column in records.columns.items()
        }
        del self.columns["offset"]  # it put them in order
        self.torn = may_lack_timers(
            self.columns.pop("torn"), self.columns["signature"], records.reader.signatures.values
        )
        self.cut_short = records.reader.texts(CUT_SHORT) if self.torn.any() else -1
        if rank is None and local is not None:  # of one process, which may say its global rank
            told = np.unique(self.columns["rank"][self.columns["rank"] >= 0])
            rank = int(told[0]) if len(told) == 1 else None
        self._fill("rank", rank)
        self._fill("local", local)
        if host is not None and len(self.columns["host"]):
            self._fill("host", records.senders.hosts(host))

    def _fill(self, column: str, told: int | None) -> None:
        """What the file's name tells stands where its lines tell nothing."""
        if told is not None:
            known = self.columns[column]
            self.columns[column] = np.where(known < 0, told, known).astype(np.int32)

    def rows(self) -> list[Rows]:
        """Batches of rows, in order, as the caller's own."""
        batches = [copy(rows) for rows in self.records.rows]
        if self.last:
            self.records.rows.clear()
        if not self.again.any():
            return batches
        kept = (rows.where(~self.again[rows.record]) for rows in batches)
        return [rows for rows in kept if len(rows.record)]

    def settings(self, names: Container[str]) -> dict[str, frozenset[float]]:
        """The values that its lines give to settings of these names."""
        keys = self.records.reader.keys.values
        wanted = np.array(
            [key.kind == Kind.CONFIG and key.name in names for key in keys] or [False]
        )
        found: defaultdict[str, set[float]] = defaultdict(set)
        for rows in self.records.rows:
            for row in np.flatnonzero(wanted.take(rows.key)).tolist():
                value = float(rows.measures["value"][row]) if "value" in rows.measures else np.nan
                if np.isfinite(value):
                    found[keys[rows.key[row]].name].add(value)
        return {name: frozenset(values) for name, values in found.items()}

    def source(self, grammar: Grammar) -> Source:
        """What places the records; from now on those that say nothing new are left out."""
        c = self.columns
        own = {name: c.pop(name) for name in ("pattern", "step", "signature")}
        host = one_of_each_rank(c["rank"], c["host"])
        source = Source(rank=c["rank"], host=host, at=c["at"], **self._counts(), **own)
        marks = np.array([p.place == "own" for p in grammar.patterns] or [False])
        self.again = doubled(source, marks[source.pattern], self.records.rows)
        self.repeated = c["line"][self.again]
        return source

    def place(self, source: Source, grammar: Grammar) -> Placed:
        signatures = self.records.reader.signatures.values
        if not self.again.any():
            return place(source, grammar, signatures)
        rest = np.flatnonzero(~self.again)
        return place(source.at_places(rest), grammar, signatures).spread(rest, len(self.again))

    def _counts(self) -> dict[str, np.ndarray]:
        """What the records count, by the field of `Source` that holds it."""
        names = [name for name, _ in _COUNTS.values()]
        keys = [key.name for key in self.records.reader.keys.values]
        counts = np.array([names.index(key) if key in names else -1 for key in keys], np.int8)
        told: list[tuple[np.ndarray, ...]] = [(np.zeros(0, np.int32), np.zeros(0, np.int8), _NONE)]
        for rows in self.records.rows:
            count = counts.take(rows.key)
            here = np.flatnonzero(count >= 0)
            if len(here):
                told.append((rows.record[here], count[here], rows.measures["value"][here]))
        record, count, value = map(np.concatenate, zip(*told, strict=True))
        columns = {}
        for number, (field, (_, unknown)) in enumerate(_COUNTS.items()):
            column = np.broadcast_to(unknown, self.records.count)
            mine = count == number
            if mine.any():
                column, values = column.copy(), value[mine]
                known = np.where(np.isnan(values), unknown, values.clip(-1, _COUNTABLE))
                column[record[mine]] = known
            columns[field] = column
        return columns


def one_of_each_rank(rank: np.ndarray, host: np.ndarray) -> np.ndarray:
    """Hosts of lines, of each rank the first one for all of them: a launcher's label may be lost
    from some, or change behind all others of a rank, and read as they stand they would be of
    another process, whose steps are counted apart. A rank of which two hosts print by turns may be
    two jobs': its lines stay as they are."""
    known = np.flatnonzero((rank >= 0) & (host >= 0))
    if not len(known):
        return host
    order = known[np.lexsort((host[known], rank[known]))]
    new = (np.diff(rank[order]) != 0) | (np.diff(host[order]) != 0)
    first, last = order[np.append(True, new)], order[np.append(new, True)]
    in_turn = np.lexsort((first, rank[first]))
    first, last = first[in_turn], last[in_turn]
    behind = first[1:]
    mixed = rank[behind[(rank[behind] == rank[first[:-1]]) & (behind < last[:-1])]]
    ranks, begin = np.unique(rank[first], return_index=True)
    at = np.minimum(np.searchsorted(ranks, rank), len(ranks) - 1)
    told = (ranks[at] == rank) & ~np.isin(rank, mixed)
    alike: np.ndarray = np.where(told, host[first[begin]][at], host)
    return alike
