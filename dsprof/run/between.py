"""What the clock says of a step beyond its timers: time between the steps, in no timer.

Timers run from forward to step. Loading data, logging, evaluating, saving or a host that stalls
lie outside, and only the time stamps of the lines tell of them. Over many steps these are precise
enough even where they are of whole seconds.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from dsprof.events import Kind
from dsprof.run.table import among, keys, known_rank, positions, where

#: Stretches between two lines that must be known, and part of the clock's time beyond which
#: what the timers leave of it is told.
ENOUGH: Final = 5
SURPLUS: Final = 0.1

#: By which two time stamps may be wrong: of whole seconds, else.
COARSE: Final = 1.0
FINE: Final = 0.01

#: Seconds beyond the timers that are a pause of the job and no part of its steps: DeepSpeed's
#: time-out of a collective.
PAUSE: Final = 1800.0

#: Names of events that tell by themselves what a job did between two steps.
_TOLD: Final = r"(?i)checkpoint|^save|eval|valid"

_STEP: Final = ("segment", "engine", "step")
_PART: Final = ["segment", "engine"]


def untimed(events: pd.DataFrame, table: pd.DataFrame) -> pd.Series[float]:
    """Mean seconds per step beyond `table["known"]` by the clock; missing where it is not sure.

    Args:
        events: tidy events, repaired.
        table: steps in order, with `known`: seconds as timers or rates tell them, of some steps
            for all between them.

    One process is asked, the one that stamps most lines. The stretch that exceeds its timers most
    is left out: what happened once belongs to no average step. Engines that take turns are left
    aside: what lies between two steps of one is work of the other.
    """
    stamps = _stamps(events, table).assign(known=table["known"])
    stretches = _stretches(stamps[table["known"].notna()])
    several = table.groupby("segment")["engine"].transform("nunique") > 1
    sure = stretches[stretches["usable"] & ~several[stretches.index]]
    longest = (sure["elapsed"] - sure["timed"]).groupby([sure[name] for name in _PART]).idxmax()
    sure = sure.drop(longest)
    total = sure.groupby(_PART)[["passed", "elapsed", "timed", "slack"]].sum()
    total = total[sure.groupby(_PART).size() >= ENOUGH]
    beyond = total["elapsed"] - total["timed"]
    total = total[beyond > SURPLUS * total["elapsed"] + total["slack"]]
    mean = ((total["elapsed"] - total["timed"]) / total["passed"]).to_dict()
    parts = zip(table["segment"], table["engine"], strict=True)
    return pd.Series([mean.get(part, np.nan) for part in parts], table.index, dtype="float64")


def _stamps(events: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """Of each step: `at`, the last time stamp of its lines, and `told`, other doings before."""
    stamped = events["at"].notna().to_numpy() & among(events["kind"], [Kind.METRIC, Kind.PHASE])
    rows = known_rank(where(events[[*_STEP, "rank", "host", "at", "source", "line"]], stamped))
    found = table[list(_STEP)]
    if not len(rows):
        return found.assign(at=table["at"], told=0)
    process = keys(rows, "source", "host", "rank")
    rows = rows[process == np.bincount(process).argmax()]
    numbered = rows[rows["step"].notna()]
    place = positions(table, numbered, *_STEP)
    last = numbered.groupby(place)[["at", "line"]].max()
    last = last[last.index >= 0].reindex(table.index)
    apart = among(events["name"], _names(events)) & events["source"].isin(rows["source"]).to_numpy()
    lines = np.sort(events["line"].to_numpy(float, na_value=np.nan)[apart])
    return found.assign(at=last["at"], told=np.searchsorted(lines, last["line"].to_numpy(float)))


def _names(events: pd.DataFrame) -> list[str]:
    names = pd.Series(events["name"].dropna().unique(), dtype="str")
    return list(names[names.str.contains(_TOLD)])


def _stretches(steps: pd.DataFrame) -> pd.DataFrame:
    """What lies between the lines of each step and the one before it, of steps that are timed."""
    by = steps.groupby(_PART)
    passed = by["step"].diff().astype("float64")
    elapsed: pd.Series[float] = by["at"].diff().dt.total_seconds()
    timed = steps["known"] * passed
    usable = (passed > 0) & (elapsed >= 0) & (elapsed - timed < PAUSE) & (by["told"].diff() == 0)
    parts = [steps[name] for name in _PART]
    breaks = usable & ~usable.groupby(parts).shift(fill_value=False)
    whole = pd.to_datetime(steps["at"]).dropna().dt.microsecond.eq(0).all()
    return steps.assign(
        passed=passed,
        elapsed=elapsed,
        timed=timed,
        slack=breaks * (COARSE if whole else FINE),
        usable=usable,
    )
