"""Where a series changes its level, and which points stick out of it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_BINS = 400  # levels are searched on that many medians, then placed on the raw series
_SHORTEST = 5  # rows of a level; fewer is a spike
_PENALTY = 6.0  # times log(n) noise variances per change; 2 is the Bayesian criterion for one
_WIDEST_SPIKE = 25  # rows; a longer rise is a level of its own
REPEATS = 4  # rows that can show a rhythm, or that there is none


@dataclass(frozen=True, slots=True)
class Level:
    """A stretch of a series, `start` to before `stop`, and its median."""

    start: int
    stop: int
    median: float


def levels(values: Floats) -> list[Level]:
    """The constant stretches a positive series consists of (one, if nothing changes).

    Change points minimise squared error of the logarithm plus a price for each
    (optimal partitioning, Jackson et al. 2005), so that 10 % counts the same at
    every level. Outliers are put back to their neighbourhood first; the noise is
    that of successive differences.
    """
    width = max(1, -(-len(values) // _BINS))
    calm = _without_outliers(np.log(values))
    bins = _bin_medians(calm, width)
    cuts = [_place(calm, cut * width, width) for cut in _cuts(bins)]
    edges = [0, *cuts, len(values)]
    return [
        Level(start, stop, float(np.median(values[start:stop]))) for start, stop in pairwise(edges)
    ]


def spikes(values: Floats, ratio: float) -> NDArray[np.intp]:
    """Rows at least `ratio` times the median of their neighbourhood and far out of its noise."""
    usual = _neighbourhood(values)
    noise = 1.4826 * float(np.median(np.abs(values - usual)))
    return np.flatnonzero((values >= ratio * usual) & (values - usual > 6 * noise))


def excess(values: Floats, rows: NDArray[np.intp]) -> Floats:
    """How far `rows` of a series stand above their neighbourhood."""
    return np.asarray(values[rows] - _neighbourhood(values)[rows])


def without_spikes(values: Floats, ratio: float) -> Floats:
    """The series with what sticks out of it put back to its neighbourhood."""
    calm, rows = values.copy(), spikes(values, ratio)
    calm[rows] -= excess(values, rows)
    return calm


def period(rows: NDArray[np.intp]) -> int | None:
    """The distance at which rows repeat, if at least `REPEATS` of them keep to one."""
    if len(rows) < REPEATS:
        return None
    distances = np.diff(rows)
    usual = int(np.median(distances))
    regular = np.abs(distances - usual) <= max(1, usual // 20)
    return usual if usual > 1 and regular.mean() >= 0.8 else None


def _neighbourhood(values: Floats) -> Floats:
    width = min(len(values) | 1, 2 * _WIDEST_SPIKE + 1)
    return _running_median(values, width)


def _running_median(values: Floats, width: int) -> Floats:
    """Median of `width` (odd) values around each; the series is mirrored at its ends."""
    mirrored = pd.Series(np.pad(values, width // 2, mode="reflect"))
    return np.asarray(mirrored.rolling(width).median()[width - 1 :], np.float64)


def _without_outliers(values: Floats) -> Floats:
    near = _running_median(values, 2 * _SHORTEST + 1)
    off = np.abs(values - near)
    return np.where(off > 3 * 1.4826 * np.median(off), near, values)


def _bin_medians(values: Floats, width: int) -> Floats:
    whole = len(values) // width * width
    bins = np.median(values[:whole].reshape(-1, width), axis=1)
    rest = values[whole:]
    return np.append(bins, np.median(rest)) if len(rest) > width // 2 else bins


def _cuts(bins: Floats) -> list[int]:
    noise = 1.4826 * float(np.median(np.abs(np.diff(bins)))) / np.sqrt(2)
    if len(bins) < 2 * _SHORTEST or not np.ptp(bins):
        return []
    scaled = bins / max(noise, 1e-3)  # below 0.1 % nothing matters
    return _partition(scaled - scaled.mean(), price=_PENALTY * np.log(len(bins)))


def _partition(values: Floats, price: float) -> list[int]:
    """Where to cut so that squared errors and `price` a cut add up to the least."""
    size = len(values)
    total, square = (np.concatenate([[0.0], np.cumsum(part)]) for part in (values, values**2))
    best = np.full(size + 1, np.inf)
    best[0] = -price
    before = np.zeros(size + 1, np.intp)
    for stop in range(_SHORTEST, size + 1):
        start = np.arange(stop - _SHORTEST + 1)
        error = square[stop] - square[start] - (total[stop] - total[start]) ** 2 / (stop - start)
        cost = best[start] + error + price
        before[stop] = cost.argmin()
        best[stop] = cost[before[stop]]
    cuts = [int(before[size])]
    while cuts[-1]:
        cuts.append(int(before[cuts[-1]]))
    return cuts[-2::-1]


def _place(values: Floats, near: int, width: int) -> int:
    """The best single cut within one bin of `near`."""
    if width == 1:
        return near
    start, stop = max(0, near - 2 * width), min(len(values), near + 2 * width)
    part = values[start:stop]
    count = np.arange(1, len(part))
    left = np.cumsum(part)[:-1]
    right = part.sum() - left
    gain = left**2 / count + right**2 / (len(part) - count)
    return start + 1 + int(np.argmax(gain))
