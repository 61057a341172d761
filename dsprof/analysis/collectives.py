"""Communication calls by operation and size."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dsprof.run.table import (
    Codes,
    Numbers,
    among,
    numbers,
    plain,
    positions,
    runs,
    where,
    whole,
    within,
)

_MEBI = 1 << 20

#: Calls of at least this many bytes show what a link can do; smaller ones show latency.
LARGE = 16 * _MEBI
#: Calls below this are paid in latency rather than bandwidth on any fast link.
SMALL = _MEBI

#: Metrics of the straggler table: this rank beyond the fastest one, and the fastest one.
_LATE, _FASTEST = "comm_straggler", "comm_fastest_rank"

_RECEIVE = re.compile(r"recv|send", re.ASCII)
_GATHER = re.compile(r"all_?gather", re.ASCII)
#: What gathers into a list of tensors, as trainers do what they log: no sharded parameters.
INTO_LISTS = "all_gather"


def trusted(comm: pd.DataFrame) -> pd.DataFrame:
    """The calls whose duration and size can be believed.

    Where single calls are told, summary tables of the same calls are left out.
    """
    told = where(comm, comm["seconds"].gt(0) & comm["bytes"].gt(0) & comm["suspect"].isna())
    single = where(told, ~told["total"].astype(bool))
    return single if len(single) else told


def held_up(comm: pd.DataFrame) -> pd.DataFrame:
    """The same, with what of each call held its step up as its `seconds`, where that is known.

    A recording on the host knows no other duration. What was hidden altogether is no row, nor
    is a call from one rank to another: it waits for that rank's work, however little is sent.
    """
    exposed = comm["exposed_seconds"]
    receives = exposed.notna().to_numpy() & operations(comm, _RECEIVE)
    return trusted(where(comm.assign(seconds=exposed.fillna(comm["seconds"])), ~receives))


def operations(comm: pd.DataFrame, wanted: re.Pattern[str]) -> np.ndarray:
    """Which rows are of an operation that a pattern is found in: its words are few."""
    op = comm["op"].astype("category")
    return among(op, [word for word in op.cat.categories if wanted.search(str(word))])


def per_operation(comm: pd.DataFrame) -> pd.DataFrame:
    """`op` -> `seconds`, `bytes`, `count`, `small_seconds`, `small_count`, costliest first."""
    op = comm["op"].astype("category")
    words = ["", *op.cat.categories.astype("str")]
    seconds, count = numbers(comm["seconds"]), numbers(comm["count"].fillna(1))
    code = 2 * (whole(op) + 1) + (numbers(comm["bytes"]) < SMALL)
    columns = {"seconds": seconds, "bytes": numbers(comm["bytes"]) * count, "count": count}
    sums = {name: _sums(code, values, len(words)) for name, values in columns.items()}
    found = pd.DataFrame(
        {
            **{name: both.sum(axis=1) for name, both in sums.items()},
            **{f"small_{name}": sums[name][:, 1] for name in ("seconds", "count")},
        },
        index=pd.Index(words, dtype="str", name="op"),
    )
    found = found[np.bincount(code // 2, minlength=len(words)) > 0].drop(index="", errors="ignore")
    return found.sort_values("seconds", ascending=False)


def _sums(code: Codes, values: Numbers, size: int) -> Numbers:
    """Sums of what is known: of large and of small calls. [size, 2]"""
    known = values if np.isfinite(values.sum()) else np.where(np.isnan(values), 0.0, values)
    return np.asarray(np.bincount(code, known, 2 * size), np.float64).reshape(-1, 2)


def during_steps(comm: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    """Of single calls those of `steps`: others are of set-up, or of steps left out.

    A summary table counts those of set-up too: what it says of a step is an upper bound.
    """
    total = comm["total"].to_numpy(bool)
    if not total.any():
        return within(steps, comm, "segment", "engine", "step")
    return where(comm, total | (positions(steps, comm, "segment", "engine", "step") >= 0))


def told_once(comm: pd.DataFrame) -> pd.DataFrame:
    """Rows that count no call twice: single calls where any can be believed, else tables."""
    total = comm["total"].astype(bool)
    single, tables = where(comm, ~total), where(comm, total)
    return single if tables.empty or len(trusted(single)) else tables


def covered_steps(comm: pd.DataFrame, steps: pd.DataFrame) -> int | None:
    """Optimizer steps over which `comm` sums; None if no step is known.

    Single calls belong to the steps up to the mark behind them; a summary table sums since
    the start of the process.
    """
    known = where(comm, comm["step"].notna())
    if len(comm) and not comm["total"].astype(bool).any():
        stretches = runs(plain(known["segment"]), plain(known["step"]))
        marks = known[["segment", "step", "steps"]].iloc[stretches]
        covered = int(marks.drop_duplicates(["segment", "step"])["steps"].sum())
    elif len(known):
        covered = int(known.groupby("segment")["step"].max().sum())
    else:
        covered = 0 if steps.empty else int(steps["step"].max())
    return covered or None


def per_step(comm: pd.DataFrame, steps: pd.DataFrame) -> float | None:
    """What turns a sum over `comm` (as `during_steps` gives it) into one rank's optimizer step.

    None if no step is known.
    """
    covered = covered_steps(comm, steps)
    return 1.0 / (covered * max(1, comm["rank"].nunique())) if covered else None


@dataclass(frozen=True, slots=True)
class Waiting:
    """What DeepSpeed's straggler table says of the rank that prints it."""

    seconds: float  # beyond the fastest rank's calls, since the start
    share: float  # of its communication
    row: pd.Series[Any]  # the event that waited longest


def waiting(events: pd.DataFrame) -> Waiting | None:
    """The last straggler table of a log: this rank's wait against the fastest rank's calls."""
    rows = where(events, among(events["name"], [_LATE, _FASTEST]))
    if rows.empty:
        return None
    rows = rows[rows["segment"] == rows["segment"].max()]  # each launch counts from its own start
    rows = rows[rows["step"].fillna(-1) == rows["step"].fillna(-1).max()]
    late, fastest = rows[rows["name"] == _LATE], rows[rows["name"] == _FASTEST]
    if late.empty:
        return None
    waited, moved = float(late["seconds"].sum()), float(fastest["seconds"].sum())
    if waited + moved <= 0:
        return None
    row = late.iloc[int(late["seconds"].to_numpy().argmax())]
    return Waiting(waited, waited / (waited + moved), row)


def gathers(comm: pd.DataFrame) -> pd.DataFrame:
    """The calls of a `Run.comm` table that gather parameters, whatever the backend calls them."""
    return where(comm, _of_parameters(comm))


def apart_from_gathers(comm: pd.DataFrame) -> pd.DataFrame:
    """All other calls."""
    return where(comm, ~_of_parameters(comm))


def _of_parameters(comm: pd.DataFrame) -> np.ndarray:
    """A recording tells by what PyTorch's method the call was made; a log's words may differ."""
    listed = (comm["op"] == INTO_LISTS) & comm["exposed_seconds"].notna()
    return operations(comm, _GATHER) & ~listed.to_numpy(bool)
