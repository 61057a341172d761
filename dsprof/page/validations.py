"""Validations between steps: the step that follows one often holds its time as well."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from dsprof.events import Kind
from dsprof.run.table import numbers, of_kind
from dsprof.units import listed

SLOW: Final = 1.5  #: times the median step
_NAMED: Final = 6  #: steps that are told by their numbers


def with_validations(steps: pd.DataFrame, events: pd.DataFrame) -> pd.DataFrame:
    """`steps` (of one engine, in order) with `validated`: a validation's result stands before it.

    Between the line of the step before, of the same launch and source, and its own.
    """
    names = [name for name in events["name"].cat.categories if name.startswith("eval_")]
    rows = of_kind(events, Kind.METRIC, *names) if names else events.iloc[:0]
    told = rows[["source", "segment", "line"]].dropna().drop_duplicates()
    found = np.zeros(len(steps), dtype=bool)
    for (source, segment), part in told.groupby(["source", "segment"], observed=True):
        mine = (steps["source"] == source) & (steps["segment"] == segment) & steps["line"].notna()
        at = np.flatnonzero(mine.to_numpy(dtype=bool))
        after = np.searchsorted(numbers(steps["line"])[at], numbers(part["line"]))
        found[at[after[(after > 0) & (after < len(at))]]] = True
    return steps.assign(validated=found)


def slowed(steps: pd.DataFrame, noun: str) -> str:
    """Which slow steps follow a validation, in words; empty where none does."""
    seconds = numbers(steps["seconds"])
    known = seconds[np.isfinite(seconds)]
    if not len(known) or "validated" not in steps:
        return ""
    slow = steps["validated"].to_numpy(dtype=bool) & (seconds > SLOW * float(np.median(known)))
    named = [f"{n:,}" for n in steps["step"][slow]]
    if not named:
        return ""
    many = len(named) > 1
    nouns, follow, whose = (f"{noun}s", "follow", "their") if many else (noun, "follows", "its")
    if len(named) > _NAMED:
        which = f"{len(named):,} {nouns} slower than the others {follow}"
    else:
        which = f"{nouns.capitalize()} {listed(named)}, slower than the others, {follow}"
    return f" {which} a validation, which seems to be in {whose} time."
