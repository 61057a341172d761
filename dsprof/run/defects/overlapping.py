"""Times that are means over the last steps, in lines that stand closer together than that."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dsprof.run.repairs import Outcome, Source, met
from dsprof.run.table import Codes, among, where, whole

_PRINTER = ("source", "segment", "engine", "rank")


def overlapping_windows(events: pd.DataFrame, source: Source) -> Outcome:
    """Such lines tell of the same steps again and again: one long step is in all of them, and the
    first one in more than its share. Of each window of lines the last is kept: its mean is that of
    these steps, none of which is known by itself.
    """
    if not among(events["pattern"], source.windows).any():
        return events, None
    seconds, steps = events["seconds"].copy(), events["steps"].copy()
    repeated = []
    timed = events["seconds"].notna() & events["step"].notna()
    for pattern, width in source.windows.items():
        rows = where(events, timed & among(events["pattern"], [pattern]))
        for _, part in rows.groupby(list(_PRINTER), observed=True, dropna=False):
            covered = _covered(whole(part["step"]), width)
            kept = covered > 0
            seconds.loc[part.index[~kept]] = np.nan
            steps.loc[part.index[kept]] = covered[kept]
            repeated.append(part[~kept])
    if not any(map(len, repeated)):
        return events, None
    text = (
        "each time is a mean over the last steps, of which lines that stand this close together "
        "tell again and again: of each window the last line was kept"
    )
    fixed = events.assign(seconds=seconds, steps=steps)
    return fixed, met("overlapping-windows", "repair", text, pd.concat(repeated))


def _covered(step: Codes, width: int) -> Codes:
    """For how many steps the mean of each row stands, the last `width` of which are in it; 0 for
    what others tell as well. What is left at the end, not yet a window, is not told but alone.
    """
    told = np.unique(step)
    apart = int(np.median(np.diff(told))) if len(told) > 1 else width
    if apart >= width:
        return np.full(len(step), width)
    begin = max(told[0] - apart, 0)  # no step lies before the first
    window = (told - begin - 1) // width
    ends = told[np.append(window[1:] != window[:-1], [True])]
    if len(ends) > 1 and ends[-1] + apart <= begin + (window[-1] + 1) * width:
        ends = ends[:-1]
    place = np.minimum(np.searchsorted(ends, step), len(ends) - 1)
    return np.where(ends[place] == step, np.diff(ends, prepend=begin)[place], 0)
