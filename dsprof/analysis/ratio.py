"""The ratio of two mean step times: its interval, and what that interval allows to say.

Step times of a run are correlated (a slow minute is slow throughout), so the interval comes from a
moving-block bootstrap (Künsch 1989), which draws whole stretches instead of single steps.
"""

from __future__ import annotations

import math
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Answer = Literal["regression", "improvement", "none", "cannot tell"]

_DRAWS: Final = 4000
_HOPE: Final = 100  # times the rows there are; to ask for more would not be realistic
_LEVEL: Final = 0.95
_MOST: Final = 20_000  # rows, evenly spread; more would not change the result
_SEED: Final = 20_231_115  # fixed, so that the same two runs get the same answer


def interval(first: Floats, second: Floats) -> tuple[float, float, float]:
    """The ratio of the means (second over first), and the ends of its 95 % interval."""
    first, second = _thinned(first), _thinned(second)
    chance = np.random.default_rng(_SEED)
    ratios = block_means(second, chance) / block_means(first, chance)
    ratio = float(second.mean() / first.mean())
    low, high = np.quantile(ratios, [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2])
    wider = _few_blocks(min(len(part) / _block_length(part) for part in (first, second)))
    return ratio, float(ratio - (ratio - low) * wider), float(ratio + (high - ratio) * wider)


def judge(low: float, high: float, tolerance: float) -> Answer:
    """The answer that an interval of the ratio allows, where differences up to `tolerance` do not
    matter.
    """
    if low > 1 + tolerance:
        return "regression"
    if high < 1 - tolerance:
        return "improvement"
    if low >= 1 - tolerance and high <= 1 + tolerance:
        return "none"
    return "cannot tell"


def rows_needed(ratio: float, low: float, high: float, tolerance: float, rows: int) -> int | None:
    """The number of rows at which the interval would no longer reach the nearer limit of the
    tolerance, given that its width shrinks with the square root of the rows; None if unrealistic.
    """
    room = min(abs(ratio - (1 + tolerance)), abs(ratio - (1 - tolerance)))
    if room < 1e-6:
        return None
    needed = math.ceil(rows * ((high - low) / 2 / room) ** 2)
    return needed if needed <= _HOPE * rows else None  # too near a limit to decide


def _few_blocks(blocks: float) -> float:
    """The factor by which an interval from few independent blocks must be wider: the quantile of
    Student's t over that of the normal distribution, and the small-sample correction of the
    variance.
    """
    from scipy.special import ndtri, stdtrit

    freedom, tail = max(1.0, blocks - 1), (1 + _LEVEL) / 2
    return float(stdtrit(freedom, tail) / ndtri(tail) * math.sqrt((freedom + 1) / freedom))


def block_means(values: Floats, chance: np.random.Generator) -> Floats:
    """Means of `_DRAWS` resamples that consist of whole blocks of `values`. [draws]

    Blocks wrap around the end, so that every value is equally likely to be drawn.
    """
    size = len(values)
    length = _block_length(values)
    sums = np.concatenate([[0.0], np.cumsum(np.concatenate([values, values[:length]]))])
    blocks = (sums[length:] - sums[:-length])[:size]
    drawn = chance.integers(0, size, size=(_DRAWS, max(1, round(size / length))))
    return np.asarray(blocks[drawn].mean(axis=1) / length)


def _block_length(values: Floats) -> int:
    """Rows per block: twice the lag at which the autocorrelation of step times vanishes, but at
    least the cube root and at most a quarter of the number of rows.
    """
    size = len(values)
    calm = values - values.mean()
    spread = float(np.dot(calm, calm))
    shortest, longest = math.ceil(math.cbrt(size)), max(1, size // 4)
    if spread == 0:
        return min(shortest, longest)
    noise = 2 / math.sqrt(size)
    lags = range(1, longest)
    free = next((k for k in lags if np.dot(calm[k:], calm[:-k]) / spread < noise), longest)
    return min(max(shortest, 2 * free), longest)


def _thinned(values: Floats) -> Floats:
    return values[:: max(1, -(-len(values) // _MOST))]
