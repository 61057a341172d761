"""Numbers and small facts as sentences and cells."""

from __future__ import annotations

import math
from typing import Any

from dsprof.text.words import count_of, gain, known, ranges, span
from dsprof.units import format_seconds, format_share

__all__ = [
    "CONFIDENCE",
    "SEVERITY",
    "count_of",
    "gain",
    "known",
    "ranges",
    "seconds",
    "share",
    "span",
]

SEVERITY = {"critical": "critical", "warning": "warning", "info": "note"}
CONFIDENCE = {
    "high": "High confidence: the source says it directly.",
    "medium": "Medium confidence: it follows from what the source says.",
    "low": "Low confidence: the source only hints at it.",
}


def seconds(value: Any) -> str:
    return format_seconds(float(value)) if known(value) else "–"


def share(value: Any) -> str:
    return format_share(float(value)) if known(value) and math.isfinite(float(value)) else "–"
