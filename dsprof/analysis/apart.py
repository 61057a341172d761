"""How far apart the steps of a run are, what happened between them, and how long that took."""

from __future__ import annotations

import re
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from dsprof.run.steps.bars import evaluated
from dsprof.run.steps.durations import whole_steps
from dsprof.run.table import STEP, among, numbers, take_turns, where, within

#: Names of events that show an evaluation, which may also happen between two steps.
_EVALUATES: Final = re.compile("(?i)eval|valid")
#: At least so many distances between steps must hold nothing else to tell what steps take.
_ENOUGH: Final = 5


def distances(steps: pd.DataFrame) -> pd.DataFrame:
    """Steps with the distance from the previous row: `passed` steps, `elapsed` seconds.

    Progress bars tell both, without the evaluations in between (see `dsprof.run.steps.bars`); so
    do lines that log the mean time of the steps since the one before. Else it is the time between
    two stamps. Engines that take turns are left out.
    """
    steps = where(steps, ~take_turns(steps))
    rows = whole_steps(steps)  # also if there are timers
    unstamped = ~rows["segment"].isin(steps["segment"][steps["at"].notna()])
    logged = rows["seconds_from"].eq("logged") & unstamped
    told = where(rows, rows["seconds_from"].eq("bar") | logged)
    told = told.assign(passed=told["covers"], elapsed=told["seconds"] * told["covers"])
    stamped = where(steps, steps["at"].notna() & ~steps["segment"].isin(told["segment"]))
    passed = stamped["step"].astype("float64").diff()
    behind = (np.diff(stamped["segment"], prepend=-1) == 0) & (passed > 0)
    found = stamped.assign(passed=passed, elapsed=stamped["at"].diff().dt.total_seconds())
    found = where(found, behind)
    return pd.concat([found, told]) if len(told) else found


def happened_in(apart: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """`rows` with a column `within`, the index of the row of `apart` in which they happened;
    without rows that are in none.

    What stands behind the line of its step happened in the next one.
    """
    key = ["segment", "step"]
    rows = where(rows, rows["step"].notna())
    if rows.empty or apart.empty:
        return rows[:0].assign(within=pd.Series(dtype="int64"))
    rows = rows.astype({"step": "int64", "segment": "int64"})
    ends = apart[[*key, "source", "line"]].astype(dict.fromkeys(key, "int64"))
    ends = ends.assign(within=apart.index).sort_values("step", kind="stable")
    rows = rows.assign(until=rows["step"] - _in_front(rows, ends))
    found = pd.merge_asof(
        rows.sort_values("until", kind="stable"),
        ends[[*key, "within"]].rename(columns={"step": "until"}),
        on="until", by="segment", direction="forward", allow_exact_matches=False,
    )  # fmt: skip
    return found.drop(columns="until").dropna(subset="within")


def _in_front(rows: pd.DataFrame, ends: pd.DataFrame) -> npt.NDArray[np.bool_]:
    """Which `rows` stand in front of the line that ends their step, or on it."""
    key = ["segment", "step"]
    own = ends.drop_duplicates(key).set_index(key).reindex(pd.MultiIndex.from_frame(rows[key]))
    same = own["source"].astype("str").to_numpy() == rows["source"].astype("str").to_numpy()
    return np.asarray(same & (numbers(own["line"]) >= numbers(rows["line"])), np.bool_)


def of_evaluations(events: pd.DataFrame) -> pd.DataFrame:
    """What `events` tell of evaluations."""
    names = [name for name in events["name"].cat.categories if _EVALUATES.search(str(name))]
    return where(events, among(events["name"], names))


def evaluations_in(apart: pd.DataFrame, events: pd.DataFrame) -> pd.DataFrame:
    """What `events` tell of evaluations `within` each row of `apart` whose `elapsed` has them."""
    rows = happened_in(apart, of_evaluations(events))
    if rows.empty:
        return rows
    left_out = evaluated(events).query("evaluated > 0").sort_values([*STEP])
    bars = where(apart, apart["seconds_from"].eq("bar").fillna(False).to_numpy(bool))
    return rows[~rows["within"].isin(within(left_out, bars, *STEP).index)]


def longer_by(apart: pd.DataFrame, plain: npt.NDArray[np.bool_]) -> pd.Series[float]:
    """Seconds by which distances exceed what as many steps usually take: of those that exceed it
    by more than any that are `plain`, which hold nothing but steps. [some rows of `apart`]
    """
    usual = (apart["elapsed"] / apart["passed"])[plain].median()
    beyond = apart["elapsed"] - usual * apart["passed"]
    return beyond[beyond > beyond[plain].max()] if plain.sum() >= _ENOUGH else beyond[:0]


def held(apart: pd.DataFrame, took: pd.Series[float], rows: pd.DataFrame) -> pd.Series[float]:
    """Seconds per step that what `took` so long in rows of `apart` adds to the time of each of
    `rows`. [rows]

    Times by timestamps or progress bars include what lies between steps. Those that the job logs
    may: what they are longer than usual, where they are longest. Those of timers and rates do not.
    """
    took = took.groupby(level=0).sum().clip(upper=apart["elapsed"]).dropna()
    each = (took / apart["passed"]).reindex(rows.index).fillna(0.0)
    by_clock = rows["seconds_from"].isin(["clock", "bar"]) & ~rows["smoothed"].astype(bool)
    others = rows["seconds"][~rows.index.isin(took.index)]
    beyond = (rows["seconds"] - others.median()).where(rows["seconds"] > others.max(), 0.0)
    beyond = beyond.where(rows["seconds_from"] == "logged", 0.0)
    return each.where(by_clock, np.minimum(each, beyond.fillna(0.0)))
