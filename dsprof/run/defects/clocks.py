"""Time stamps that run backwards within one process: its clock, or the order of its lines, is off.

Only lines of one kind from one process are compared: hosts' clocks differ, and ranks that
share a stream print late.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from dsprof.events import Kind
from dsprof.run.repairs import Outcome, Source, met
from dsprof.run.table import Codes, among, keys, known_rank, where, whole

SLACK: Final = np.timedelta64(1, "s")  #: by which a corrected clock may be set back
OFTEN: Final = 0.05  #: of a process' marks that fall: then none of its times is believed
_PROCESS: Final = ("segment", "engine", "source", "host", "rank", "pattern", "timers")


def clock_runs_backwards(events: pd.DataFrame, _: Source) -> Outcome:
    """One late line loses its time; a process of which many fall loses the times of all lines.

    A clock that was set back goes on from there: its times stay.
    """
    told = among(events["kind"], [Kind.METRIC, Kind.PHASE]) & events["step"].notna()
    told &= events["at"].notna()
    if not (events["at"][told].diff() < -SLACK).any():
        return events, None
    marks = where(events, told)
    marks = marks[~marks["record"].duplicated()]
    process = pd.factorize(keys(known_rank(marks), *_PROCESS))[0]  # dense: they are counted
    fallen = _fallen(marks, process)
    if not fallen.any():
        return events, None
    count, falls = np.bincount(process), np.bincount(process, fallen)
    spoilt = (falls >= OFTEN * count) & (falls > 1)
    late = fallen & ~_set_back(marks, process)
    gone = events["record"].isin(marks["record"][spoilt[process] | late])
    rows = events[gone | events["record"].isin(marks["record"][fallen])]
    fixed = events.assign(at=events["at"].mask(gone))
    if spoilt.any():
        text = (
            "time stamps of one process run backwards again and again: its clock or the order of "
            "its lines cannot be trusted, and what lies between two of them is unknown"
        )
        return fixed, met("clock-runs-backwards", "doubt", text, rows)
    if not gone.any():
        text = (
            "the clock was set back: what lies between these lines and the ones before them is "
            "left out"
        )
        return fixed, met("clock-set-back", "repair", text, rows)
    text = "these lines are older than the one before them, printed late: their times are left out"
    return fixed, met("late-lines", "repair", text, events[gone])


def _fallen(marks: pd.DataFrame, process: Codes) -> npt.NDArray[np.bool_]:
    """Marks older than the one before, of a process that prints each step once.

    Where a step is printed several times, several processes that name no rank print it.
    """
    printed = pd.DataFrame({"process": process, "step": whole(marks["step"])})
    several = np.bincount(process, printed.duplicated()) > 0
    passed = pd.Series(marks["at"].to_numpy()).groupby(process).diff()
    fallen: npt.NDArray[np.bool_] = (passed < -SLACK).to_numpy() & ~several[process]
    return fallen


def _set_back(marks: pd.DataFrame, process: Codes) -> npt.NDArray[np.bool_]:
    """Marks from which the next of their process follows at a more usual pace than from the one
    before them."""
    of = pd.DataFrame({"at": marks["at"].to_numpy(), "step": whole(marks["step"])})
    before, after = (of.groupby(process).shift(by) for by in (1, -1))
    usual = _pace(before, of).groupby(process).transform("median")
    paces = [(_pace(one, after) / usual).fillna(np.inf).to_numpy() for one in (of, before)]
    here, there = np.abs(np.log(paces))
    back: npt.NDArray[np.bool_] = here < there
    return back


def _pace(earlier: pd.DataFrame, later: pd.DataFrame) -> pd.Series[float]:
    """Seconds a step between marks; unknown where either does not rise."""
    seconds: pd.Series[float] = (later["at"] - earlier["at"]).dt.total_seconds()
    steps = later["step"] - earlier["step"]
    return seconds.where(seconds > 0) / steps.where(steps > 0)
