"""Steps whose whole duration a rate tells, where their timers show that they are unlike the rest.

DeepSpeed prints a rate every `steps_per_print` steps, of that step alone, and its timers at each
step. What a job does at the same steps, such as collecting garbage or a log line for which all
ranks meet, would then be in every step; what it does at others, in none.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from dsprof.events import Kind
from dsprof.run.repairs import Repair, met
from dsprof.run.steps.classes import TOLERATED
from dsprof.run.table import STEP, among, keys, of_kind, plain, positions, runs, where
from dsprof.units import format_count, format_seconds

#: The repair or doubt that the average step is not of the steps with a rate alone, or should not.
SELDOM: Final = "seldom-rates"

#: Of the mean of all timers, by which those of the steps with a rate may differ from it.
ALIKE: Final = 0.03

#: Of a mean rate, by which that of all steps, warm-up among them, may differ from it.
UNLIKE: Final = 0.1

#: Steps with a rate, of fewer of which it is not said what they have beyond their timers.
ENOUGH: Final = 2

_PART: Final = ["segment", "engine"]
_RATES: Final = ("samples_per_second", "tokens_per_second")


def odd_ones(steps: pd.DataFrame, rated: pd.Series[bool]) -> pd.Series[bool]:
    """Those of the `rated` steps that are known by timers and are not as all steps are.

    A first step, which warms up, says nothing of either.
    """
    if not rated.any():
        return rated
    timers = _timers(steps).where(_behind_the_first(steps))
    timed = pd.DataFrame({"few": timers.where(rated), "all": timers})
    mean = timed.groupby(keys(steps, *_PART)).transform("mean")
    differ = (mean["few"] - mean["all"]).abs() > ALIKE * mean["all"]
    return rated & timers.notna() & differ


def of_all_steps(table: pd.DataFrame) -> None:
    """Make `whole_seconds` and the rates stand for all steps, where those with a rate are odd.

    What these take beyond their own timers is in the mean that of the others, which are "rated"
    then. Where it is hardly any, the timers are the step and nothing more is told.
    """
    table["smoothed"] = False
    odd = odd_ones(table, pd.Series(among(table["whole_from"], ["throughput"]), table.index))
    if not odd.any():
        return
    parts = keys(table, *_PART)
    whole, timers = table["whole_seconds"], _timers(table)
    few = pd.DataFrame({"timers": timers, "whole": whole}).where(odd).groupby(parts)
    mean = few.transform("mean")
    mine = mean["timers"] <= TOLERATED * mean["whole"]  # else one of the two is wrong
    beyond = (mean["whole"] - mean["timers"]).where(mean["whole"] > TOLERATED * mean["timers"])
    mine &= beyond.isna() | (few["whole"].transform("count") >= ENOUGH)
    each = whole.where(odd, timers + beyond).where(beyond.notna())
    for name in _RATES:
        if table[name].isna().all():
            continue
        done = (table[name] * whole).where(odd).groupby(parts).transform("median")
        reckoned = done / each.fillna(timers)
        table[name] = table[name].fillna(reckoned.where(mine))
    table["whole_seconds"] = whole.mask(mine, each)
    way = table["whole_from"].astype("str").mask(mine, None).mask(mine & each.notna(), "rated")
    table["whole_from"] = way.astype("category")
    table["smoothed"] = mine & each.notna()


def seldom_rates(events: pd.DataFrame, steps: pd.DataFrame) -> Repair | None:
    """That the average step is of more steps than those with a rate, and what these cost."""
    rates = of_kind(events, Kind.METRIC, "samples_per_second")
    at = positions(steps, where(rates, rates["value"].notna()), *STEP)
    odd = odd_ones(steps, pd.Series(np.isin(np.arange(len(steps)), at), steps.index))
    if not odd.any():
        return None
    part = keys(steps, *_PART)
    same = part == part[odd][0]
    whole = steps["whole_seconds"].notna()[same]
    if ENOUGH <= whole.sum() < len(whole) / 2:  # these contradict their timers, and are the mean
        return None
    timers = _timers(steps).where(same & _behind_the_first(steps))
    those, others = timers[odd].mean(), timers[~odd].mean()
    text = (
        f"only some steps have a rate; their timers sum to {format_seconds(those)}, those of the "
        f"others to {format_seconds(others)} (means): the average step is over all that are timed"
    )
    return met(SELDOM, "repair", text, steps[odd])


def rates_of_few(events: pd.DataFrame, steps: pd.DataFrame) -> Repair | None:
    """Rates of every tenth step, say, that are known to be unlike all where no timers tell more."""
    part = where(steps, among(steps["seconds_from"], ["throughput"]))
    if len(part) < 2 or part["step"].diff().median() <= 1:
        return None
    part = part[(part[_PART] == part[_PART].iloc[-1]).all(axis=1)]
    rows = part.iloc[1:]
    clocked = where(rows, among(rows["whole_from"], ["clock"]))
    if len(clocked):
        alone, whole = clocked["seconds"].mean(), clocked["whole_seconds"].mean()
        text = (
            f"rates are of single steps, which take {format_seconds(alone)} in the mean; by the "
            f"clock all between them take {format_seconds(whole)}, which is the average step"
        )
        return met(SELDOM, "repair", text, clocked) if whole < alone else None
    means = of_kind(events, Kind.METRIC, "samples_per_second_mean")
    mine = (means[_PART] == part[_PART].iloc[-1]).all(axis=1)
    so_far = means["value"][mine].dropna().astype(float)
    if so_far.empty:
        return None
    taken = 1 / part["samples_per_second"]  # by a sample; the mean step may be without the first
    ratios = [so_far.iloc[-1] * taken[begin:].mean() for begin in (0, 1)]
    slower, quicker = min(ratios) > 1 + UNLIKE, max(ratios) < 1 - UNLIKE
    if not slower and not quicker:
        return None
    unlike = "slower" if slower else "quicker"
    text = (
        f"the average step is over the few that print a rate, which are {unlike} than the others: "
        f"since the start the source counts {format_count(so_far.iloc[-1])} samples/s"
    )
    return met(SELDOM, "doubt", text, rows)


def _behind_the_first(steps: pd.DataFrame) -> npt.NDArray[np.bool_]:
    """Which of them are not the first of their launch and engine; steps are in order."""
    behind = np.ones(len(steps), bool)
    behind[runs(*(plain(steps[name]) for name in _PART))] = False
    return behind


def _timers(steps: pd.DataFrame) -> pd.Series[float]:
    return steps["seconds"].where(among(steps["seconds_from"], ["timers"]))
