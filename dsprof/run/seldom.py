"""Whole steps that a source tells seldom, where the timers of all show that these are not the rest.

A rate that every tenth step prints is of that step alone. What comes every tenth step, too, such
as a save or a synchronised log line, would then be of every step; what comes at others, of none.
"""

from __future__ import annotations

from typing import Final

import pandas as pd

#: Of a mean step's timers, by which those of the steps told whole may differ from it.
ALIKE: Final = 0.1

#: Whole steps, of fewer of which nothing is said anyway.
ENOUGH: Final = 3

#: Of what the timers of a step sum to, which a whole step that is told may have beyond.
BEYOND: Final = 0.05

_PART: Final = ["segment", "engine"]


def unlike_the_rest(table: pd.DataFrame) -> pd.Series[bool]:
    """Rows of launches whose steps are known by their timers, where the few whole ones differ.

    Args:
        table: steps in order, with `seconds`, `seconds_from` and `whole_seconds`.

    A first step, which warms up, says nothing about either.
    """
    parts = [table[name] for name in _PART]
    every = _by_timers(table).where(table.duplicated(_PART))
    few = every.where(table["whole_seconds"].notna()).groupby(parts)
    mean = every.groupby(parts).transform("mean")
    differ = (few.transform("mean") - mean).abs() > ALIKE * mean
    return differ & (few.transform("count") >= ENOUGH)


def told_seldom(table: pd.DataFrame, unlike: pd.Series[bool]) -> None:
    """Make `whole_seconds` of rows that are `unlike` the rest, and `smoothed`, tell of all steps.

    Each takes its timers and the mean of what whole steps have beyond; nothing is told where that
    is hardly any. A rate is held against the timers of its own step, whatever else is stated
    against those of all steps since the one before.
    """
    parts = [table[name] for name in _PART]
    timers, whole = _by_timers(table), table["whole_seconds"]
    own = table["whole_from"].eq("throughput").fillna(False)
    before = whole.notna().groupby(parts).shift(fill_value=False).groupby(parts).cumsum()
    held = timers.where(own, timers.groupby([*parts, before]).transform("mean"))
    known = whole.notna() & held.notna() & table.duplicated(_PART)
    both = pd.DataFrame({"whole": whole, "held": held}).where(known)
    mean = both.groupby(parts).transform("mean")
    beyond = (mean["whole"] - mean["held"]).where(mean["whole"] > (1 + BEYOND) * mean["held"])
    each = whole.where(own & beyond.notna(), timers + beyond)
    way = table["whole_from"].astype("str").groupby(parts).transform("first").where(each.notna())
    table["whole_seconds"] = whole.mask(unlike, each)
    table["whole_from"] = table["whole_from"].astype("str").mask(unlike, way).astype("category")
    table["smoothed"] = unlike & each.notna()
    for rate in ("samples_per_second", "tokens_per_second"):  # a mean of few would be theirs alone
        done = (table[rate] * whole.where(own)).groupby(parts).transform("first")
        table[rate] = table[rate].fillna((done / each.fillna(timers)).where(unlike))


def _by_timers(table: pd.DataFrame) -> pd.Series[float]:
    return table["seconds"].where(table["seconds_from"].eq("timers").fillna(False))
