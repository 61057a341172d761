"""Time between two steps that is of neither: a job that was suspended, or waited, for long."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from dsprof.run.table import among, keys, numbers, of_part, stamps, take_turns, where

#: Seconds beyond what steps take that are no step: DeepSpeed's time-out of a collective, and many
#: times what is usual.
PAUSE: Final = 1800.0
RARE: Final = 10.0

_PART: Final = ("segment", "engine")


def paces(table: pd.DataFrame) -> pd.Series[float]:
    """Seconds of one step by the clock, from the row before that has a time stamp, too."""
    return _passed(table, "at") / stamped_steps(table)


def stamped_steps(table: pd.DataFrame) -> pd.Series[float]:
    """How many steps passed from one row with a time stamp to the next, missing for others."""
    return _passed(table, "step")


def _passed(table: pd.DataFrame, name: str) -> pd.Series[float]:
    """By how much a column rises, from the row before of the same engine that has a time stamp."""
    passed = np.full(len(table), np.nan)
    if len(stamped := np.flatnonzero(table["at"].notna())):
        values = stamps(table["at"]) if name == "at" else numbers(table[name])
        unit = np.timedelta64(1, "s") if name == "at" else 1.0
        rise, part = np.diff(values[stamped]) / unit, keys(table, *_PART)[stamped]
        risen = (part[1:] == part[:-1]) & (rise > 0)
        passed[stamped[1:][risen]] = rise[risen]
    return pd.Series(passed, table.index)


def lasted(
    table: pd.DataFrame, by_clock: pd.Series[float], told: pd.Series[float] | None = None
) -> pd.Series[float]:
    """Seconds of the pause before each step, missing where none is: longer than a collective may
    wait, and far beyond what such steps take by this run's usual pace, or as they are `told`."""
    count = stamped_steps(table)
    if not (by_clock * count > PAUSE).any():  # all that passed, these steps among it
        return pd.Series(np.nan, table.index)
    usual = by_clock.groupby(keys(table, *_PART)).transform("median")
    each = usual if told is None else usual.where(~(told > usual), told)
    return lasting(by_clock, each, count)


def lasting(
    seconds: pd.Series[float], usual: pd.Series[float], count: pd.Series[float]
) -> pd.Series[float]:
    """Seconds of the pause among so many steps of which one took `seconds` in the mean."""
    longer = (seconds - usual) * count
    return longer.where((longer > PAUSE) & (seconds > RARE * usual))


def behind_pauses(steps: pd.DataFrame, told: pd.Series[float]) -> pd.DataFrame:
    """Steps behind a pause that no step's seconds hold, with how long it `lasted`.

    Between two steps of one of several engines may lie the work of another.

    Args:
        steps: `Run.steps`.
        told: how long all of each step took.
    """
    stamped = steps["at"].notna()
    if not stamped.any():
        return steps[:0].assign(lasted=np.nan)
    steps = where(steps, stamped)
    found = lasted(steps, paces(steps), told[steps.index].astype("float64"))
    if found.isna().all():
        return steps[:0].assign(lasted=np.nan)
    clocked = of_part(steps, among(steps["seconds_from"], ["clock"])) > 0
    return steps.assign(lasted=found)[found.notna() & (~take_turns(steps) | clocked)]
