"""How far each process of a recording came: what it did in a step that it never ended is no part
of that step of the others."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from dsprof.run.table import Numbers, among, known_rank, numbers, positions, where

ENGINE: Final = ("segment", "engine")
PROCESS: Final = (*ENGINE, "rank")


def ended_by_process(rows: pd.DataFrame, events: pd.DataFrame) -> Numbers:
    """The last step that the process of each row has ended, by its recording.

    0 where it ended none of that engine, of which others end some: a rank that has fewer batches,
    or died in its first step. NaN where no recording tells of any.
    """
    last = _last(events)
    until = _of(last, rows, PROCESS)
    until[np.isnan(until) & ~np.isnan(_of(last, rows, ENGINE))] = 0
    return until


def ended_by_others(rows: pd.DataFrame, events: pd.DataFrame) -> npt.NDArray[np.bool_]:
    """Which rows are of a step that other processes have ended, and their own has not."""
    step, last = numbers(rows["step"]), _last(events)
    found: npt.NDArray[np.bool_] = step > ended_by_process(rows, events)
    return found & (step <= _of(last, rows, ENGINE))


def _last(events: pd.DataFrame) -> pd.DataFrame:
    """The last step of each process and engine, by the process's own word."""
    ends = among(events["name"], ["step_seconds"]) & events["pattern"].isna().to_numpy()
    told = where(events[[*PROCESS, "step"]], ends & events["step"].notna().to_numpy())
    return known_rank(told).groupby(list(PROCESS))["step"].max().reset_index()


def _of(last: pd.DataFrame, rows: pd.DataFrame, columns: tuple[str, ...]) -> Numbers:
    table = last.groupby(list(columns))["step"].max().reset_index()
    place = positions(table, known_rank(rows), *columns)
    return np.append(numbers(table["step"]), np.nan)[place]
