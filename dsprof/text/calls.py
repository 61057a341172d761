"""Communication calls by operation, of a log that times no step to set them against."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pandas as pd
from rich.console import RenderableType

from dsprof.analysis.collectives import of_the_job, per_operation
from dsprof.text.layout import QUIET, columns, say, section
from dsprof.text.words import count_of
from dsprof.units import format_bandwidth, format_bytes, format_seconds

if TYPE_CHECKING:
    from dsprof.run import Run

_MOST: Final = 8
_TABLE: Final = "since the start, by the communication logger's summary"
_SINGLE: Final = "single calls that are logged"
_DOUBTED: Final = "How long they took cannot be trusted: see below."


def call_section(run: Run) -> list[RenderableType]:
    """How often each operation was called, with how much data, and how long that took."""
    calls, summed = _told(of_the_job(run.comm))
    if calls.empty:
        return []
    doubted = set(calls["op"][calls["suspect"].notna()])
    rows = columns(24)
    for op, row in per_operation(calls).head(_MOST).iterrows():
        said = f"{count_of(int(row['count']), 'call')}, {format_bytes(row['bytes'])}"
        if row["seconds"] > 0 and op not in doubted:
            speed = f", {format_bandwidth(row['bytes'] / row['seconds'])}" if row["bytes"] else ""
            said += f" in {format_seconds(row['seconds'])}{speed}"
        rows.add_row(say(op, QUIET), say(said))
    note = [say(_DOUBTED, QUIET)] if doubted else []
    return section("Communication", _TABLE if summed else _SINGLE, rows, *note)


def _told(comm: pd.DataFrame) -> tuple[pd.DataFrame, bool]:
    """Summary tables, which count single calls too, else those; and which of both."""
    total = comm["total"].astype(bool)
    return (comm[total], True) if total.any() else (comm, False)
