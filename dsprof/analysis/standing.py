"""The code that a process stood in while neither its phase nor its collective changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from dsprof.recording.frames import Frame, frames_of, line_of, told_of
from dsprof.recording.layout import STANDING
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


def standing(told: pd.DataFrame) -> dict[str, Standing]:
    """What processes were seen in last, by their recordings. Those that went on since are among
    them. `told`: `Run.told`.
    """
    rows = of_kind(told, "metric", STANDING)
    rows = where(rows, rows["text"].notna() & (rows["seconds"] > 0) & rows["at"].notna())
    last = rows.drop_duplicates("source", keep="last")
    found = (Standing(frames_of(row["text"]), row) for _, row in last.iterrows())
    return {str(one.row["source"]): one for one in found if one.frames}
