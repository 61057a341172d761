"""How long a training had lasted, finer than whole seconds: as ms-swift's records tell it, which
print its mean time of a step as well."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from dsprof.run.table import Numbers

#: Half of the last digit of a whole second, which clocks cut off.
HALF: Final = 0.5


def finer(bars: pd.DataFrame) -> pd.DataFrame:
    """With the `moment` of each, seconds since the bar began, in the middle of where `elapsed` says
    it can be, and by how much that is `unsure` at most.

    A mean time of a step (`pace`, seconds), or the steps of a second (`rate`), tells it by the
    steps it is of: those of this launch, of which ms-swift's first versions leave one out. It is
    taken where one number of steps before it agrees with the whole seconds of all records.

    Args:
        bars: with `segment`, `source`, `step`, `elapsed`, `pace` and `rate`.
    """
    told = bars.assign(moment=bars["elapsed"] + HALF, unsure=HALF)
    if bars[["pace", "rate"]].isna().all(axis=None):
        return told
    pace, relative = _mean_times(bars)
    for _, rows in told[pace > 0].groupby(["segment", "source"]):
        mine = told.index.get_indexer(rows.index)
        for before in _steps_before(rows, pace[mine]):
            passed = (rows["step"] - before) * pace[mine]
            unsure = passed * relative[mine]
            if _agrees(passed - rows["elapsed"], unsure):
                better = (unsure < HALF).to_numpy()
                told.loc[rows.index[better], "moment"] = passed[better]
                told.loc[rows.index[better], "unsure"] = unsure[better]
                break
    return told


def _agrees(beyond: pd.Series[float], unsure: pd.Series[float]) -> bool:
    """Whether so much more than whole seconds may be what was cut off each, or rounded, as newer
    versions do."""
    return any(
        beyond.between(least - unsure, least + 2 * HALF + unsure).all() for least in (0.0, -HALF)
    )


def _steps_before(rows: pd.DataFrame, pace: Numbers) -> Iterator[int]:
    """How many steps the mean may leave out: none, the first, or all of the launches before."""
    yield 0
    yield 1
    last = int(np.argmax(pace))  # of the longest steps: their number is the surest
    own = round(float(rows["elapsed"].iloc[last] / pace[last]))
    yield int(rows["step"].iloc[last]) - own


def _mean_times(bars: pd.DataFrame) -> tuple[Numbers, Numbers]:
    """Seconds of a step in the mean, NaN where none is told, and by which part these may be off,
    since digits are cut."""
    pace, rate = (bars[name].to_numpy(float) for name in ("pace", "rate"))
    said = np.where(np.isfinite(pace), pace, rate)
    said = np.where(said > 0, said, np.nan)
    mean = np.where(np.isfinite(pace), said, 1 / said)
    return mean, _last_digits(said) / 2 / said


def _last_digits(values: Numbers) -> npt.NDArray[np.float64]:
    """What one more in the last digit of each makes, by its shortest decimal."""
    exponents = [
        int(Decimal(repr(value)).as_tuple().exponent) if np.isfinite(value) else 0
        for value in values.tolist()
    ]
    return np.power(10.0, exponents)
