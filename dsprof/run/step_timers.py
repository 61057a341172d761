"""Timers of whole steps that were lost or overwritten before DeepSpeed printed them.

Where the lines of a step's micro-batches are there too, they prove it, and make up the step.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from dsprof.events import Kind
from dsprof.recording.table import FLAVOUR
from dsprof.run.phases import words_of
from dsprof.run.repairs import Outcome, Source, met
from dsprof.run.table import among, keys, known_rank, where

_OF_TIMERS: Final = (
    "segment", "engine", "step", "rank", "name", "timers", "seconds", "record", "source", "line",
)  # fmt: skip
CLOCK: Final = 1e-4  #: seconds; what two timers of one interval may differ by
MOST: Final = 0.9  #: of the lines that could show a defect, before they prove it


def zero_global_timers(events: pd.DataFrame, source: Source) -> Outcome:
    """0.6.2 to 0.18.2 with a monitor read the timers before printing them: 0.00 in the line.

    The micro-batch lines stay right; with the zeros gone they make up the step.
    """
    if not (events["seconds"] == 0).any():
        return events, None
    rows = _timers_of_steps(events, source)
    zero = ~rows["micro"] & ~rows["mean"] & (rows["seconds"] == 0)
    if not zero.any():
        return events, None
    told = rows.loc[rows["micro"] & (rows["seconds"] > 0), "timer"].unique()
    wrong = rows[zero & rows["timer"].isin(told)]
    text = (
        "the step's timers read 0.00 although its micro-batches took time (a monitor read "
        "them first); they were rebuilt from the micro-batch lines"
    )
    return without_seconds(events, wrong), met("zero-global-timers", "repair", text, wrong)


def all_zero_timers(events: pd.DataFrame, source: Source) -> Outcome:
    """A timer line of nothing but zeros says nothing (Megatron's own, under DeepSpeed).

    Set-up timers may well round to zero.
    """
    if not (events["seconds"] == 0).any():
        return events, None
    rows = _timer_lines(events)
    set_up = [name for name, flavour in source.flavours.items() if flavour.sums == "once"]
    rows = rows[~rows["timers"].isin(set_up) & rows["seconds"].notna()]
    most = rows["seconds"].groupby(rows["record"]).transform("max")
    wrong = rows[most == 0]
    text = "timer lines that hold only zeros measure nothing and were dropped"
    return without_seconds(events, wrong), met("all-zero-timers", "repair", text, wrong)


def last_interval_only(events: pd.DataFrame, source: Source) -> Outcome:
    """0.4.0 to 0.5.6 overwrote timers instead of adding up.

    Where a step's micro-batches have lines too, they prove it, and make up the step.
    """
    possible = source.version.maybe("0.4.0", "0.5.6")
    wrong = _last_of_several(events, source) if possible else events.iloc[:0]
    if len(wrong):
        text = (
            "the step's timers hold its last micro-batch only (as 0.4.0 to 0.5.6 print them); "
            "they were rebuilt from the micro-batch lines"
        )
        found = met("last-interval-only", "repair", text, wrong)
        return without_seconds(events, wrong), found
    if not source.version.surely("0.4.0", "0.5.6"):
        return events, None
    whole = source.config.get("gradient_accumulation_steps") == 1
    sums = {
        name
        for name, flavour in source.flavours.items()
        if flavour.sums == "window" or (flavour.sums == "step" and not whole)
    }
    rows = events[(events["kind"] == Kind.PHASE) & events["timers"].isin(sums)]
    text = (
        "this version keeps only the last interval of a timer: its sums over micro-batches "
        "and steps are too small"
    )
    return events, met("last-interval-only", "doubt", text, rows)


def _last_of_several(events: pd.DataFrame, source: Source) -> pd.DataFrame:
    """Timers of whole steps that equal the last of several micro-batches and not their sum."""
    micro = {name for name, flavour in source.flavours.items() if flavour.sums == "micro"}
    if not micro & set(events["timers"].dropna().unique()):
        return events.iloc[:0]
    rows = _timers_of_steps(events, source)
    rows = rows[rows["seconds"].notna()]
    batches = rows[rows["micro"]].groupby("timer")["seconds"].agg(["sum", "last", "size"])
    steps = rows[~rows["micro"]].join(batches[batches["size"] > 1], on="timer", how="inner")
    telling = steps[steps["sum"] > 1.2 * steps["last"] + CLOCK]
    last = (telling["seconds"] - telling["last"]).abs() <= 0.02 * telling["last"] + CLOCK
    return steps.loc[:, rows.columns] if len(telling) and last.mean() > MOST else steps.iloc[:0]


def _timers_of_steps(events: pd.DataFrame, source: Source) -> pd.DataFrame:
    """Timer rows that belong to a step, with `micro`: of one micro-batch, `mean`: of a loop around
    the engine, and `timer`: equal for rows that tell of the same interval of a step and rank."""
    rows = _timer_lines(events)
    rows = rows[rows["step"].notna()]
    words, which = words_of(rows, source.flavours)
    names, _ = pd.factorize(np.array([word.name for word in words], dtype=object))
    span = keys(known_rank(rows), "segment", "engine", "step", "rank")
    sums = np.array([word.sums for word in words], dtype=object)[which]
    return rows.assign(
        micro=sums == "micro",
        mean=sums == "mean",
        timer=span * max(len(words), 1) + names[which],
    )


def _timer_lines(events: pd.DataFrame) -> pd.DataFrame:
    """Timers that a log printed; those of a recording have none of its defects."""
    return where(events[list(_OF_TIMERS)], are_timer_lines(events))


def are_timer_lines(events: pd.DataFrame) -> pd.Series[bool]:
    printed = events["timers"].notna() & ~among(events["timers"], [FLAVOUR])
    return printed & among(events["kind"], [Kind.PHASE])


def without_seconds(events: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    return (
        events.assign(seconds=events["seconds"].mask(events.index.isin(rows.index)))
        if len(rows)
        else events
    )
