"""The code that a process stood in while neither its phase nor its collective changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from dsprof.recording.frames import Frame, frames_of, line_of, told_of
from dsprof.recording.layout import STANDING, STANDING_EARLY
from dsprof.run.table import of_kind, where


@dataclass(frozen=True, slots=True)
class Standing:
    """Calls that were seen whenever the stack was, the innermost first.

    Attributes:
        row: the event that tells them, and for how long at least the process stood there.
    """

    frames: tuple[Frame, ...]
    row: pd.Series[Any]

    @property
    def seconds(self) -> float:
        return float(self.row["seconds"])

    @property
    def told(self) -> str:
        return told_of(self.frames)

    @property
    def line(self) -> str:
        return line_of(self.frames)


def standing(told: pd.DataFrame, source: str, since: int) -> Standing | None:
    """What a process was seen in last, if that was where it stood in the end.

    Args:
        told: `Run.told`.
        source: its recording.
        since: when it came there, in ns since 1970 by its own clock; 0 if that was before all else.
    """
    rows = of_kind(told, "metric", STANDING)
    rows = where(rows, (rows["source"] == source).fillna(value=False))
    rows = rows[rows["at"] >= pd.Timestamp(since - STANDING_EARLY)]
    if rows.empty:
        return None
    row = rows.iloc[-1]
    frames = frames_of(row["text"])
    return Standing(frames, row) if frames and row["seconds"] > 0 else None
