"""What a dialect file comes to once it is read: patterns, rows, timer flavours."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from dsprof.grammar.regex import Regex

#: Unit word of a dialect file → (column it fills, factor or the name of a reader in `units`).
UNITS: Final[dict[str, tuple[str, float | str]]] = {
    "": ("value", 1.0),
    "billion": ("value", 1e9),
    "s": ("seconds", 1.0),
    "ms": ("seconds", 1e-3),
    "us": ("seconds", 1e-6),
    "min": ("seconds", 60.0),
    "B": ("bytes", 1.0),
    "KB": ("bytes", 1024.0),
    "MB": ("bytes", 1024.0**2),
    "GB": ("bytes", 1024.0**3),
    "gigabyte": ("bytes", 1e9),
    "count": ("count", 1.0),
    "size": ("bytes", "size"),
    "duration": ("seconds", "duration"),
    "amount": ("value", "amount"),
    "tera": ("value", "tera"),
    "clock": ("seconds", "clock"),
    "text": ("text", "text"),
}

PLACES: Final = ("own", "before", "after", "timer", "none")

SUMS: Final = ("micro", "step", "window", "mean", "once")


@dataclass(frozen=True, slots=True)
class Measure:
    """One cell of a row: which column, from which group (or constant), read how."""

    column: str
    group: str  # "" for a constant
    constant: str
    unit: str


@dataclass(frozen=True, slots=True)
class Row:
    """One event that a match gives. Names may hold one or more `{group}`."""

    kind: str
    name: str
    raw: str
    measures: tuple[Measure, ...]


@dataclass(frozen=True, slots=True)
class Pairs:
    """Open-ended `key: value` pairs behind a match."""

    separator: bytes
    assign: bytes
    end: bytes
    default: str
    keys: dict[str, str] = field(default_factory=dict)
    timers: bool = False
    literals: bool = False  # values are Python's: separators in their quotes and brackets are none


@dataclass(frozen=True, slots=True)
class BlockLine:
    regex: Regex
    rows: tuple[Row, ...]
    keep: tuple[str, ...]
    last: bool
    cut: bool = False  # matches no line: its rows are told where the source ends in the block


@dataclass(frozen=True, slots=True)
class Block:
    """Lines that follow an opening line and belong to it."""

    limit: int
    gap: int
    end: Regex | None
    lines: tuple[BlockLine, ...]
    json: tuple[str, str] | None  # kind and name of the row that holds a JSON object


@dataclass(frozen=True, slots=True)
class Pattern:
    """One kind of record. `id` is `file.name`."""

    id: str
    about: str
    needles: tuple[bytes, ...]
    early: frozenset[bytes]  # those of them that count at the beginning of a source alone
    beside: bytes  # what its line holds as well, behind where the needle begins; empty: anything
    lead: Regex | None  # what may stand right before the needle
    regex: Regex | None  # None: the needle is all there is to match
    place: str
    starts: bool
    turn: bool  # marks a turn of a loop around engines, whose own steps are parts of it
    alone: bool  # tells of its step alone, and not of those since the line before
    window: int  # its times are means over the last so many steps; 0 if they are not
    from_zero: bool  # its steps count from 0: the one of that number was made
    first_epoch: int  # the number of the first one, where `step` counts from each epoch's start
    behind: bool  # not searched for: read where a record looks back for it (progress bars)
    at_end: bool  # not searched for: read where it is the last line of a source
    timers: bool  # its phases are timers: named by [timer], told apart by [[timers]]
    severity: str
    rows: tuple[Row, ...]
    pairs: Pairs | None
    block: Block | None


@dataclass(frozen=True, slots=True)
class TimerFlavour:
    """How one kind of timer line is recognised, what it sums over, how its timers nest.

    `tree` maps a path of canonical names to a class (`events.Class`); the class of a
    parent is the class of the time that its children do not explain.
    """

    name: str
    all: frozenset[str]
    any: frozenset[str]
    none: frozenset[str]
    sums: str
    place: str
    tree: dict[str, str]
    aliases: dict[str, str]
    ignore: frozenset[str]
    overlaps: dict[str, str]
    rough: frozenset[str]  # says no more than the engines' timers, where these are parts of a turn
    follows: str  # taken only if the timer line before it (same source and rank) had this flavour

    def matches(self, names: frozenset[str]) -> bool:
        return (
            self.all <= names and (not self.any or bool(self.any & names)) and not self.none & names
        )


@dataclass(frozen=True, slots=True)
class Sample:
    """A line and the events it must give."""

    file: str
    text: bytes
    events: tuple[dict[str, object], ...]


@dataclass(frozen=True)
class Grammar:
    """All dialects that are in force together."""

    patterns: tuple[Pattern, ...]
    timers: dict[str, TimerFlavour]
    timer_names: dict[str, str]
    samples: tuple[Sample, ...]
    titles: dict[str, tuple[str, str]]  # file stem → (title, about)

    @property
    def needles(self) -> list[bytes]:
        """Every literal that is searched for, once, in order of first use."""
        searched = (p for p in self.patterns if not (p.behind or p.at_end))
        return list(dict.fromkeys(needle for p in searched for needle in p.needles))

    def flavour(self, names: frozenset[str]) -> TimerFlavour | None:
        """The first flavour that fits a line holding exactly these canonical names."""
        return next((t for t in self.timers.values() if not t.follows and t.matches(names)), None)

    def following(self, names: frozenset[str]) -> TimerFlavour | None:
        """The flavour such a line has if the line before it was of `follows`."""
        return next((t for t in self.timers.values() if t.follows and t.matches(names)), None)
