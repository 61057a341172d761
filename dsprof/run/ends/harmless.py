"""What looks like a failure and ended no training."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from dsprof.events import Kind
from dsprof.run.table import among, where

_NOT_WELL: Final = ("exit", "signal", "gone", "left", "root-cause", "killed-by-launcher")

#: What a trainer says when it has trained as much as it was asked to.
OVER: Final = ("training_over", "train_runtime")

#: What a fused optimizer's build says that failed; the compiler names no extension.
_FUSED: Final = r"^nvcc fatal|'fused_adam'"

Flags = npt.NDArray[np.bool_]


def harmless(events: pd.DataFrame, rows: pd.DataFrame) -> Flags:
    """Exceptions that Python only printed, builds that something else took the place of, pods that
    found a node later, time limits of tests, and what came when all had ended well.

    Args:
        events: tidy events.
        rows: problems among them.
    """
    printed, behind = _only_printed(events, rows), _behind_success(events, rows)
    over = _behind_training(events, rows)
    waited = _before(events, rows, "not-scheduled", "pod_scheduled")
    tested = _before(events, rows, "overdue", "tests_over")
    found: Flags = (printed | behind | over | waited | tested | _replaced(rows)).to_numpy(bool)
    return found


def _replaced(rows: pd.DataFrame) -> pd.Series[bool]:
    """Builds of a fused optimizer that failed before the engine said that it takes PyTorch's."""
    told = where(rows, rows["kind"] == "optimizer-fallback")
    found = pd.Series(data=False, index=rows.index)
    if told.empty:
        return found
    failed = rows["kind"].eq("build-failed") & rows["text"].astype("str").str.contains(_FUSED)
    for (segment, source), here in told.groupby(["segment", "source"], observed=True):
        mine = (rows["segment"] == segment) & (rows["source"] == source)
        found |= (mine & failed & (rows["line"] < here["line"].max())).fillna(value=False)
    return found.astype(bool)


def _before(events: pd.DataFrame, rows: pd.DataFrame, kind: str, end: str) -> pd.Series[bool]:
    """Problems of a kind in front of a line of their source that shows what became of them: a pod
    that no node could take found one, tests went on behind a time limit of theirs."""
    found = pd.Series(data=False, index=rows.index)
    if not (waits := rows["kind"].eq(kind)).any():
        return found
    told = where(events[["source", "line"]], among(events["name"], [end]))
    last = told.groupby("source", observed=True)["line"].max().to_dict()
    ends = rows["source"].astype("object").map(last).astype("float64")
    return (waits & rows["line"].lt(ends)).fillna(value=False).astype(bool)


def _only_printed(events: pd.DataFrame, rows: pd.DataFrame) -> pd.Series[bool]:
    """Exceptions of destructors, threads and the like, with all of their chain: no process ends
    of them."""
    printed, chained = (
        _places(events, name) for name in ("printed_exception", "chained_exception")
    )
    if not printed:
        return pd.Series(data=False, index=rows.index)
    ordered = rows.sort_values("line", kind="stable")
    found: list[bool] = []
    before: dict[tuple[Any, ...], bool] = {}  # of the last row of each source and rank
    ranks = ordered["rank"].astype("object").fillna(-1)
    for source, line, rank in zip(ordered["source"], ordered["line"], ranks, strict=True):
        goes_on = (source, line) in chained and before.get((source, rank), False)
        found.append((source, line) in printed or goes_on)
        before[source, rank] = found[-1]
    return pd.Series(found, ordered.index, dtype=bool).reindex(rows.index)


def _places(events: pd.DataFrame, name: str) -> set[tuple[Any, ...]]:
    marks = where(events[["source", "line"]], among(events["name"], [name])).dropna(subset="line")
    return set(zip(marks["source"], marks["line"], strict=True))


def _behind_training(events: pd.DataFrame, rows: pd.DataFrame) -> pd.Series[bool]:
    """What a scheduler ended when training was over."""
    found = pd.Series(data=False, index=rows.index)
    cancelled = rows["kind"] == "cancelled"
    return cancelled & behind_training(events, rows) if cancelled.any() else found


def behind_training(events: pd.DataFrame, rows: pd.DataFrame) -> pd.Series[bool]:
    """Problems behind a trainer's word that it had trained enough, if no training began behind
    that."""
    found = pd.Series(data=False, index=rows.index)
    overs = where(events, among(events["name"], OVER) & events["line"].notna())
    if overs.empty:
        return found
    marks = events["step"].notna() & events["line"].notna() & (events["kind"] != Kind.PROBLEM)
    stepped = where(events, marks)
    for (segment, source), here in overs.groupby(["segment", "source"], observed=True):
        last = here["line"].max()
        mine = (rows["segment"] == segment) & (rows["source"] == source)
        on = (stepped["segment"] == segment) & (stepped["source"] == source)
        if not (on & (stepped["line"] > last)).any():
            found |= (mine & (rows["line"] > last)).fillna(value=False).astype(bool)
    for segment, at in overs.groupby("segment")["at"].max().dropna().items():  # in other files
        if not ((stepped["segment"] == segment) & (stepped["at"] > at)).any():
            found |= (rows["segment"] == segment) & (rows["at"] > at)
    return found


def _behind_success(events: pd.DataFrame, rows: pd.DataFrame) -> pd.Series[bool]:
    """What a source prints behind the good ends of all processes of its launch: it ended none."""
    found = pd.Series(data=False, index=rows.index)
    ends = where(events, among(events["name"], ["exited_well"]) & events["line"].notna())
    if ends.empty:
        return found
    sizes = events[events["name"] == "world_size"].groupby("segment")["value"].max()
    failed = rows["kind"].isin(_NOT_WELL) & rows["value"].ne(0)
    for segment, here in ends.groupby("segment"):
        mine = rows["segment"] == segment
        ended = len(here[["source", "host", "value"]].drop_duplicates())
        if ended < sizes.get(segment, 1) or (mine & failed).any():
            continue
        last = here.groupby("source", observed=True)["line"].max().to_dict()
        behind = rows["line"] > rows["source"].astype("object").map(last).astype("float64")
        found |= mine & behind.fillna(value=False).astype(bool)
    return found
