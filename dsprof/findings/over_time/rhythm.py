"""When steps that stick out come: at an interval, together, or at the beginning."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from dsprof.analysis.trends import REPEATS, period

#: A step up to which it is one of the job's first ones: earlier ones may not be shown, or judged.
_FIRST: Final = 10
#: Part of a stretch from which on all of it is longer.
MOST: Final = 0.75


def steps_apart(steps: pd.DataFrame, rows: int | None) -> int | None:
    """Rows as optimizer steps: a row may be a window of several."""
    return None if rows is None else rows * int(steps["step"].diff().median())


def period_of(rows: npt.NDArray[np.intp]) -> int | None:
    """Of all of them, else of those behind the first rows of all, which may only warm up."""
    behind = rows[rows != np.arange(len(rows))]
    return period(rows) or period(behind)


def stretch_of(steps: pd.DataFrame, rows: npt.NDArray[np.intp]) -> str:
    """Where they lie if most steps from the first to the last of them are among them."""
    if len(rows) < REPEATS or len(rows) <= MOST * (rows[-1] - rows[0] + 1):
        return ""
    first, last = (int(steps["step"].iloc[row]) for row in (rows[0], rows[-1]))
    beginning = "at the beginning, " if are_first(steps, rows) else ""
    return f"{beginning}within steps {first:,} to {last:,}"


def are_first(steps: pd.DataFrame, rows: npt.NDArray[np.intp]) -> bool:
    """Whether they are the first steps that the job trains, not only those of an excerpt."""
    return not rows[0] and bool(steps["step"].iloc[0] <= _FIRST)


def are_warm_up(steps: pd.DataFrame, rows: npt.NDArray[np.intp]) -> bool:
    """Whether they are nothing but a few of the job's first steps: what these cost, a longer run
    hardly notices."""
    return len(rows) == rows[-1] + 1 and bool(steps["step"].iloc[rows[-1]] <= _FIRST)


def said_of_rhythm(
    distance: int | None, stretch: str, many: int, compiled: int, *, begun: bool
) -> str:
    """A sentence on it, of so `many` steps, in `compiled` of which graphs are compiled."""
    if compiled:
        return f" In {compiled:,} of these {many:,} torch.compile compiles."
    if begun:
        if many == 1:
            return " It is one of the first: the longer the run, the less of it that costs."
        return " They are the first ones: the longer the run, the less of it they cost."
    if stretch:
        return f" They lie together, {stretch}: look for what lasted that long."
    if distance is not None:
        return f" They come every {distance:,} steps: look for what the job does at that interval."
    return " They come at no regular interval." if many >= REPEATS else ""
