"""Numbers and small facts as sentences and cells."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd

from dsprof.charts.figure import TIMES
from dsprof.run.steps.durations import window
from dsprof.text.words import (
    FRAMEWORK,
    PROBLEM,
    REPAIR,
    calls_seen,
    count_of,
    deepspeed,
    gpu_count,
    known,
    launch_of,
    of_ranks,
    of_records,
    on_hosts,
    one_of_jobs,
    partly_recorded,
    span,
    step_of,
    what_if,
)
from dsprof.units import digits, format_seconds, format_share, ranges, windows

__all__ = [
    "CONFIDENCE",
    "CONTENTS",
    "FRAMEWORK",
    "PROBLEM",
    "REPAIR",
    "byte_column",
    "calls_seen",
    "column",
    "count_of",
    "deepspeed",
    "gpu_count",
    "known",
    "launch_of",
    "of_ranks",
    "of_records",
    "on_hosts",
    "one_of_jobs",
    "partly_recorded",
    "ranges",
    "rate_column",
    "rows_of",
    "share",
    "span",
    "step_of",
    "what_if",
]

#: Sections by a shorter name, where all of them stand below each other.
CONTENTS = {
    "communication": "Communication",
    "doubts": "Repairs and doubts",
}
CONFIDENCE = {
    "high": "High confidence: the source says it directly.",
    "medium": "Medium confidence: it follows from what the source says.",
    "low": "Low confidence: the source only hints at it.",
}


_BYTES = ((2.0**40, "TiB"), (2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B"))
_RATES = ((1e12, "TB/s"), (1e9, "GB/s"), (1e6, "MB/s"), (1e3, "KB/s"), (1.0, "B/s"))
_WHOLE = 0.9995  #: what rounds to one whole unit
_LEAST = 0.00005  #: of a unit: less rounds to 0.0000
_MOST, _HUNDREDTHS = 4, 2  #: digits behind the point


def rows_of(steps: pd.DataFrame, noun: str) -> str:
    """`3 steps`, or `3 windows of 10 steps` where each row is the mean of several."""
    of = windows(window(steps[steps["seconds"].notna()]), len(steps))
    return f"{len(steps):,} {of}" if of else count_of(len(steps), noun)


def column(values: Iterable[Any], units: Sequence[tuple[float, str]] = TIMES) -> list[str]:
    """Numbers of one column in one unit, so that they compare at a glance; – for unknown ones.

    One of which no digit would be left is told in its own unit. Where none has more than two
    digits behind the point (as DeepSpeed prints milliseconds), none gets more.
    """
    told = [float(v) if known(v) and math.isfinite(float(v)) else None for v in values]
    largest = max((abs(v) for v in told if v is not None), default=0.0)
    size, unit = _unit_of(largest, units)
    if largest >= units[0][0] * 7200 and unit == "s":
        return ["–" if v is None else format_seconds(v) for v in told]  # hours, not seconds
    most = _HUNDREDTHS if all(_is_in_hundredths(v / size) for v in told if v is not None) else _MOST
    return ["–" if v is None else _in_unit(v, size, unit, units, most) for v in told]


def byte_column(values: Iterable[Any]) -> list[str]:
    """The same for bytes."""
    return column(values, _BYTES)


def rate_column(values: Iterable[Any]) -> list[str]:
    """The same for bytes per second."""
    return column(values, _RATES)


def _unit_of(value: float, units: Sequence[tuple[float, str]]) -> tuple[float, str]:
    return next((u for u in units if abs(value) >= _WHOLE * u[0]), units[-1])


def _is_in_hundredths(value: float) -> bool:
    """Whether two digits behind the point say all of a number; three significant ones say it of
    those from 1 on."""
    return abs(value) >= 1 or abs(100 * value - round(100 * value)) < 1e-6


def _in_unit(
    value: float, size: float, unit: str, units: Sequence[tuple[float, str]], most: int
) -> str:
    if 0 < abs(value) < _LEAST * size:
        size, unit = _unit_of(value, units)
    if unit == "B" and value.is_integer():
        return f"{value:,.0f} B"  # as `units.format_bytes` says it
    number = value / size
    if 0 < abs(number) < _LEAST:
        return f"under 0.0001 {unit}"
    return f"{digits(number, 2 if unit == 'µs' else 3, most)} {unit}"


def share(value: Any) -> str:
    return format_share(float(value)) if known(value) and math.isfinite(float(value)) else "–"
