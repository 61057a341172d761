"""How far training had come where a problem stands: the steps it had done, and the collectives."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pandas as pd

from dsprof.events import Kind
from dsprof.run.recorded.spans import recorded
from dsprof.run.steps.bars import of_training
from dsprof.run.table import Numbers, among, where

#: What a traceback passes through is told of the step that it ended.
_TRACEBACK: Final = "failures.traceback"
#: So many calls no rank of a process group is behind: the others wait for it in every step.
_FURTHEST: Final = 10_000


def progress(events: pd.DataFrame, rows: pd.DataFrame) -> tuple[Numbers, Numbers]:
    """The last step complete before each row, and how many steps its source printed behind it
    in the same launch.

    Phases of a recording, such as a save, also belong to a step that has not ended yet.
    """
    step = rows["step"].to_numpy(dtype=float, na_value=np.nan)
    behind = np.zeros(len(rows))
    places = rows[["segment", "source", "line"]].dropna()
    if places.empty:
        return step, behind
    marks = events.loc[
        events["step"].notna()
        & events["line"].notna()
        & among(events["kind"], [Kind.METRIC, Kind.PHASE])
        & ~among(events["pattern"], [_TRACEBACK])
        & ~recorded(events)
        & events["segment"].isin(places["segment"].unique()),
        ["segment", "source", "step", "line"],
    ].drop_duplicates(["segment", "source", "step"], keep="last")
    printed = dict(list(marks.groupby(["segment", "source"], observed=True)))
    for key, here in places.groupby(["segment", "source"], observed=True):
        if key in printed:
            at = here.index.to_numpy()
            step[at], behind[at] = _within(printed[key], here["line"], step[at])
    return np.fmax(step, _counted(events, rows)), behind


def _counted(events: pd.DataFrame, rows: pd.DataFrame) -> Numbers:
    """How many steps the bar of the training had counted before each row that no later step
    follows; NaN where there is none. It is redrawn more often than a trainer prints a step."""
    found = np.full(len(rows), np.nan)
    bars = of_training(events)
    if bars.empty:
        return found
    keys = ["segment", "source"]
    last = bars.sort_values("line").drop_duplicates(keys, keep="last")
    last = rows[[*keys, "line"]].astype({"source": "str"}).merge(last, "left", on=keys)
    behind = last["line_x"] >= last["line_y"]  # on one line, a bar stands in front
    return last["step"].where(behind).to_numpy(dtype=float, na_value=np.nan)


def _within(marks: pd.DataFrame, line: pd.Series[Any], own: Numbers) -> tuple[Numbers, Numbers]:
    """Of lines among a source's steps: the step before each, and how many lie behind it."""
    marks = marks.sort_values("line")
    steps = marks["step"].to_numpy(dtype=float)
    before = np.searchsorted(marks["line"].to_numpy(dtype=float), line.to_numpy(dtype=float))
    first = np.where(own >= steps[0], np.nan, own)  # what lies ahead of all steps is of none
    last = np.where(before > 0, np.fmin(steps[np.maximum(before, 1) - 1], own), first)
    return last, (len(steps) - before).astype(float)


def reached(events: pd.DataFrame, rows: pd.DataFrame) -> pd.Series[Any]:
    """How many collectives the rank of each row had started, where its launch says so of several
    ranks of one process group; else the number of the one that it waited in, if all may have
    waited in one group. Each group counts its own: numbers of two groups do not compare.

    Args:
        events: tidy events.
        rows: problems among them, each with the `count` of its event.
    """
    enqueued = among(events["name"], ["last_enqueued_work"])
    told = where(events[["segment", "text", "rank", "value"]], enqueued)
    told = told.dropna(subset=["rank", "value"]).fillna({"text": ""})
    found = pd.Series(np.nan, rows.index)
    if told.empty and rows["count"].isna().all():
        return found
    last = told.groupby(["segment", "text", "rank"], observed=True)["value"].max()
    ranks = last.groupby(["segment", "text"], observed=True).size()
    largest = ranks[ranks > 1].sort_values(kind="stable").groupby("segment").tail(1)
    for segment in rows["segment"].unique():
        here = rows["segment"] == segment
        if segment in largest.index.unique("segment"):
            group = largest[segment].index[0]
            found[here] = rows.loc[here, "rank"].map(last[segment, group]).astype("float64")
        elif _in_one_group(rows[here & rows["count"].notna()]):
            found[here] = rows.loc[here, "count"].astype("float64")
    return found


def _in_one_group(waiting: pd.DataFrame) -> bool:
    """Whether collectives that timed out may be of one process group: of one kind, with numbers
    that are near each other, and one of each rank, as each group has a watchdog of its own."""
    if len(waiting["text"].drop_duplicates()) != 1:
        return False
    alone = waiting.groupby("rank", dropna=False)["count"].nunique().le(1).all()
    return bool(alone) and waiting["count"].max() - waiting["count"].min() <= _FURTHEST
