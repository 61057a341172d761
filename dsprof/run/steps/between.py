"""What the clock says of a step beyond its timers: time between the steps, in no timer.

Timers run from forward to step. Loading data, logging, evaluating, saving or a host that stalls
lie outside, and only the time stamps of the lines tell of them. Stamps that are fine beside a
step time each step. Coarse ones are precise over many steps, and tell their mean alone.
"""

from __future__ import annotations

import re
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from dsprof.events import Kind
from dsprof.run.defects.clocks import SLACK
from dsprof.run.steps.classes import TOLERATED
from dsprof.run.table import (
    STEP,
    Codes,
    among,
    keys,
    known_rank,
    numbers,
    plain,
    positions,
    stamps,
    take_turns,
    where,
)

#: Stretches between two lines that must be known, or fewer of this many steps together, and part
#: of the clock's time beyond which what the timers leave of it is told.
ENOUGH: Final = 5
LONG: Final = 20
SURPLUS: Final = 0.1

#: By which two time stamps may be wrong: of whole seconds, else.
COARSE: Final = 1.0
FINE: Final = 0.01

#: Of the stretches, that stamps must be fine for before they time single steps.
MOST: Final = 0.9

#: Seconds beyond the timers that are a pause of the job and no part of its steps: DeepSpeed's
#: time-out of a collective.
PAUSE: Final = 1800.0

#: Names of events that tell by themselves what a job did between two steps.
_TOLD: Final = r"(?i)checkpoint|^save|eval|valid"

_PART: Final = ["segment", "engine"]


def by_the_clock(events: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """Parallel to `table`: `seconds` of whole steps by the clock, whether they are `smoothed`, and
    of how many steps, `passed` since the stamp before, each is the mean.

    Args:
        events: tidy events, repaired.
        table: steps in order, with `known`: seconds as timers or rates tell them, of some steps
            for all between them.

    Missing where the clock shows no more than is `known` anyway, unless that is the rate of every
    tenth step, say, and the clock shows all ten to be quicker in the mean. A step's seconds are
    its own, from its line back to the one before; where time stamps are too coarse for that they
    are `smoothed`: what is known of it, and the mean of what the clock shows beyond.

    One process is asked, the one that stamps most lines. A stretch that exceeds its timers by
    more than all others together is left out: what happened once belongs to no average step.
    Engines that take turns are left aside: what lies between two steps of one is work of the
    other.
    """
    found = pd.DataFrame({"seconds": np.nan, "smoothed": False, "passed": np.nan}, table.index)
    untimed = table["known"].isna().all()
    if untimed or (events["at"].isna().all() and table["at"].isna().all()):
        return found
    single = among(table["whole_from"], ["throughput"])
    stamps = _stamps(events, table).assign(
        known=table["known"],
        single=single,
        sum=table["known"].groupby(keys(table, *_PART)).cumsum(),
        count=table["known"].notna().cumsum(),
    )
    stretches = _stretches(_in_order(stamps[table["known"].notna()]))
    for _, part in where(stretches, ~take_turns(table)[stretches.index]).groupby(_PART):
        sure = _without_the_odd_one(part[part["usable"]])
        beyond, elapsed, passed = (sure[name].sum() for name in ("beyond", "elapsed", "passed"))
        if len(sure) >= ENOUGH and _of_slower_ones(sure):
            fine = _is_fine(sure)
            each = sure["elapsed"] / sure["passed"]
            found.loc[sure.index, "seconds"] = each if fine else elapsed / passed
            found.loc[sure.index, "smoothed"] = not fine
            found.loc[sure.index, "passed"] = sure["passed"]
        enough = len(sure) >= ENOUGH or (len(sure) > 1 and passed >= LONG)
        if not enough or beyond <= SURPLUS * elapsed + sure["slack"].sum():
            continue
        if _times_each(sure):
            found.loc[sure.index, "seconds"] = sure["elapsed"] / sure["passed"]
            found.loc[sure.index, "passed"] = sure["passed"]
        else:
            mine = (table[_PART] == part[_PART].iloc[0]).all(axis=1) & table["known"].notna()
            found.loc[mine, "seconds"] = table["known"][mine] + beyond / passed
            found.loc[mine, "smoothed"] = True
    return found


def wider_timers(table: pd.DataFrame, timed: pd.Series[float]) -> pd.Series[bool]:
    """Steps whose timers sum to more than their rate tells, for which the clock has room: they
    time what a script does between its engine's steps, too.

    Args:
        table: steps with `seconds` and `whole_seconds`, and what tells either.
        timed: what the timers of each sum to.
    """
    parts = [table[name] for name in _PART]
    rated = among(table["seconds_from"], ["throughput"]) & among(table["whole_from"], ["clock"])
    both = timed.notna() & rated
    if not both.any():
        return both
    told = table[["seconds", "whole_seconds"]].assign(timed=timed).where(both)
    sums = told.assign(both=both, rows=table["seconds"].notna()).groupby(parts).transform("sum")
    exceed = sums["timed"] > TOLERATED * sums["seconds"]
    room = sums["timed"] <= TOLERATED * sums["whole_seconds"]
    return exceed & room & (2 * sums["both"] >= sums["rows"])


def _of_slower_ones(stretches: pd.DataFrame) -> bool:
    """Rates are of single steps, and those between them are so much quicker that it shows.

    A clock that has no room for the rated step alone is refuted by it: lines that a wrapper
    stamped when it passed them on, a block at a time.
    """
    beyond, elapsed = stretches["beyond"].sum(), stretches["elapsed"].sum()
    seldom = bool(stretches["single"].all()) and stretches["passed"].median() > 1
    has_room = stretches["elapsed"] >= (1 - SURPLUS) * stretches["known"] - stretches["error"]
    quicker = -beyond > SURPLUS * elapsed + stretches["slack"].sum()
    return seldom and quicker and bool(has_room.mean() >= MOST)


def _without_the_odd_one(stretches: pd.DataFrame) -> pd.DataFrame:
    beyond = stretches["beyond"]
    odd = len(beyond) > 0 and beyond.max() > max(beyond.sum() - beyond.max(), 0.0)
    return stretches.drop(beyond.idxmax()) if odd else stretches


def _times_each(stretches: pd.DataFrame) -> bool:
    """Stamps are fine beside the stretches, and show hardly one shorter than its timers: lines
    that wait in a buffer are stamped many at once. No stretch holds steps that are timed and not
    stamped."""
    if (stretches["each"] & (stretches["passed"] > 1)).any():
        return False
    fits = stretches["elapsed"] >= (1 - SURPLUS) * stretches["timed"] - stretches["error"]
    return _is_fine(stretches, fits)


def _is_fine(stretches: pd.DataFrame, fits: pd.Series[bool] | bool = True) -> bool:
    fine = stretches["error"] <= SURPLUS * stretches["elapsed"]
    return bool((fine & fits).mean() >= MOST)


def _stamps(events: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """Of each step: `at`, when it ended, and before it `told`, other doings, and `fell`, how often
    its clock was set back: lines of one kind tell, for others may be printed late.

    Where most steps are marked, their marks alone say when they ended: where one is lost, its
    timers count as those of another step.
    """
    apart = among(events["name"], names_apart(events))  # also of a step, but behind its end
    stamped = events["at"].notna().to_numpy() & among(events["kind"], [Kind.METRIC, Kind.PHASE])
    wanted = [*STEP, "rank", "host", "at", "kind", "source", "line", "pattern"]
    rows = known_rank(where(events[wanted], stamped & ~apart))
    found = table[list(STEP)]
    if not len(rows):
        return found.assign(at=table["at"], told=0, fell=0)
    process = keys(rows, "source", "host", "rank")
    rows = _of_one_clock(rows[process == np.bincount(process).argmax()])
    marks = among(rows["kind"], [Kind.METRIC])
    last = _lasts(table, rows[marks])
    last = last if 2 * last["at"].notna().sum() >= len(last) else last.fillna(_lasts(table, rows))
    if apart.any():
        apart &= events["source"].isin(rows["source"]).to_numpy()
    told, fell = _so_far(where(events, apart), last), _so_far(rows.iloc[_set_back(rows)], last)
    return found.assign(at=last["at"], told=told, fell=fell)


def _of_one_clock(rows: pd.DataFrame) -> pd.DataFrame:
    """Without kinds of lines that a wrapper stamps with whole seconds, where others are finer."""
    fine, pattern = rows["at"].dt.microsecond.ne(0).to_numpy(), plain(rows["pattern"])
    told = rows[np.isin(pattern, pattern[fine])]
    return told if told["step"].nunique() > 2 else rows


def _set_back(rows: pd.DataFrame) -> Codes:
    """The rows with an earlier stamp than the one before them of the same kind."""
    pattern = plain(rows["pattern"])
    order = np.argsort(pattern, kind="stable")[np.count_nonzero(pattern < 0) :]
    same = np.diff(pattern[order]) == 0
    back: Codes = order[1:][same & (np.diff(stamps(rows["at"])[order]) < -SLACK)]
    return back


def _so_far(rows: pd.DataFrame, last: pd.DataFrame) -> npt.NDArray[np.intp]:
    """How many of `rows` stand before the last line of each step, or on it."""
    lines = np.sort(numbers(rows["line"]))
    return np.searchsorted(lines, numbers(last["line"]), "right")


def _lasts(table: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """The latest `at` and `line` of `rows` of each step."""
    place = positions(table, rows, *STEP)
    there = (place >= 0) & rows["step"].notna().to_numpy()
    stamped, line = stamps(rows["at"])[there], np.full(len(table), np.nan)
    at = np.full(len(table), np.datetime64("NaT"), stamped.dtype)
    np.fmax.at(at, place[there], stamped)
    np.fmax.at(line, place[there], numbers(rows["line"])[there])
    return pd.DataFrame({"at": at, "line": line}, table.index)


def names_apart(events: pd.DataFrame) -> list[str]:
    """Names of what is told of other doings than steps."""
    return [name for name in events["name"].cat.categories if re.search(_TOLD, name)]


def _in_order(steps: pd.DataFrame) -> pd.DataFrame:
    """The steps that are stamped, without those stamped a little before the step in front of them;
    where it is more, the clock was set back and goes on from there."""
    steps = steps[steps["at"].notna()]
    passed = steps["at"].diff()
    return steps[~(_follow(steps) & (passed < pd.Timedelta(0)) & (passed >= -SLACK))]


def _follow(steps: pd.DataFrame) -> npt.NDArray[np.bool_]:
    """Which of them stand behind another one of their launch and engine."""
    same: npt.NDArray[np.bool_] = np.diff(keys(steps, *_PART), prepend=-1) == 0
    return same


def _stretches(steps: pd.DataFrame) -> pd.DataFrame:
    """What lies between the lines of each step and the one before it, of steps that are timed.

    `beyond` is what their timers leave of it, all of them where `each` step in it is timed, else
    those of its last. `slack` is by how much stamps may make it wrong where stretches do not follow
    one another.
    """
    passed = steps["step"].diff().astype("float64").where(_follow(steps))
    elapsed: pd.Series[float] = steps["at"].diff().dt.total_seconds()
    each = steps["count"].diff() == passed
    timed = steps["sum"].diff().where(each, steps["known"] * passed)
    beyond = elapsed - timed
    alone = (steps["told"].diff() == 0) & (steps["fell"].diff() == 0)
    usable = (passed > 0) & (elapsed >= 0) & (beyond < PAUSE) & alone
    breaks = usable & ~usable.shift(fill_value=False)
    whole = pd.to_datetime(steps["at"]).dropna().dt.microsecond.eq(0).all()
    error = COARSE if whole else FINE
    return steps.assign(
        passed=passed,
        elapsed=elapsed,
        timed=timed,
        each=each,
        beyond=beyond,
        error=error,
        slack=breaks * error,
        usable=usable,
    )
