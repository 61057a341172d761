"""One growing log as events: read once, in bounded memory, for as long as it grows.

A `logs.Reader` keeps everything it has read. After `ROLL` records the next one takes over:
it is given the last half megabyte again, so that it knows what stands around the border,
and what both have read tells how launches and counted steps of one go on in the other.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dsprof.grammar import Grammar
from dsprof.live.streams import Stream
from dsprof.logs import Log, Reader
from dsprof.logs.columns.arrow import numbers
from dsprof.logs.scanning.scan import Scanner
from dsprof.logs.sources.source import named

ROLL: Final = 8_000  # records
SHOWN: Final = 2_000  # last lines that are kept to be looked at
LONGEST: Final = 2_000  # bytes kept of such a line
_OVERLAP: Final = 1 << 19
_FAR: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class Border:
    """Where a new reader took over.

    `line` is the last line whose rows were the old one's; the others are what to add to
    the new one's launches and, where steps are counted, to its steps.
    """

    line: int = 0
    segment: int = 0
    step: int = 0


class LogFollower:
    """Follows one stream. `poll` reads; `settled` and `fresh` are what it says.

    Attributes:
        settled: tables that will not change any more; whoever takes them empties the list.
        lines: the last lines, as (number, bytes).
        fingerprints: headers of loggers that were seen: they tell the version.
        counted: no line told a step number, as far as the first reader of the file could see.
    """

    def __init__(
        self, stream: Stream, grammar: Grammar, segment: int = 0, base: int | None = 0
    ) -> None:
        self.stream = stream
        self.base = base  # lines before the place where reading began; None until counted
        self.settled: list[pa.Table] = []
        self.lines: deque[tuple[int, bytes]] = deque(maxlen=SHOWN)
        self.fingerprints: set[str] = set()
        self.counted = False
        self._marks = [(0, stream.offset)]  # lines and bytes before a place, sparse
        self._source = named(stream.name)
        self._grammar = grammar
        self._turned = stream.turned
        self.first: int | None = None  # the step that is told of first, if it says its number
        self._border = Border(segment=segment)
        self._above = -1  # steps of a launch that a new file goes on with
        self._begin(Scanner(grammar))

    def _begin(self, scanner: Scanner) -> None:
        self._reader = Reader(self._grammar, self._source, scanner)
        self._fed: deque[bytes] = deque()  # the end of what it was given
        self._number = scanner.lines  # of the last whole line shown
        self._rest = b""
        self._finished = False
        self._fresh: pa.Table | None = None

    def poll(self, most: int) -> int:
        """Read at most that many bytes; how many came."""
        data = self.stream.read(most)
        if self.stream.turned != self._turned:
            self._turned = self.stream.turned
            self._anew()
        if data:
            self._feed(data)
        elif self.stream.ended and not self._finished:
            self._finished, self._fresh = True, None
            self._reader.finish()
        self._reader.scanner.records.flush()
        if self._reader.scanner.records.count >= ROLL:
            self._roll()
        return len(data)

    def fresh(self) -> pa.Table:
        """What the reader at work says: the last records may still change."""
        if self._fresh is None:
            self._fresh = self._numbered(self._mine(self._reader.log()))
        return self._fresh

    def bar(self) -> tuple[int, int] | None:
        """Where a progress bar stands, and of how many, whose line goes on: it begins anew behind a
        carriage return."""
        if b"\r" not in self._rest:
            return None
        reader = Reader(self._grammar, self._source)
        reader.feed(self._rest + b"\n")
        reader.finish()
        rows = reader.log().events.select(["name", "value"]).to_pylist()
        told = {row["name"]: row["value"] for row in rows}
        at, of = (told.get(f"bar_{one}") for one in ("position", "total"))
        return None if at is None or not of else (int(at), int(of))

    def recount(self, base: int) -> None:
        """Say how many lines stand before the place where reading began."""
        self.base, self._fresh = base, None
        self.lines = deque([(n + base, line) for n, line in self.lines], maxlen=SHOWN)
        self._number += base

    def place_of(self, line: int) -> tuple[int, int]:
        """A line at or before `line` and the byte where it begins: (line, offset)."""
        base = self.base or 0
        at = max(0, bisect_right(self._marks, (line - base - 1, _FAR)) - 1)
        return self._marks[at][0] + base + 1, self._marks[at][1]

    def _feed(self, data: bytes) -> None:
        self._fresh = None
        self._reader.feed(data)
        self._fed.append(data)
        while sum(map(len, self._fed)) - len(self._fed[0]) > _OVERLAP:
            self._fed.popleft()
        self._show(data)

    def _show(self, data: bytes) -> None:
        """Keep the last whole lines for whoever looks at the log."""
        *whole, rest = (self._rest + data).split(b"\n")
        first = self._number + 1
        self._number += len(whole)
        for number, line in list(enumerate(whole, first))[-SHOWN:]:
            self.lines.append((number, line[:LONGEST]))
        self._rest = rest[-LONGEST:]
        reached = self.stream.offset - len(rest)
        if reached - self._marks[-1][1] >= 1 << 20:
            self._marks.append((self._number - (self.base or 0), reached))

    def _anew(self) -> None:
        """Other text stands under the name: of the same launch if the file was rotated, of another
        one if it was cut, unless it says not."""
        self._reader.finish()
        last = self._mine(self._reader.log())
        self.settled.append(self._numbered(last))
        top, self._above = _tops(last, self._border)
        self._border = Border(segment=top + self.stream.cut)
        self._begin(Scanner(self._grammar))
        self.base = 0
        self.lines.clear()
        self._marks = [(0, 0)]

    def _roll(self) -> None:
        """Hand over to a new reader."""
        overlap = b"".join(self._fed)
        overlap = overlap[max(0, len(overlap) - _OVERLAP) :]
        overlap = overlap[overlap.find(b"\n") + 1 :]
        if b"\n" not in overlap:
            return
        old, table = self._reader, self._mine(self._reader.log())
        begin = old.scanner.lines - overlap.count(b"\n")
        line = begin + overlap.count(b"\n", 0, len(overlap) // 2)
        self.settled.append(self._numbered(table.filter(pc.less_equal(table["line"], line))))
        number, rest = self._number, self._rest
        scanner = Scanner(self._grammar, first_line=begin, month=old.scanner.month)
        self._begin(scanner)
        self._number, self._rest = number, rest
        self._reader.feed(overlap)
        self._fed.append(overlap)
        self._border = _border(table, self._reader.log(), line, self._border)

    def _mine(self, log: Log) -> pa.Table:
        """The reader's rows behind the border, in the launches and steps of the whole log."""
        table, counted = log.events, log.meta["counted_steps"]
        self.fingerprints.update(log.meta["fingerprints"])
        if self._border.line:
            table = table.filter(pc.greater(table["line"], self._border.line))
        else:
            self.counted = counted
        if self.first is None and not counted:
            self.first = next(iter(table["step"].drop_null().slice(0, 1).to_pylist()), None)
        self._judge_turn(table, counted=counted)
        table = added(table, "segment", self._border.segment)
        return added(table, "step", self._border.step) if counted else table

    def _judge_turn(self, table: pa.Table, *, counted: bool) -> None:
        """Whether the file that began anew goes on with the launch of the old one.

        Steps that begin again are of another launch. So are counted ones, unless the log
        was only rotated: nothing in it could tell, and a launch too many does no harm.
        """
        steps = table["step"].drop_null()
        if self._above < 0 or not len(steps):
            return
        again = counted or steps[0].as_py() <= self._above
        self._above = -1
        more = again - self.stream.cut  # that of a cut file was another one until now
        self._border = replace(self._border, segment=self._border.segment + more)

    def _numbered(self, table: pa.Table) -> pa.Table:
        """Lines counted from the beginning of the file; missing while that is not known."""
        if self.base is not None:
            return added(table, "line", self.base)
        place = table.schema.get_field_index("line")
        return table.set_column(place, table.schema.field(place), pa.nulls(len(table), pa.int64()))


def _border(old: pa.Table, new: Log, line: int, before: Border) -> Border:
    """How the new reader's launches and counted steps go on from the old one's."""
    both = old.filter(pc.less_equal(old["line"], line))
    same = new.events.filter(pc.less_equal(new.events["line"], line))
    if not len(both) or not len(same):
        top, step = _tops(old, before)
        return Border(line, top, step)
    segment = last_of(both, "segment") - last_of(same, "segment")
    step = last_of(both, "step") - last_of(same, "step")
    return Border(line, segment, max(step, 0))


def _tops(table: pa.Table, border: Border) -> tuple[int, int]:
    """The last launch and step that a table tells of."""
    top = pc.max(table["segment"]).as_py()
    return (border.segment if top is None else top), last_of(table, "step")


def last_of(table: pa.Table, column: str) -> int:
    """The last known number of a column; 0 if there is none."""
    known = table[column].drop_null()
    return int(known[-1].as_py()) if len(known) else 0


def added(table: pa.Table, column: str, more: int) -> pa.Table:
    """`more` on top of every number of a column."""
    if not more or not len(table):
        return table
    place = table.schema.get_field_index(column)
    field = table.schema.field(place)
    (scalar,) = numbers(np.array([more], field.type.to_pandas_dtype()))
    return table.set_column(place, field, pc.add(table[column], scalar))


def metric_lines(table: pa.Table) -> frozenset[int]:
    """Numbers of the lines that a pattern read."""
    return frozenset(pc.unique(table["line"].drop_null()).to_pylist())
