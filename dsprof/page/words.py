"""Numbers and small facts as sentences and cells."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from dsprof.units import format_seconds, format_share

SEVERITY = {"critical": "critical", "warning": "warning", "info": "note"}
CONFIDENCE = {
    "high": "High confidence: the source says it directly.",
    "medium": "Medium confidence: it follows from what the source says.",
    "low": "Low confidence: the source only hints at it.",
}


def known(value: Any) -> bool:
    """Whether a cell of a frame or a dict says something."""
    return not pd.isna(value)


def count_of(number: int, one: str, many: str = "") -> str:
    """`1 step`, `12,000 steps`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def seconds(value: Any) -> str:
    return format_seconds(float(value)) if known(value) else "–"


def share(value: Any) -> str:
    return format_share(float(value)) if known(value) and math.isfinite(float(value)) else "–"


def gain_words(gain: tuple[float, float] | None, step: float | None) -> str:
    """What a change would give: `0.8 to 1.2 s of 5.79 s per step (14 % to 21 %)`."""
    if gain is None:
        return ""
    low, high = gain
    span = seconds(high) if low == high else f"{seconds(low)} to {seconds(high)}"
    if not known(step) or not step:
        return f"{span} per step"
    part = share(high / step) if low == high else f"{share(low / step)} to {share(high / step)}"
    return f"{span} of {seconds(step)} per step ({part})"


def ranges(numbers: list[int], most: int = 8) -> str:
    """`0 to 3, 7, 9 to 12`; the number of the rest if there are many."""
    spans: list[list[int]] = []
    for number in sorted(set(numbers)):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    said = [f"{a:,}" if a == b else f"{a:,} to {b:,}" for a, b in spans[:most]]
    return ", ".join(said) + (f" and {len(spans) - most:,} more" if len(spans) > most else "")
