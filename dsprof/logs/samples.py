"""Reads the samples of dialect files back: the files test themselves with it."""

from __future__ import annotations

from typing import Any

from dsprof.grammar import Grammar, Sample
from dsprof.logs import Log, Reader
from dsprof.logs.source import Source


def read_sample(sample: Sample, grammar: Grammar) -> list[dict[str, Any]]:
    """The events that the sample's text gives, in order of appearance."""
    rows: list[dict[str, Any]] = _read(sample, grammar).events.to_pylist()
    severity = {p.id: p.severity for p in grammar.patterns}
    return [row | {"severity": severity[row["pattern"]]} for row in rows]


def strangers(sample: Sample, grammar: Grammar) -> set[str]:
    """Patterns of other dialects that also read something in the sample."""
    return {
        str(event["pattern"])
        for event in read_sample(sample, grammar)
        if str(event["pattern"]).partition(".")[0] != sample.file
        and not _lends_its_line(str(event["pattern"]), event["timers"], grammar)
    }


def _lends_its_line(pattern: str, flavour: object, grammar: Grammar) -> bool:
    """`time (ms) |` lines are read by one pattern for all dialects; flavours tell them apart."""
    timed = (p.id for p in grammar.patterns if p.place == "timer")
    return flavour is not None or pattern in timed


def covered(grammar: Grammar) -> tuple[set[str], set[str]]:
    """Patterns and timer flavours that some sample shows."""
    patterns: set[str] = set()
    flavours: set[str] = set()
    for sample in grammar.samples:
        log = _read(sample, grammar)
        patterns.update(log.coverage.patterns)
        flavours.update(str(name) for name in log.events["timers"].unique().to_pylist())
    return patterns, flavours


def _read(sample: Sample, grammar: Grammar) -> Log:
    reader = Reader(grammar, Source("sample"))
    reader.feed(sample.text + b"\n")
    reader.finish()
    return reader.log()


def faults(sample: Sample, grammar: Grammar) -> list[str]:
    """What the sample's text gives that it should not, or does not that it should."""
    events = read_sample(sample, grammar)
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
