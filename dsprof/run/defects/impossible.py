"""Numbers that measure nothing: no clock reads them, no step was taken, no line could mean them."""

from __future__ import annotations

from typing import Final

import pandas as pd

from dsprof.events import Kind
from dsprof.run.defects.step_timers import are_timer_lines, without_seconds
from dsprof.run.repairs import Outcome, Source, met
from dsprof.run.table import LONGEST, among

RATES: Final = (
    "samples_per_second", "samples_per_second_mean", "tokens_per_second",
    "tokens_per_second_gpu", "tflops", "mfu",
)  # fmt: skip
FASTEST: Final = 1e18  #: of anything, per second


def impossible_seconds(events: pd.DataFrame, _: Source) -> Outcome:
    """Durations that no clock reads: nan, infinite, below zero, or of years.

    The other timers of such a line would pass for a whole step: they go too.
    """
    odd = ~events["seconds"].between(0.0, LONGEST)
    timers = are_timer_lines(events)
    spoilt = odd & (events["seconds"].notna() | timers)
    if not spoilt.any():
        return events, None
    lines = events.loc[odd & timers, "record"]
    wrong = events[(odd & events["seconds"].notna()) | (timers & events["record"].isin(lines))]
    text = (
        "durations that are nan, negative, infinite or years long measure nothing; they and the "
        "timers beside them were dropped"
    )
    return without_seconds(events, wrong), met("impossible-seconds", "repair", text, wrong)


def initial_step_zero(events: pd.DataFrame, source: Source) -> Outcome:
    """Every version prints `step=0` once when the engine is made: no step was taken. Loops
    that count their steps from 0 take one."""
    rows = events["step"] == 0
    if not rows.any():
        return events, None
    taken = rows & among(events["pattern"], source.from_zero)
    rows &= ~events["segment"].isin(events.loc[taken, "segment"])
    if not rows.any():
        return events, None
    text = "the line with step=0 is printed when the engine is created and is no training step"
    fixed = events.assign(step=events["step"].mask(rows))
    return fixed, met("initial-step-zero", "repair", text, events[rows])


def impossible_rates(events: pd.DataFrame, _: Source) -> Outcome:
    """Rates, and times of whole steps, that are zero, negative or infinite."""
    metrics = among(events["kind"], [Kind.METRIC])
    rates = metrics & among(events["name"], RATES) & events["value"].notna()
    odd = rates & ~events["value"].between(0.0, FASTEST, inclusive="right")
    still = metrics & among(events["name"], ["step_seconds"]) & (events["seconds"] == 0)
    if not (odd | still).any():
        return events, None
    text = "rates and step times that are zero, negative or infinite measure nothing: dropped"
    fixed = events.assign(value=events["value"].mask(odd), seconds=events["seconds"].mask(still))
    return fixed, met("impossible-rates", "repair", text, events[odd | still])
