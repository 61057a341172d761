"""Communication calls by operation and size."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd

from dsprof.analysis.breakdown import regular_steps, without_first
from dsprof.analysis.compared import compared_steps
from dsprof.run.table import (
    STEP,
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

#: Calls of at least this many bytes show a link's bandwidth; smaller ones show its latency.
LARGE = 16 * _MEBI
#: The time of calls with fewer bytes is latency rather than bandwidth on any fast link.
SMALL = _MEBI

#: Metrics of DeepSpeed's straggler table: time beyond the fastest rank, and the fastest rank's.
_LATE, _FASTEST = "comm_straggler", "comm_fastest_rank"

#: Collectives that end on all ranks together. The root of a broadcast waits for nobody.
TOGETHER: Final = re.compile(r"all_reduce|all_gather|reduce_scatter|barrier", re.ASCII)
BARRIER: Final = re.compile(r"barrier", re.ASCII)
_RECEIVE = re.compile(r"recv|send", re.ASCII)
_GATHER = re.compile(r"all_?gather", re.ASCII)
#: The operation that gathers into a list of tensors, as trainers do with values that they log. It
#: gathers no sharded parameters.
INTO_LISTS = "all_gather"


class Judged(NamedTuple):
    """The calls that numbers are of, and how many steps made them, None if no step is known.

    `visits`: the same, each step counted for every rank that has calls in it; else the ranks.
    `warm`: how it is said that first steps, which warm up, are left out; "" if none is.
    """

    calls: pd.DataFrame
    steps: int | None
    visits: int
    warm: str


def of_the_job(comm: pd.DataFrame) -> pd.DataFrame:
    """Without what DeepSpeed's logger of calls adds for its own summary."""
    return where(comm, comm["op"] != "log_summary_barrier").reset_index(drop=True)


def trusted(comm: pd.DataFrame) -> pd.DataFrame:
    """The calls whose duration and size are plausible.

    If single calls are logged, rows of summary tables are left out, which sum the same calls.
    """
    return _alone(where(comm, _plausible(comm) & comm["bytes"].gt(0)))


def _plausible(comm: pd.DataFrame) -> pd.Series[bool]:
    return comm["seconds"].gt(0) & comm["suspect"].isna()


def _alone(told: pd.DataFrame) -> pd.DataFrame:
    """The single calls, if there are any, else the rows of summary tables."""
    single = where(told, ~told["total"].astype(bool))
    return single if len(single) else told


def held_up(comm: pd.DataFrame) -> pd.DataFrame:
    """Like `trusted`, with the exposed time of each call as its `seconds`, if that is known.

    A recording on the host knows no other duration. Its barriers, which send nothing, hold up a
    step, too. Calls that were entirely hidden are left out, and so are sends and receives, which
    wait for the other rank's work however little is sent.
    """
    exposed = comm["exposed_seconds"]
    known = exposed.notna().to_numpy()
    receives, barriers = known & operations(comm, _RECEIVE), known & operations(comm, BARRIER)
    comm = comm.assign(seconds=exposed.fillna(comm["seconds"]))
    return _alone(where(comm, _plausible(comm) & (comm["bytes"].gt(0) | barriers) & ~receives))


def operations(comm: pd.DataFrame, wanted: re.Pattern[str]) -> np.ndarray:
    """Which rows have an operation in whose name the pattern is found. [rows]

    The pattern is tried once per distinct name, because there are few.
    """
    op = comm["op"].astype("category")
    return among(op, [word for word in op.cat.categories if wanted.search(str(word))])


def per_operation(comm: pd.DataFrame) -> pd.DataFrame:
    """Sums by `op` (index): `seconds`, `bytes`, `count`, and of calls below `SMALL` bytes
    `small_seconds` and `small_count`. The costliest operation comes first.
    """
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
    """Sums of the known values, of large and of small calls. [size, 2]"""
    known = values if np.isfinite(values.sum()) else np.where(np.isnan(values), 0.0, values)
    return np.asarray(np.bincount(code, known, 2 * size), np.float64).reshape(-1, 2)


def during_steps(comm: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    """Single calls in `steps`, without those during set-up or in other steps; and all summary rows.

    A summary table also counts calls during set-up, so what it gives for a step is an upper bound.
    """
    total = comm["total"].to_numpy(bool)
    if not total.any():
        return within(steps, comm, *STEP)
    return where(comm, total | (positions(steps, comm, *STEP) >= 0))


def told_once(comm: pd.DataFrame) -> pd.DataFrame:
    """Rows that count no call twice: single calls if any of them is plausible, else the summary
    tables.
    """
    total = comm["total"].astype(bool)
    single, tables = where(comm, ~total), where(comm, total)
    return single if tables.empty or len(trusted(single)) else tables


def judged_calls(comm: pd.DataFrame, steps: pd.DataFrame) -> Judged:
    """Calls of the steps that means are of; of all steps where none of those has any.

    Those of set-up are none of a step, nor are those behind the last one. Tables sum up all.
    """
    tables = bool(comm["total"].any())
    judged = [(regular_steps(steps), without_first(steps)), (steps, "")]
    for part, warm in [] if tables else judged:
        calls = during_steps(comm, part).reset_index(drop=True)
        if len(calls):
            return _judged(calls, calls, part, warm)
    sure = trusted(comm)
    return _judged(comm, sure if len(sure) else comm, steps)


def _judged(
    calls: pd.DataFrame, marks: pd.DataFrame, steps: pd.DataFrame, warm: str = ""
) -> Judged:
    """`calls`, by the steps that those of them in `marks` cover."""
    return Judged(
        calls, covered_steps(marks, steps), rank_steps(marks, steps) or ranks(calls), warm
    )


def ranks(comm: pd.DataFrame) -> int:
    """How many ranks tell of these calls, at least the one that does not name itself."""
    return max(1, comm["rank"].nunique())


def covered_steps(comm: pd.DataFrame, steps: pd.DataFrame) -> int | None:
    """The number of optimizer steps that `comm` covers; None if no step is known.

    Single calls belong to the steps up to the next step that is logged; a summary table sums since
    the start of the process.
    """
    return _covered(comm, steps, "segment")


def rank_steps(comm: pd.DataFrame, steps: pd.DataFrame) -> int | None:
    """The same, each step counted once for every rank that has calls in it: a rank may end fewer
    steps than another. A call without a rank is of the lowest one.
    """
    rank = comm["rank"]
    if rank.isna().any():
        comm = comm.assign(rank=rank.fillna(0 if rank.isna().all() else rank.min()))
    return _covered(comm, steps, "segment", "rank")


def _covered(comm: pd.DataFrame, steps: pd.DataFrame, *columns: str) -> int | None:
    """The steps of each process that `columns` tell apart, together."""
    known = where(comm, comm["step"].notna())
    if len(comm) and not comm["total"].astype(bool).any():
        heads = runs(*(plain(known[name]) for name in (*columns, "step")))
        marks = known[[*columns, "step", "steps"]].iloc[heads]
        covered = int(marks.drop_duplicates([*columns, "step"])["steps"].sum())
    elif len(known):
        covered = int(known.groupby(list(columns))["step"].max().sum())
    else:
        covered = 0 if steps.empty else int(steps["step"].max())
    return covered or None


def per_step(comm: pd.DataFrame, steps: pd.DataFrame) -> float | None:
    """The factor from a sum over `comm` (from `during_steps`) to one optimizer step of one rank.

    None if no step is known.
    """
    covered = rank_steps(comm, steps)
    return 1.0 / covered if covered else None


def waiting_share(comm: pd.DataFrame) -> float:
    """The part of the seconds of `held_up` calls in which ranks wait for the one that comes last.

    Ranks end a collective together, so the one that is held up least in the calls of a step, of one
    kind, size and group, came last most. Judged by evenly spread steps that most ranks report; 0
    where one rank alone is recorded.
    """
    calls = compared_steps(where(comm, comm["rank"].notna()))
    kinds = ["segment", "engine", "step", "op", "bytes", "group"]
    meet = where(calls, operations(calls, TOGETHER))
    each = meet.groupby([*kinds, "rank"], observed=True, dropna=False)["seconds"].sum()
    least = each.groupby(level=kinds, observed=True, dropna=False).transform("min")
    total = float(calls["seconds"].sum())
    return float((each - least).sum()) / total if total > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Waiting:
    """What DeepSpeed's straggler table says about the rank that prints it."""

    seconds: float  # beyond the fastest rank, in all calls since the launch began
    share: float  # of this rank's communication time
    row: pd.Series[Any]  # the event with the longest wait


def waiting(events: pd.DataFrame) -> Waiting | None:
    """The last straggler table of a log: this rank's wait beside the fastest rank's calls. None
    without such a table.
    """
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
    """The calls of a `Run.comm` table that gather parameters, under any backend's name for them."""
    return where(comm, _of_parameters(comm))


def apart_from_gathers(comm: pd.DataFrame) -> pd.DataFrame:
    """All other calls."""
    return where(comm, ~_of_parameters(comm))


def _of_parameters(comm: pd.DataFrame) -> np.ndarray:
    """Which calls may gather parameters. [rows]

    In a recording these are calls that hold up a phase: what its script gathers beside all phases
    (metrics; ZeRO-3's parameters for an average of them) is gathered when the script says so. Nor
    are they calls into lists there: names are those of PyTorch's methods. Logs tell no phase, and
    may use the same word for other calls.
    """
    beside = (comm["op"] == INTO_LISTS) | comm["phase"].isna()
    is_recorded = comm["exposed_seconds"].notna()
    return operations(comm, _GATHER) & ~(beside & is_recorded).to_numpy(bool)
