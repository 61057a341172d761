"""What a run says, record by record, in numbers that can be compared with a truth file."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any

from dsprof.run import Run
from dsprof.text.words import plain

RELATIVE = 1e-6  # what a printed number may lose on its way through units
ABSOLUTE = 1e-9
MEASURES = ("seconds", "bytes", "value", "count")


@dataclass(frozen=True)
class Check:
    """One thing that the truth says of one kind of record, and what was found."""

    kind: str
    what: str
    expected: Any
    found: Any

    @property
    def ok(self) -> bool:
        return same(self.expected, self.found)


def same(expected: Any, found: Any) -> bool:
    """Equal as printed: numbers within rounding, nothing only with nothing."""
    if isinstance(expected, list) and isinstance(found, list):
        pairs = zip(expected, found, strict=False)
        return len(expected) == len(found) and all(same(e, f) for e, f in pairs)
    if isinstance(expected, float) and isinstance(found, int | float):
        return math.isclose(expected, found, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
    return bool(expected == found)


@dataclass(frozen=True)
class Record:
    """The rows of one record: its measures and texts by canonical name and by the log's word."""

    line: int
    step: int | None
    rank: int | None
    host: str | None
    segment: int
    timers: str | None
    count: int | None
    names: Sequence[str]  # canonical, in order
    values: Mapping[str, float]
    texts: Mapping[str, str]
    seconds: float | None
    bytes: float | None

    def __getitem__(self, name: str) -> float | None:
        """A measure in seconds, bytes or as printed; None if the record does not tell it."""
        return self.values.get(name)


class Reading:
    """A run and its records before any repair: what stands in the log."""

    def __init__(self, run: Run) -> None:
        self.run = run

    @cached_property
    def _records(self) -> dict[str, list[Record]]:
        rows = self.run.recorded.sort_values("record", kind="stable").astype(object)
        rows = rows.where(rows.notna(), None)
        listed: list[dict[str, Any]] = rows.to_dict("records")  # type: ignore[assignment]
        told: dict[str, list[Record]] = {}
        by_record = groupby(listed, lambda row: (row["pattern"], row["record"]))
        for (pattern, _), some in by_record:
            told.setdefault(str(pattern), []).append(_record(list(some)))
        return told

    @property
    def patterns(self) -> Iterable[str]:
        return self._records

    def of(self, *patterns: str) -> list[Record]:
        """The records that these patterns read, in the log's order."""
        found = [record for name in patterns for record in self._records.get(name, [])]
        return sorted(found, key=lambda record: record.line)

    def step(self, step: int | None) -> Mapping[str, Any]:
        """What `Run.steps` says of a step; empty if it has no row."""
        steps = self.run.steps
        rows = steps[(steps["step"] == step).fillna(False)] if step else steps.head(0)
        return dict(rows.iloc[-1].dropna()) if len(rows) else {}

    def phases(self, step: int | None) -> Mapping[str, float]:
        """The log's timer words of a step → seconds of one optimizer step."""
        phases = self.run.phases
        rows = phases[(phases["step"] == step).fillna(False)] if step else phases.head(0)
        return dict(zip(rows["raw"], rows["seconds"], strict=True))


def _record(rows: list[dict[str, Any]]) -> Record:
    first = rows[0]
    values: dict[str, float] = {}
    texts: dict[str, str] = {}
    for row in rows:
        measure = next((row[name] for name in MEASURES if row[name] is not None), None)
        for word in (row["name"], row["raw"] or row["name"]):
            if measure is not None:
                values[word] = measure
            if row["text"] is not None:
                texts[word] = row["text"]
    told = ("seconds", "bytes", "count", "line", "step", "rank", "host", "segment", "timers")
    names = [row["name"] for row in rows]
    return Record(**{key: first[key] for key in told}, names=names, values=values, texts=texts)


def summary(records: Sequence[Record]) -> str:
    """The first and the last of some records in a few words."""
    return " … ".join(_short(record) for record in [*records[:1], *records[1:][-1:]])


def _short(record: Record) -> str:
    told = [f"step={record.step}"] if record.step is not None else []
    told += [f"{n}={record.values[n]:.6g}" for n in record.names if n in record.values][:5]
    texts = [record.texts[name] for name in record.names if name in record.texts]
    return " ".join([*told, *(plain(text)[:60] for text in texts[:1])])
