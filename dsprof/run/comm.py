"""Collectives: how much, how long, how fast, and whether the source can be believed.

Bandwidths follow nccl-tests (doc/PERFORMANCE.md): algbw = S/t and busbw = algbw x factor,
with n ranks and S the size of the whole tensor: the gathered output of all_gather, the
full input of reduce_scatter. DeepSpeed's logger gives the size of one argument: the local
shard of all_gather, the full input of reduce_scatter, the tensor itself otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from dsprof.events import Kind
from dsprof.run.ended import ended_by_others
from dsprof.run.table import Numbers, among, keys, numbers, of_kind, tidy

COLUMNS: Final = (
    "segment", "engine", "step", "steps", "rank", "op", "phase", "group", "bytes", "count",
    "seconds", "exposed_seconds", "algbw", "busbw", "suspect", "total", "source", "line",
)  # fmt: skip

#: Patterns of tables that sum up many calls end so.
TABLE: Final = ".summary"

_GATHERS: Final = ("all_gather", "allgather")
_SCATTERS: Final = ("reduce_scatter",)
_SUMS: Final = ("all_reduce", "allreduce", "inference_all_reduce")
_EXCHANGES: Final = ("all_to_all", "alltoall")

#: What makes groups of ranks that are no replicas of each other.
_DIVIDE: Final = (
    "tensor_parallel_size", "model_parallel_size", "sequence_parallel_size", "expert_parallel_size",
)  # fmt: skip

CUMULATIVE: Final = "total of totals: this version's summary adds up cumulative latencies"


def comm(
    events: pd.DataFrame,
    config: Mapping[str, Any],
    *,
    tables_suspect: bool = False,
    calls: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """One row per logged call (or per line of a summary table, `total` true).

    `bytes` is S of one call as the source logs it, `seconds` all `count` calls together.
    `algbw` and `busbw` are bytes per second, NaN where the ranks of the group are unknown.
    `exposed_seconds` is what the compute stream waited; only recordings measure it.
    `phase`: path of the phase it was issued in; only recordings know.
    `steps`: how many optimizer steps, up to its `step`, a call may be of.
    `calls`: those of recordings inside steps, where `events` do not hold all of them.
    Calls of a recorded process in a step that others have ended, and it has not, are left out.
    """
    rows = of_kind(events, Kind.COMM)
    if rows.empty and calls is None:
        return _none().copy()
    recorded = rows["pattern"].isna()
    if calls is not None:
        rows = rows[~(recorded & rows["step"].notna())]
        recorded = rows["pattern"].isna()
    elif recorded.any():
        rows = rows[~(recorded & ended_by_others(rows, events))]
        recorded = rows["pattern"].isna()
    found = _joined(_told(rows, recorded, tables_suspect=tables_suspect), calls)
    return _finished(found, _ranks(config))


@cache
def _none() -> pd.DataFrame:
    rows = of_kind(tidy(pd.DataFrame()), Kind.COMM)
    return _finished(_told(rows, rows["pattern"].isna(), tables_suspect=False), np.nan)


def _told(rows: pd.DataFrame, recorded: pd.Series[bool], *, tables_suspect: bool) -> pd.DataFrame:
    total = of_a_table(rows)
    suspect = pd.Series(pd.NA, index=rows.index, dtype="str")
    found = rows[["segment", "engine", "step", "rank", "bytes", "seconds", "source", "line"]]
    found = found.assign(
        op=rows["name"],
        phase=_phases(rows["raw"].where(recorded)),
        steps=rows["steps"].fillna(1).mask(total),
        group=rows["text"].where(recorded),
        count=rows["count"].fillna(1),
        exposed_seconds=rows["value"].where(recorded),
        total=total,
        suspect=suspect.mask(total & tables_suspect, CUMULATIVE),
        caller=rows["text"].astype("category"),
    )
    return _differences(found)


def _finished(found: pd.DataFrame, world: float) -> pd.DataFrame:
    """With bandwidths, where `world` ranks are in each call."""
    found["algbw"], found["busbw"] = _bandwidths(found, world)
    return found[list(COLUMNS)].reset_index(drop=True)


def _ranks(config: Mapping[str, Any]) -> float:
    """How many ranks a call is of: all of them, NaN if unknown.

    Where only the replicas are told, as by DeepSpeed's own dump of its settings, they are all,
    unless something beside them divides the ranks.
    """
    replicas = config.get("data_parallel_size")
    divided = any(config.get(name, 1) != 1 for name in _DIVIDE)
    alone = config.get("pipeline_parallel_size") == 1 and not divided
    return config.get("world_size") or (replicas if alone else None) or np.nan


def _phases(paths: pd.Series[Any]) -> pd.Series[Any]:
    """What lies above each path, if anything does."""
    above = paths.astype("str").str.replace(r"(^|/)[^/]*$", "", regex=True)
    return above.mask(above == "")


def _joined(found: pd.DataFrame, calls: pd.DataFrame | None) -> pd.DataFrame:
    if calls is None:
        return found
    nothing = pd.Categorical.from_codes(np.full(len(calls), -1, np.int8), pd.Index([], dtype="str"))
    calls = calls.assign(total=False, suspect=nothing, steps=np.int8(1))
    if found.empty:
        return calls
    words = dict.fromkeys(("op", "phase", "group", "source", "suspect"), "str")
    together = pd.concat([found.astype(words), calls.astype(words)], ignore_index=True)
    return together.astype({"op": "category", "source": "category"})


def of_a_table(rows: pd.DataFrame) -> npt.NDArray[np.bool_]:
    """Which rows sum up many calls."""
    patterns = rows["pattern"].array.categories
    return among(rows["pattern"], [one for one in patterns if one.endswith(TABLE)])


def _differences(found: pd.DataFrame) -> pd.DataFrame:
    """Summary tables count from the start of the process: what is new since the last one."""
    tables = found[found["total"]]
    by = tables.groupby(
        [keys(tables, "segment", "source", "rank", "op", "caller"), numbers(tables["bytes"])]
    )
    before = by[["count", "seconds"]].shift()
    new = tables[["count", "seconds"]].astype("float64") - before.astype("float64")
    restarted = (new < 0).any(axis=1) | before["count"].isna()
    for column in ("count", "seconds"):
        kept = new[column].where(~restarted, tables[column].astype("float64"))
        found.loc[tables.index, column] = kept
    return found[~found["total"] | (found["count"] > 0)]


def _bandwidths(found: pd.DataFrame, world: float) -> tuple[Numbers, Numbers]:
    """algbw and busbw of each row; NaN where size, time or the number of ranks is missing."""
    ops = found["op"].cat.categories
    gathers, scatters, sums, exchanges = (
        among(found["op"], ops[ops.str.startswith(words)])
        for words in (_GATHERS, _SCATTERS, _SUMS, _EXCHANGES)
    )
    size = numbers(found["bytes"]) * np.where(gathers, world, 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        algbw = size * numbers(found["count"]) / numbers(found["seconds"])
    algbw[~np.isfinite(algbw) | (algbw <= 0)] = np.nan
    shard = (world - 1) / world
    factor = np.select([gathers | scatters | exchanges, sums], [shard, 2 * shard], 1.0)
    return algbw, algbw * factor
