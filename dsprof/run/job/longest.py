"""The part of a run that reports are of: one launch of one engine."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dsprof.recording.layout import SUFFIX
from dsprof.run.table import keys, where


def longest_part(steps: pd.DataFrame) -> pd.DataFrame:
    """The timed rows of `Run.steps` of the (segment, engine) that took most time.

    Of those that were recorded, if any was: a run of recordings takes no phases from a log.
    """
    timed = where(steps, steps["seconds"].notna())
    if timed.empty:
        return timed
    number = keys(timed, "segment", "engine")
    seconds = np.bincount(number, timed["seconds"].to_numpy())
    last = np.zeros(len(seconds), np.int64)
    last[number] = np.arange(len(number))  # of each the row that comes last
    recorded = np.array([str(one).endswith(SUFFIX) for one in timed["source"].iloc[last]])
    longest = np.where(recorded | ~recorded.any(), seconds, -1.0).argmax()
    return where(timed, number == longest)
