"""How the times of steps scatter, in words that terminal and page share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dsprof.units import format_seconds

if TYPE_CHECKING:
    import pandas as pd

#: Steps from which a twentieth of them is a step: of fewer, the ends are told instead.
MANY: Final = 20


class Mark(NamedTuple):
    """A time in words, and the positions of the steps (the two in the middle) that took it."""

    text: str
    rows: NDArray[np.intp]


def spread(seconds: pd.Series[Any], of: str = "") -> list[str | Mark]:
    """`median 5.79 s, all between 5.66 s and 5.80 s`, of many `9 in 10 between`; of one nothing.

    Args:
        seconds: of each step.
        of: behind how many of them: ` of the 4 averaged`.
    """
    if len(seconds) < 2:
        return []
    many = len(seconds) >= MANY
    part = f"{'9 in 10' if many else 'all'}{of}"
    low, middle, high = (_mark(seconds, at) for at in ((5, 50, 95) if many else (0, 50, 100)))
    if low.text == high.text:
        return [f"{part} take ", middle]
    return ["median ", middle, f", {part} between ", low, " and ", high]


def timed_singly(steps: pd.DataFrame) -> pd.Series[Any]:
    """Seconds of the steps of which each has a time of its own: where time stamps tell their mean
    alone, none has."""
    return steps.loc[~steps["smoothed"], "seconds"]


def percentile(seconds: pd.Series[Any], percent: int) -> float | None:
    """What so many percent of the steps do not exceed; None of too few to say."""
    return float(seconds.iloc[_nearest(seconds, percent)].mean()) if len(seconds) >= MANY else None


def _mark(seconds: pd.Series[Any], percent: int) -> Mark:
    rows = _nearest(seconds, percent)
    return Mark(format_seconds(float(seconds.iloc[rows].mean())), rows)


def _nearest(seconds: pd.Series[Any], percent: int) -> NDArray[np.intp]:
    """Positions of the steps that so many percent do not exceed; two in the middle of many."""
    order = np.argsort(seconds.to_numpy(dtype=float), kind="stable")
    at = max(0, -(-len(order) * percent // 100) - 1)
    return order[at : at + (2 if percent == 50 and len(order) % 2 == 0 else 1)]
