"""Reads the samples of dialect files back: the files test themselves with it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from dsprof.grammar import Grammar, Sample
from dsprof.logs import Reader
from dsprof.logs.sources.source import Source


class Shown(NamedTuple):
    """What the text of a sample gives."""

    events: list[dict[str, Any]]  # in order of appearance
    patterns: frozenset[str]
    flavours: frozenset[str]


def read_sample(sample: Sample, grammar: Grammar) -> Shown:
    reader = Reader(grammar, Source("sample"))
    reader.feed(sample.text + b"\n")
    reader.finish()
    log = reader.log()
    rows: list[dict[str, Any]] = log.events.to_pylist()
    severity = {p.id: p.severity for p in grammar.patterns}
    return Shown(
        [row | {"severity": severity[row["pattern"]]} for row in rows],
        frozenset(log.coverage.patterns),
        frozenset(str(row["timers"]) for row in rows),
    )


def strangers(sample: Sample, shown: Shown, grammar: Grammar) -> set[str]:
    """Patterns of other dialects that also read something in the sample."""
    return {
        str(event["pattern"])
        for event in shown.events
        if str(event["pattern"]).partition(".")[0] != sample.file
        and not _lends_its_line(str(event["pattern"]), event["timers"], grammar)
    }


def _lends_its_line(pattern: str, flavour: object, grammar: Grammar) -> bool:
    """`time (ms) |` lines are read by one pattern for all dialects; flavours tell them apart."""
    timed = (p.id for p in grammar.patterns if p.place == "timer")
    return flavour is not None or pattern in timed


def covered(shown: Iterable[Shown]) -> tuple[set[str], set[str]]:
    """Patterns and timer flavours that some sample shows."""
    patterns: set[str] = set()
    flavours: set[str] = set()
    for one in shown:
        patterns |= one.patterns
        flavours |= one.flavours
    return patterns, flavours


def faults(sample: Sample, shown: Shown) -> list[str]:
    """What the sample's text gives that it should not, or does not that it should."""
    events = shown.events
    if len(events) != len(sample.events):
        read = ", ".join(f"{e['kind']} {e['name']}" for e in events) or "nothing"
        return [f"expects {len(sample.events)} events, read {len(events)}: {read}"]
    return [
        f"{event['kind']} {event['name']}: {column} is {event.get(column)!r}, not {value!r}"
        for expected, event in zip(sample.events, events, strict=True)
        for column, value in expected.items()
        if not _same(event.get(column), value)
    ]


def _same(read: object, told: object) -> bool:
    if read == told:
        return True
    if isinstance(told, float) and isinstance(read, (int, float)):
        return abs(read - told) <= 1e-9 * max(abs(told), 1e-3)
    return False
