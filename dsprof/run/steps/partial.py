"""Timers that are not the whole of a step: their sum says nothing of how long it took."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from dsprof.events import Class
from dsprof.run.repairs import Repair, met
from dsprof.run.steps.calls import UNDIVIDED
from dsprof.run.table import STEP, among, positions, where

#: What engines time of each step, under the names that they have for it.
PARTS: Final = (
    frozenset({"forward", "forward-compute", "forward-backward"}),
    frozenset({"backward", "backward-compute", "forward-backward"}),
    frozenset({"step", "optimizer"}),
)


def partial_steps(table: pd.DataFrame, phases: pd.DataFrame) -> pd.Series[bool]:
    """Steps of which an engine's timers lack forward, backward or update, or all computation.

    Args:
        table: steps, sorted by segment, engine and step.
        phases: their phases (`dsprof.run.steps.phases`).
    """
    place = positions(table, phases, *STEP)
    timed = place >= 0

    def shows(rows: np.ndarray) -> np.ndarray:
        return np.bincount(place[rows & timed], minlength=len(table)) > 0

    parts = [shows(among(phases["name"], names)) for names in PARTS]
    computes = shows(among(phases["class"], [Class.COMPUTE, Class.OTHER, UNDIVIDED]))
    some, all_ = np.logical_or.reduce(parts), np.logical_and.reduce(parts)
    timed_steps = shows(~among(phases["class"], [Class.CHECKPOINT]))
    return pd.Series(timed_steps & (~computes | (some & ~all_)), table.index, dtype="bool")


def partial_timers(steps: pd.DataFrame, phases: pd.DataFrame) -> Repair | None:
    """The doubt that some of `steps` cannot be timed by their timers, nor are they otherwise."""
    unknown = ~among(steps["seconds_from"], ["logged", "throughput", "bar"])
    partial = where(steps, partial_steps(steps, phases) & unknown)
    rows = where(phases, positions(partial, phases, *STEP) >= 0)
    text = (
        "the timers of these steps are not all of them: no line has their forward, their backward "
        "or their update, and the sum of the others is not how long a step takes"
    )
    return met("partial-timers", "doubt", text, rows)
