"""Between which phases the time lies that no phase covers, from the moments of a recording."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from dsprof.run.recorded.moments import CALL, PHASE, STEP, UNKNOWN, at_unknown_times
from dsprof.run.steps.words import holder_of, own_name

_CONTAINER: Final = ["step", "rank"]
_NONE: Final = pd.DataFrame(
    {"seconds": [], "count": [], "longest": [], "step": [], "source": [], "line": []},
    pd.MultiIndex.from_arrays([[], []], names=["before", "after"]),
)


def gaps(moments: pd.DataFrame, inside: str = "") -> pd.DataFrame:
    """Times between the parts of a step, by the names of the parts `before` and `after` (index),
    longest first.

    The name is "" where the step (or phase) itself begins or ends. Parts are phases and calls.
    `seconds` is the mean per step and rank that has such parts; `count` how often the two follow
    each other; `longest`, `step`, `source` and `line` are of the longest one and of the row behind
    it. Steps are left out in which it is not known when a phase was, or when calls held a
    rank up.

    Args:
        moments: of whole steps of one engine, see `Run.moments`.
        inside: path of a phase; between its own parts then, not between those of the step.
    """
    rows = _rows(moments, inside)
    if rows.empty:
        return _NONE
    whole = rows["whole"].to_numpy(bool)
    begin = rows["begin"].to_numpy(np.int64)
    end = begin + np.round(rows["seconds"].to_numpy(float) * 1e9).astype(np.int64)
    reached = pd.Series(np.where(whole, begin, end)).groupby(whole.cumsum()).cummax().to_numpy()
    name = np.where(whole, "", rows["path"].map(own_name))
    part, last = np.flatnonzero(~whole), np.flatnonzero(np.append(whole, True)[1:])
    to = np.concatenate([begin[part], end[whole]])
    since = np.concatenate([reached[part - 1], reached[last]])
    found = rows.iloc[np.concatenate([part, last])][["step", "source", "line"]].assign(
        before=np.concatenate([name[part - 1], name[last]]),
        after=np.concatenate([name[part], np.full(len(last), "", object)]),
        longest=(to - since).clip(0) * 1e-9,
    )
    by = found.sort_values("longest", ascending=False, kind="stable").groupby(["before", "after"])
    sums = by["longest"].agg(seconds="sum", count="size")
    sums["seconds"] /= len(rows.drop_duplicates(_CONTAINER))
    told: pd.DataFrame = sums.join(by.first())
    return told.sort_values("seconds", ascending=False)


def _rows(moments: pd.DataFrame, inside: str) -> pd.DataFrame:
    """Each step (or phase) and behind it its parts, in order of time."""
    what, path = moments["what"], moments["path"]
    parts = what.isin([PHASE, CALL]) & (path.map(holder_of) == inside)
    whole = (what == PHASE) & (path == inside) if inside else what == STEP
    unknown = parts & at_unknown_times(moments)
    known = ~unknown.groupby([moments[name] for name in _CONTAINER]).transform("any")
    parts &= moments["begin"].ne(UNKNOWN)
    rows = moments[known & (parts | whole)].assign(whole=whole)
    rows = rows.sort_values([*_CONTAINER, "begin", "whole"], ascending=[True, True, True, False])
    of_step = rows["whole"].groupby([rows[name] for name in _CONTAINER])
    held = of_step.cumsum() > 0  # without parts that no such step or phase holds
    if not inside:
        held &= of_step.transform("size") > 1  # nor steps of which no phase is left
    return rows[held].reset_index(drop=True)
