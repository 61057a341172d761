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
_PROCESS: Final = ("segment", "engine", "source", "host", "rank", "pattern")


def clock_runs_backwards(events: pd.DataFrame, _: Source) -> Outcome:
    """One late line loses its time; a process of which many fall loses the times of all lines."""
    told = among(events["kind"], [Kind.METRIC]) & events["step"].notna() & events["at"].notna()
    marks = where(events, told)
    marks = marks[~marks["record"].duplicated()]
    process = pd.factorize(keys(known_rank(marks), *_PROCESS))[0]  # dense: they are counted
    fallen = _fallen(marks, process)
    if not fallen.any():
        return events, None
    count, falls = np.bincount(process), np.bincount(process, fallen)
    spoilt = (falls >= OFTEN * count) & (falls > 1)
    lines = marks[spoilt[process] | fallen]
    gone = events["record"].isin(lines["record"])
    rows = events[gone]
    fixed = events.assign(at=events["at"].mask(gone))
    if spoilt.any():
        text = (
            "time stamps of one process run backwards again and again: its clock or the order of "
            "its lines cannot be believed, and what lies between two of them is unknown"
        )
        return fixed, met("clock-runs-backwards", "doubt", text, rows)
    text = (
        "these lines are older than the one before them, printed late or behind a clock that was "
        "set back: their times are left out"
    )
    return fixed, met("late-lines", "repair", text, rows)


def _fallen(marks: pd.DataFrame, process: Codes) -> npt.NDArray[np.bool_]:
    """Marks older than the one before, of a process that prints each step once.

    Where a step is printed several times, several processes that name no rank print it.
    """
    printed = pd.DataFrame({"process": process, "step": whole(marks["step"])})
    several = np.bincount(process, printed.duplicated()) > 0
    passed = pd.Series(marks["at"].to_numpy()).groupby(process).diff()
    fallen: npt.NDArray[np.bool_] = (passed < -SLACK).to_numpy() & ~several[process]
    return fallen
