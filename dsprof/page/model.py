"""What a template gets to see: tables, charts and sections of plain words."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import pandas as pd

from dsprof.charts import Figure


class Place(NamedTuple):
    """A line of a source: the proof of a number."""

    source: str
    line: int

    @classmethod
    def of(cls, source: object, line: Any) -> Place | None:
        """None where the source or the line is not known."""
        if not isinstance(source, str) or not source or pd.isna(line):
            return None
        return cls(source, int(line))


class Among(NamedTuple):
    """The lines that a mean or a sum is made of.

    Attributes:
        lines: those to show, each with what it is ("first", "longest", "last" or nothing).
        of: how many numbers there are in all.
    """

    lines: tuple[tuple[str, Place], ...]
    of: int


class Cell(NamedTuple):
    """One cell: words, where they are proved, and a bar of so much of the widest.

    `place` is the line of a number that one line gives, `among` those of a mean or a sum.
    """

    text: str
    place: Place | None = None
    bar: float | None = None
    role: str = ""  # a colour of the palette
    among: Among | None = None

    @property
    def places(self) -> tuple[Place, ...]:
        """Every line that the cell leads to."""
        own = (self.place,) if self.place else ()
        return own + tuple(place for _, place in self.among.lines) if self.among else own


@dataclass(frozen=True, slots=True)
class Table:
    caption: str
    head: list[str]
    rows: list[list[Cell]]
    numeric: frozenset[int] = frozenset()  # columns aligned by their digits
    more: str = ""  # what was left out


def without_empty(table: Table, *columns: int) -> Table:
    """The table without columns that hold nothing, among some or among all."""
    columns = columns or tuple(range(len(table.head)))
    return without(table, *(i for i in columns if all(row[i].text == "–" for row in table.rows)))


def without(table: Table, *columns: int) -> Table:
    """The table without some columns."""
    kept = [i for i in range(len(table.head)) if i not in columns]
    return replace(
        table,
        head=[table.head[i] for i in kept],
        rows=[[row[i] for i in kept] for row in table.rows],
        numeric=frozenset(place for place, i in enumerate(kept) if i in table.numeric),
    )


@dataclass(frozen=True, slots=True)
class Chart:
    """A figure, what it says in words, and the table behind it.

    `scale` says what its colours mean at their ends, and whether they are pale or full there.
    """

    name: str
    figure: Figure
    label: str
    table: Table | None = None
    note: str = ""
    scale: tuple[str, str, str] | None = None


Words = str | list[str | Cell]  #: a sentence, or its pieces, of which numbers lead to their lines


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page; `why` says in one line why there is nothing to show."""

    name: str
    title: str
    lead: Words = ""
    charts: list[Chart] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    why: str = ""

    @property
    def said(self) -> list[Cell]:
        """The pieces of the lead."""
        pieces = [self.lead] if isinstance(self.lead, str) else self.lead
        return [piece if isinstance(piece, Cell) else Cell(piece) for piece in pieces if piece]

    @property
    def words(self) -> str:
        """The lead as one text."""
        return "".join(piece.text for piece in self.said)
