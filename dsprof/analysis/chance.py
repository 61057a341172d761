"""Whether a stretch of a series stands out from its noise, or may be due to chance alone."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_BLOCK: Final = 5  # values; similarity over longer stretches is a level of its own (`trends`)
_MOST_BLOCKS: Final = 100  # for longer series the blocks become longer
_SHUFFLES: Final = 199


def chance(values: Floats, residuals: Floats, start: int, stop: int) -> float:
    """The probability that a shuffled series has some stretch as high as the given one.

    This is a permutation test on ranks. If successive `residuals` are correlated, whole blocks are
    shuffled, because shuffling single values would make every stretch look significant (blocks of
    dependent data: Künsch 1989). The statistic is the largest difference between the mean of any
    stretch and that of the rest, over its standard error. Taking the largest corrects for having
    searched all stretches (Olshen et al. 2004).

    Args:
        values: the series.
        residuals: what is left of it without its levels.
        start, stop: the stretch, from `start` to before `stop`.

    Returns:
        A p-value, at least 1 / (shuffles + 1).
    """
    width = max(_BLOCK if _alike(residuals) else 1, -(-len(values) // _MOST_BLOCKS))
    blocks = _medians(values, width)
    ranks = np.asarray(pd.Series(blocks).rank(), np.float64)
    first = min(round(start / width), len(ranks) - 1)
    last = max(first + 1, min(round(stop / width), len(ranks)))
    seen = _heights(ranks)[first : last + 1, first : last + 1].max()
    random = np.random.default_rng(0)
    as_high = sum(
        _heights(random.permutation(ranks)).max() >= seen * (1 - 1e-9) for _ in range(_SHUFFLES)
    )
    return (1 + int(as_high)) / (1 + _SHUFFLES)


def _alike(residuals: Floats) -> bool:
    """Whether successive values are correlated, by more than two standard errors."""
    centred = residuals - residuals.mean()
    power = float(centred @ centred)
    return bool(power) and float(centred[1:] @ centred[:-1]) > 2 * power / np.sqrt(len(centred))


def _medians(values: Floats, width: int) -> Floats:
    edges = np.arange(0, len(values), width)
    return np.array([np.median(values[edge : edge + width]) for edge in edges])


def _heights(values: Floats) -> Floats:
    """For each stretch, its mean minus that of the rest, in standard errors; -inf for pairs that
    are none.

    [start x stop], each from 0 to the number of values.
    """
    size = len(values)
    sums = np.concatenate([[0.0], np.cumsum(values - values.mean())])
    length = np.arange(size + 1)[None, :] - np.arange(size + 1)[:, None]
    inside = np.where((length > 0) & (length < size), length, 1)
    height = (sums[None, :] - sums[:, None]) / np.sqrt(inside * (size - inside) / size)
    return np.where((length > 0) & (length < size), height, -np.inf)
