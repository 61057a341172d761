"""What of its sources a run could not read: ends of lines, ends of files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from dsprof.events import Kind
from dsprof.logs.torn import CUT_SHORT
from dsprof.run.repairs import Repair, Source, met
from dsprof.run.table import keys, known_rank, where


def cut_short(events: pd.DataFrame, _: Source) -> tuple[pd.DataFrame, Repair | None]:
    """A timer line that lost its end leaves out timers: without them the step's would read 0."""
    timed = events["kind"] == Kind.PHASE
    rows = where(events, timed & (events["text"] == CUT_SHORT))
    if not len(rows):
        return events, None
    step = keys(known_rank(events), "segment", "engine", "step", "rank")
    told = timed & events["timers"].notna()
    lost = told & pd.Series(step, events.index).isin(step[events.index.isin(rows.index)])
    text = (
        "these timer lines lost their end (the log was cut there, or another process printed "
        "into them): the timers of their steps are incomplete and were left out"
    )
    fixed = events.assign(seconds=events["seconds"].mask(lost | events.index.isin(rows.index)))
    return fixed, met("cut-short", "repair", text, rows)


def faults(events: pd.DataFrame, facts: Mapping[str, Any]) -> Iterator[Repair]:
    """Sources that could not be read, or not to their end."""
    for source, line, why in facts.get("faults", ()):
        rows = int((events["source"] == source).sum())
        text = f"a source {why}; what it holds behind that is missing here"
        yield Repair("not-read", "doubt", text, rows, ((source, line),) if line else ())
