"""What chance alone does to a series: whether a stretch of it stands out of its own noise."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_BLOCK: Final = 5  # values; what is alike for longer is a level of its own (`trends`)
_MOST_BLOCKS: Final = 100  # longer series have longer blocks
_SHUFFLES: Final = 199


def chance(values: Floats, residuals: Floats, start: int, stop: int) -> float:
    """How likely shuffling makes some stretch stand as high as one of `start` to before `stop`.

    A permutation test on ranks. Where neighbours are alike (`residuals`, what the levels of
    the series leave, are correlated) whole blocks are shuffled, since single values would be
    told apart too easily (Künsch 1989 for blocks of dependent data). The statistic is the
    largest difference of means of any stretch against the rest, over its standard error, so
    that having looked everywhere is paid for (Olshen et al. 2004).

    Returns:
        0 to 1; at least 1 / (shuffles + 1).
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
    """Whether successive values are correlated: beyond two standard errors of none."""
    centred = residuals - residuals.mean()
    power = float(centred @ centred)
    return bool(power) and float(centred[1:] @ centred[:-1]) > 2 * power / np.sqrt(len(centred))


def _medians(values: Floats, width: int) -> Floats:
    edges = np.arange(0, len(values), width)
    return np.array([np.median(values[edge : edge + width]) for edge in edges])


def _heights(values: Floats) -> Floats:
    """Of each stretch (first x last) its mean less that of the rest, in standard errors."""
    size = len(values)
    sums = np.concatenate([[0.0], np.cumsum(values - values.mean())])
    length = np.arange(size + 1)[None, :] - np.arange(size + 1)[:, None]
    inside = np.where((length > 0) & (length < size), length, 1)
    height = (sums[None, :] - sums[:, None]) / np.sqrt(inside * (size - inside) / size)
    return np.where((length > 0) & (length < size), height, -np.inf)
