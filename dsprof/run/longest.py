"""The part of a run that reports are of: one launch of one engine."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dsprof.run.table import keys, where


def longest_part(steps: pd.DataFrame) -> pd.DataFrame:
    """The timed rows of `Run.steps` of the (segment, engine) that took most time."""
    timed = where(steps, steps["seconds"].notna())
    if timed.empty:
        return timed
    number = keys(timed, "segment", "engine")
    longest = np.bincount(number, timed["seconds"].to_numpy()).argmax()
    return where(timed, number == longest)
