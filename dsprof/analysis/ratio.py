"""The ratio of two mean step times: its interval, and what that interval allows to say.

Step times of a run are correlated (a slow minute is slow throughout), so the interval comes from a
moving-block bootstrap (Künsch 1989), which draws whole stretches instead of single steps.
"""

from __future__ import annotations

import math
from typing import Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Answer = Literal["regression", "improvement", "none", "cannot tell"]

_DRAWS: Final = 4000
_HOPE: Final = 100  # times the rows there are; to ask for more would not be realistic
_LEVEL: Final = 0.95
_MOST: Final = 20_000  # rows; more would not change the result
_SEED: Final = 20_231_115  # fixed, so that the same two runs get the same answer


class Times(NamedTuple):
    """Seconds of a step by rows, and the number of steps that each row is the mean of."""

    seconds: Floats
    steps: Floats

    @property
    def mean(self) -> float:
        return float(np.average(self.seconds, weights=self.steps))


def interval(first: Times, second: Times) -> tuple[float, float, float]:
    """The ratio of the means (second over first), and the ends of its 95 % interval."""
    first, second = _merged(first), _merged(second)
    chance = np.random.default_rng(_SEED)
    ratios = block_means(second, chance) / block_means(first, chance)
    ratio = second.mean / first.mean
    low, high = np.quantile(ratios, [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2])
    blocks = min(len(one.seconds) / _block_length(one.seconds) for one in (first, second))
    wider = _few_blocks(blocks)
    return ratio, ratio * float(low / ratio) ** wider, ratio * float(high / ratio) ** wider


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


def block_means(times: Times, chance: np.random.Generator) -> Floats:
    """Means of `_DRAWS` resamples that consist of whole blocks of rows. [draws]

    Blocks wrap around the end, so that every row is equally likely to be drawn.
    """
    size = len(times.seconds)
    length = _block_length(times.seconds)
    drawn = chance.integers(0, size, size=(_DRAWS, max(1, round(size / length))))
    spent, steps = (
        _block_sums(values, length)[drawn].sum(axis=1)
        for values in (times.seconds * times.steps, times.steps)
    )
    return np.asarray(spent / steps)


def _block_sums(values: Floats, length: int) -> Floats:
    """The sum of the block that begins with each value."""
    sums = np.concatenate([[0.0], np.cumsum(np.concatenate([values, values[:length]]))])
    return np.asarray((sums[length:] - sums[:-length])[: len(values)])


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


def _merged(times: Times) -> Times:
    """At most `_MOST` rows, each the mean of as many neighbours: no step is left out."""
    size = len(times.seconds)
    heads = np.arange(0, size, max(1, -(-size // _MOST)))
    steps = np.add.reduceat(times.steps, heads)
    return Times(np.add.reduceat(times.seconds * times.steps, heads) / steps, steps)
