"""What a template gets to see: tables, charts and sections of plain words."""

from __future__ import annotations

from dataclasses import dataclass, field
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


@dataclass(frozen=True, slots=True)
class Chart:
    """A figure, what it says in words, and the table behind it."""

    name: str
    figure: Figure
    label: str
    table: Table | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page; `why` says in one line why there is nothing to show."""

    name: str
    title: str
    lead: str = ""
    charts: list[Chart] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    why: str = ""
