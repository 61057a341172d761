"""Changes of level in a series, its spikes and their period."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_BINS = 400  # changes are searched in this many medians, then placed in the raw series
_SHORTEST = 5  # rows of a level; fewer are a spike
_PENALTY = 6.0  # per change, times log(n) noise variances; 2 is the Bayesian criterion for one
_CLIMBING = 5  # values that climb, each of them
_QUARTER = 3  # values in the last quarter of those that climb as a whole
_JUMP = 0.75  # of all that they rise by
_COMPARED = 8  # values of which one may be an outlier
_WIDEST_SPIKE = 25  # rows; a longer rise is a level of its own
_BOOKED = 0.8  # of what a row is longer, by which one beside it is shorter
REPEATS = 4  # the least number of rows that can show a period, or that there is none


@dataclass(frozen=True, slots=True)
class Level:
    """A stretch of a series, from `start` to before `stop`, and its median."""

    start: int
    stop: int
    median: float


def levels(values: Floats) -> list[Level]:
    """The constant stretches of a positive series; a single one if nothing changes.

    Change points minimize the squared error of the logarithm plus a penalty for each of them
    (optimal partitioning, Jackson et al. 2005). With the logarithm, 10 % counts the same at every
    level. Outliers are first replaced by the median around them. The noise is estimated from
    successive differences. That replaces rows beside a change, too, where one of them sticks out:
    where it lies exactly, the rows themselves tell.
    """
    width = max(1, -(-len(values) // _BINS))
    calm = _without_outliers(np.log(values))
    bins = _bin_medians(calm, width)
    cuts = [_place(calm, cut * width, width) for cut in _cuts(bins)]
    edges = _adjusted(np.log(values), [0, *cuts, len(values)], max(_SHORTEST, width))
    return _between(edges, values)


def climb(values: Floats) -> list[Level]:
    """What few values climb by, in an order that noise alone seldom has; else nothing.

    Levels of one value each, if there are five or more, each higher than the one before (1 in 120
    orders of five). Else half, a quarter and a quarter, if each of the last quarter, of three or
    more, is above all of the first half (1 in 84 orders of twelve); or the two sides of one rise
    between them that makes up most of it.
    """
    size, quarter = len(values), len(values) // 4
    if size >= _CLIMBING and np.all(np.diff(values) > 0):
        edges = [*range(size + 1)]
    elif quarter >= _QUARTER and values[-quarter:].min() > values[: size // 2].max():
        half, last = size // 2, size - quarter
        rises = np.diff(values[half - 1 : last + 1])
        height = np.median(values[last:]) - np.median(values[:half])
        is_jump = rises.max() >= _JUMP * height
        edges = [0, half + int(rises.argmax()), size] if is_jump else [0, half, last, size]
    else:
        return []
    return _between(edges, values)


def _between(edges: Iterable[int], values: Floats) -> list[Level]:
    return [
        Level(start, stop, float(np.median(values[start:stop]))) for start, stop in pairwise(edges)
    ]


def spikes(values: Floats, ratio: float) -> NDArray[np.intp]:
    """Rows at least `ratio` times the running median around them, and far outside the noise."""
    usual = _neighbourhood(values)
    noise = 1.4826 * float(np.median(np.abs(values - usual)))
    return np.flatnonzero((values >= ratio * usual) & (values - usual > 6 * noise))


def outliers(values: Floats, times: float) -> NDArray[np.intp]:
    """Of eight values or more, those at least `times` the highest of all others, if they are no
    more than a quarter. Several that come last are none: they may be a new level."""
    order = np.argsort(values, kind="stable")
    most = len(values) // 4 if len(values) >= _COMPARED else 0
    for count in range(most, 0, -1):
        if values[order[-count]] >= times * values[order[-count - 1]]:
            rows = np.sort(order[-count:])
            return rows[:0] if count > 1 and rows[0] == len(values) - count else rows
    return order[:0]


def excess(values: Floats, rows: NDArray[np.intp]) -> Floats:
    """How far `rows` of a series are above the running median around them. [rows]"""
    return np.asarray(values[rows] - _neighbourhood(values)[rows])


def booked_late(values: Floats, rows: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Of which of `rows` the one before or behind is as much below the running median as they are
    above: together they take the usual time, and the clock only gave one a part of the other's, as
    where nobody waits for a device at the end of each."""
    over = np.pad(values - _neighbourhood(values), 1)
    below = np.minimum(over[rows], over[rows + 2])
    return np.asarray(-below >= _BOOKED * over[rows + 1])


def without_spikes(values: Floats, ratio: float) -> Floats:
    """The series with its spikes (see `spikes`) replaced by the running median around them."""
    calm, rows = values.copy(), spikes(values, ratio)
    calm[rows] -= excess(values, rows)
    return calm


def period(rows: NDArray[np.intp]) -> int | None:
    """The usual distance between `rows`, if there are at least `REPEATS` and most keep to it; else
    None.
    """
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
    """The median of `width` (odd) values around each one; the series is mirrored at its ends."""
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
    scaled = bins / max(noise, 1e-3)  # a change below 0.1 % does not matter
    return _partition(scaled - scaled.mean(), price=_PENALTY * np.log(len(bins)))


def _partition(values: Floats, price: float) -> list[int]:
    """Where to cut so that the sum of squared errors plus `price` per cut is least."""
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


def _adjusted(values: Floats, edges: list[int], reach: int) -> list[int]:
    """The edges, each moved by up to so many rows to where the medians on both sides are off by
    least, as a sum of distances: an outlier counts little. No level becomes too short."""
    for at in range(1, len(edges) - 1):
        before, edge, after = edges[at - 1 : at + 2]
        first = min(edge, max(edge - reach, before + _SHORTEST))
        last = max(edge, min(edge + reach, after - _SHORTEST))
        usual = np.median(values[before:edge]), np.median(values[edge:after])
        off_left, off_right = (np.abs(values[first:last] - one) for one in usual)
        cost = np.concatenate([[0.0], np.cumsum(off_left - off_right)])
        places = np.flatnonzero(cost <= cost.min() + 1e-12) + first
        edges[at] = int(places[np.argmin(np.abs(places - edge))])
    return edges


def _place(values: Floats, near: int, width: int) -> int:
    """The position of the best single cut near `near`, a boundary of bins `width` values wide."""
    if width == 1:
        return near
    start, stop = max(0, near - 2 * width), min(len(values), near + 2 * width)
    part = values[start:stop]
    count = np.arange(1, len(part))
    left = np.cumsum(part)[:-1]
    right = part.sum() - left
    gain = left**2 / count + right**2 / (len(part) - count)
    return start + 1 + int(np.argmax(gain))
