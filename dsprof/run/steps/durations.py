"""How long whole steps took, and what timers leave of them: read off the table of steps."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from dsprof.events import CLASSES, Class
from dsprof.run.steps.classes import TOLERATED
from dsprof.run.steps.pauses import behind_pauses
from dsprof.run.table import among, numbers, of_part, where
from dsprof.units import windows

#: Steps whose whole duration must be stated before it is preferred to timers.
ENOUGH: Final = 2


def all_seconds(steps: pd.DataFrame) -> pd.Series[float]:
    """The duration of each whole step: as stated, or else `seconds`.

    Unknown if it is stated for enough other steps and those show that timers omit something.
    """
    seconds, whole = numbers(steps["seconds"]), numbers(steps["whole_seconds"])
    told = ~np.isnan(whole)
    sums = [of_part(steps, np.where(told, one, np.nan)) for one in (whole, seconds)]
    short = (of_part(steps, told) >= ENOUGH) & (sums[0] > TOLERATED * sums[1])
    known = np.where(told | ~short, seconds, np.nan)
    return pd.Series(np.where(told & (whole > known), whole, known), steps.index)


def whole_steps(steps: pd.DataFrame) -> pd.DataFrame:
    """The steps whose whole duration the source states, with `seconds` replaced by it.

    Timers omit untimed work, such as loading data. If a source prints timers for every step and a
    rate for some, `seconds` in `Run.steps` is the sum of the timers; here it is the whole step, and
    what the timers leave of it is `other`. If the clock shows more time than both, that is
    included, too (see `dsprof.run.steps.between`).
    """
    rows = where(steps, steps["whole_seconds"].notna())
    if (rows["whole_seconds"] == rows["seconds"]).all():
        return rows.assign(seconds_from=rows["whole_from"])
    whole, seconds = numbers(rows["whole_seconds"]), numbers(rows["seconds"])
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = np.minimum(whole / seconds, 1.0)  # as `settle` does
    parts = {name: numbers(rows[name]) * scale for name in (*CLASSES, "mixed")}
    parts[Class.OTHER] += np.maximum(whole - seconds, 0.0)
    return rows.assign(seconds=rows["whole_seconds"], seconds_from=rows["whole_from"], **parts)


def clocked(steps: pd.DataFrame) -> pd.DataFrame:
    """`steps` as a chart shows them: where the clock tells the whole duration of most steps of an
    engine, these with it, see `whole_steps`. What lies between steps sticks out nowhere else.
    """
    told = among(steps["whole_from"], ["clock"]) & steps["whole_seconds"].notna()
    told &= 2 * of_part(steps, told) > of_part(steps, steps["seconds"].notna())
    if not told.any():
        return steps
    whole = whole_steps(where(steps, told)).reindex(steps.index)
    names = ["seconds", *CLASSES, "mixed"]
    way = steps["seconds_from"].astype("str").mask(told, "clock").astype("category")
    return steps.assign(seconds_from=way, **{n: steps[n].mask(told, whole[n]) for n in names})


def shares_of(steps: pd.DataFrame) -> pd.DataFrame:
    """Share of the whole step by class; what timers leave of it is `other`."""
    whole = numbers(all_seconds(steps))
    beyond = np.maximum(whole - numbers(steps["seconds"]), 0.0)
    seconds = {name: numbers(steps[name]) for name in CLASSES}
    told = ~np.all([np.isnan(one) for one in seconds.values()], axis=0)
    other = seconds[Class.OTHER]
    more = np.where(np.isnan(other), 0.0, other) + beyond
    seconds[Class.OTHER] = np.where(told, np.where(beyond > 0, more, other), np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = {name: one / whole for name, one in seconds.items()}
    return pd.DataFrame(shares, steps.index)


def stated(steps: pd.DataFrame) -> pd.Series[bool]:
    """Steps whose duration is known from something other than timers."""
    return steps["seconds"].notna() & ~among(steps["seconds_from"], ["timers"])


def overrun(steps: pd.DataFrame, timed: pd.Series[float]) -> pd.DataFrame:
    """Steps whose timers sum to more than `TOLERATED` times the step."""
    return where(steps, (timed > TOLERATED * steps["seconds"]) & stated(steps))


def pauses(steps: pd.DataFrame) -> pd.DataFrame:
    """Steps after a pause that is in no step's seconds, with its duration in `lasted`."""
    return behind_pauses(steps, all_seconds(steps))


def averages(steps: pd.DataFrame) -> pd.Series[float]:
    """Of how many steps the seconds of each row are the mean."""
    ways = steps["seconds_from"].isin(["logged", "bar", "clock"])
    ways |= steps["seconds_from"].eq("timers") & steps["whole_from"].isna()
    return steps["covers"].where(ways, 1.0)


def window(steps: pd.DataFrame) -> int | None:
    """Of how many steps each row is the mean: 1 if of single ones, None if they differ."""
    many = averages(steps).unique()
    return int(many[0]) if len(many) == 1 else None if len(many) else 1


def called(steps: pd.DataFrame, count: int = 2) -> str:
    """`steps`, or `windows of 10 steps`, of which one step alone may stick out: so many of them."""
    return windows(window(steps), count) or f"step{'s' * (count != 1)}"
