"""Steps of one of several engines that take turns, with what the others did meanwhile."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final

import numpy as np
import pandas as pd

from dsprof.run.recorded.moments import COLUMNS, PHASE, STEP, UNKNOWN, ends

if TYPE_CHECKING:
    from dsprof.run import Run

_KEY: Final = ["segment", "engine", "step"]
_OF: Final = " of engine "


def turns(
    run: Run, steps: pd.DataFrame, ranks: Collection[int] | None = None, *, outer: bool = False
) -> pd.DataFrame:
    """Like `Run.moments` of these steps of one engine, but each from when this engine's step before
    ended on that rank. What other engines did in that time is part of the step; its `path` ends
    with ` of engine 1`, its `engine` is theirs. Steps of which that is not known are left out.

    Args:
        steps: rows of `Run.steps`, of one launch and engine.
        ranks: those that are wanted; None for all.
        outer: leave out what lies inside phases.
    """
    if steps.empty:
        return pd.DataFrame(columns=list(COLUMNS))
    before = steps.assign(step=steps["step"] - 1)
    asked = pd.concat([before[_KEY], steps[_KEY], *_others(run, steps)]).drop_duplicates()
    moments = run.moments(asked, ranks, outer=outer)
    mine = moments["engine"] == steps["engine"].iloc[0]
    whole = moments[mine & (moments["what"] == STEP)]
    parts = pd.concat([_ends(moments[~mine]), moments[moments["what"] != STEP]])
    suffix = _OF + parts["engine"].astype("str")
    foreign = parts["engine"] != steps["engine"].iloc[0]
    parts = parts.assign(path=parts["path"].mask(foreign, parts["path"] + suffix))
    parts = parts.sort_values("begin", kind="stable")  # at the same moment an end comes first
    wanted = set(steps["step"].astype(int))
    found = [
        one
        for rank, rows in whole.groupby("rank")
        for one in _of_rank(rows, parts[parts["rank"] == rank], wanted)
    ]
    return pd.concat(found, ignore_index=True) if found else moments[:0]


def is_foreign(path: str) -> bool:
    """Whether it is, in `turns`, of another engine than the steps."""
    return _OF in path


def _ends(foreign: pd.DataFrame) -> pd.DataFrame:
    """Where steps of other engines end, as phases that take no time: what lies before is theirs."""
    rows = foreign[foreign["what"] == STEP]
    return rows.assign(what=PHASE, path="step", begin=ends(rows), seconds=0.0)


def _others(run: Run, steps: pd.DataFrame) -> list[pd.DataFrame]:
    """Steps of other engines that may have been under way meanwhile: one of them may have ended
    later, and one more on either side, since some ranks end a step before the last one does.
    """
    segment, engine = steps["segment"].iloc[0], steps["engine"].iloc[0]
    every = run.steps[run.steps["segment"] == segment]
    ended = every[every["engine"] == engine].set_index("step")["at"]
    since = ended.shift().fillna(ended)
    found = []
    foreign = every[every["engine"] != engine].sort_values("at")
    for _, rows in foreign.groupby("engine"):
        at = rows["at"].to_numpy()
        for step, end in zip(steps["step"], steps["at"], strict=True):
            first, last = np.searchsorted(at, [np.datetime64(since[step]), np.datetime64(end)])
            found.append(rows.iloc[max(0, first - 1) : last + 2][_KEY])
    return found


def _of_rank(
    whole: pd.DataFrame, parts: pd.DataFrame, wanted: Collection[int]
) -> list[pd.DataFrame]:
    """For each wanted step of a rank one row of it, and its parts."""
    end_of = dict(zip(whole["step"].astype(int), ends(whole).tolist(), strict=True))
    steps = pd.MultiIndex.from_frame(parts[["engine", "step"]])
    found = []
    for place in range(len(whole)):
        row = whole.iloc[[place]]
        step = int(row["step"].iloc[0])
        begin, end = end_of.get(step - 1), end_of[step]
        if step not in wanted or begin is None:
            continue
        inside = parts["begin"].between(begin, end, inclusive="left")
        met = steps[inside].append(pd.MultiIndex.from_frame(row[["engine", "step"]]))
        lost = parts["begin"].eq(UNKNOWN) & steps.isin(met)  # it may lie in any turn of its step
        some = parts[inside | lost].assign(step=step)
        found += [row.assign(begin=begin, seconds=(end - begin) * 1e-9), some]
    return found
