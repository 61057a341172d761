"""What a generated log contains: counted from the values before printing, never by parsing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[Any]

GIB = 1024**3
#: What one printed unit is in seconds or bytes, and which of the two it measures.
UNITS = {
    "": ("value", 1.0),
    "ms": ("seconds", 1e-3),
    "s": ("seconds", 1.0),
    "B": ("bytes", 1.0),
    "GB": ("bytes", float(GIB)),
}
_CONVERSION = re.compile(r"%(?:%|-?\d*(?:\.(\d+))?([dfrEes]))")


@dataclass
class Key:
    """The values of one key of one kind of record."""

    unit: str
    count: int = 0
    total: float = 0.0
    step_total: float = 0.0  # sum of value x step: right only if every value sits at its step

    def as_json(self) -> dict[str, Any]:
        measure, scale = UNITS[self.unit]
        return {
            "unit": self.unit,
            "measure": measure,
            "count": self.count,
            "sum": self.total,
            "measure_sum": self.total * scale,
            "measure_times_step_sum": self.step_total * scale,
        }


@dataclass
class Kind:
    """All records of one kind."""

    records: int = 0
    steps: int = 0  # distinct (launch, step)
    first_step: int | None = None
    last_step: int | None = None
    keys: dict[str, Key] = field(default_factory=dict)

    def add(self, steps: Numbers, units: Mapping[str, str], columns: Mapping[str, Numbers]) -> None:
        self.records += len(steps)
        self.steps += len(np.unique(steps))
        self.first_step = int(steps[0]) if self.first_step is None else self.first_step
        self.last_step = int(steps[-1])
        for name, unit in units.items():
            key = self.keys.setdefault(name, Key(unit))
            values = columns[name].astype(float)
            key.count += len(values)
            key.total += float(values.sum())
            key.step_total += float(values @ steps)

    def as_json(self) -> dict[str, Any]:
        return {
            "records": self.records,
            "steps": self.steps,
            "first_step": self.first_step,
            "last_step": self.last_step,
            "keys": {name: key.as_json() for name, key in self.keys.items()},
        }


@dataclass
class Truth:
    """Everything that a reader must find in one generated log."""

    kinds: dict[str, Kind] = field(default_factory=dict)
    lines: int = 0
    metric_lines: int = 0
    launches: list[dict[str, Any]] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        return {
            "lines": self.lines,
            "metric_lines": self.metric_lines,
            "launches": self.launches,
            "kinds": {name: kind.as_json() for name, kind in self.kinds.items()},
        }


@dataclass(frozen=True)
class Line:
    """One kind of record: its text with a %-conversion per column, and the columns' names.

    `columns` maps each name, in order of appearance, to its unit (a key of
    `UNITS`), or to None for text that is no measure (an operation's name).
    `%r` prints a float in full, `%d` a whole number, `%.2f` and `%.3E` round:
    values are rounded before they are counted, so the text equals the truth.
    """

    kind: str
    text: str
    columns: Mapping[str, str | None]

    def render(
        self, truth: Truth, steps: Numbers, *values: Any, known: Mapping[str, Numbers] | None = None
    ) -> list[str]:
        """The lines, one for each of `steps`; arrays of that length, or scalars, as values.

        `known`: the numbers behind columns that are printed as text.
        """
        if not len(steps):
            return []
        rounded = [
            _rounded(np.broadcast_to(np.asarray(column), steps.shape), digits, form)
            for column, (digits, form) in zip(values, self._conversions(), strict=True)
        ]
        units = {name: unit for name, unit in self.columns.items() if unit is not None}
        named = dict(zip(self.columns, rounded, strict=True)) | dict(known or {})
        truth.kinds.setdefault(self.kind, Kind()).add(steps, units, named)
        rows = zip(*(column.tolist() for column in rounded), strict=True)
        return [self.text % row for row in rows]

    def _conversions(self) -> Iterator[tuple[int, str]]:
        for digits, form in _CONVERSION.findall(self.text):
            if form:
                yield int(digits or 0), form


def _rounded(values: Numbers, digits: int, form: str) -> Numbers:
    """The numbers that the printed text will say."""
    if form in "Ee":
        exponent = np.floor(np.log10(values)) - digits
        return np.rint(values / 10.0**exponent) * 10.0**exponent
    return np.round(values, digits) if form == "f" else values
