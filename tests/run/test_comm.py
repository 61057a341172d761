"""Collectives: sizes, times, and bandwidths as nccl-tests computes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from dsprof.run import Run, from_events
from tests.run.run_rows import config, events, grammar_with


def run_of(*rows: dict[str, Any], world: int | None = 8) -> Run:
    told = [config("world_size", world)] if world else []
    return from_events(events([*told, *rows]), grammar=grammar_with())


def call(op: str, **more: Any) -> dict[str, Any]:
    return {
        "kind": "comm", "name": op, "seconds": 0.001, "bytes": 1e6, "count": 1, "rank": 0,
        "pattern": "deepspeed_comms.op",
    } | more  # fmt: skip


@pytest.mark.parametrize(
    ("op", "algbw", "busbw"),
    [
        ("all_reduce", 1e9, 1.75e9),  # S/t, 2(n-1)/n
        ("inference_all_reduce", 1e9, 1.75e9),
        ("all_gather_into_tensor", 8e9, 7e9),  # the shard is S/n of what is gathered
        ("reduce_scatter_tensor", 1e9, 0.875e9),  # S is the whole input
        ("all_to_all_single", 1e9, 0.875e9),
        ("broadcast", 1e9, 1e9),
        ("send", 1e9, 1e9),
    ],
)
def test_bandwidths_of_eight_ranks(op: str, algbw: float, busbw: float) -> None:
    row = run_of(call(op)).comm.iloc[0]
    assert row["algbw"] == pytest.approx(algbw)
    assert row["busbw"] == pytest.approx(busbw)


def test_without_a_world_size_only_what_needs_none_is_known() -> None:
    comm = run_of(call("all_reduce"), call("all_gather"), call("send"), world=None).comm
    assert comm["algbw"].isna().tolist() == [False, True, False]
    assert comm["busbw"].isna().tolist() == [True, True, False]


def told(**sizes: int) -> float:
    """Bus bandwidth of an all-reduce of 1 GB/s, where the layout alone tells the ranks."""
    rows = [{"kind": "config", "name": name, "value": size} for name, size in sizes.items()]
    run = from_events(events([*rows, call("all_reduce")]), grammar=grammar_with())
    return float(run.comm["busbw"].iloc[0])


def test_replicas_are_all_ranks_where_nothing_beside_them_divides_the_job() -> None:
    assert told(data_parallel_size=8, pipeline_parallel_size=1) == pytest.approx(1.75e9)


@pytest.mark.parametrize(
    "sizes",
    [
        {},
        {"pipeline_parallel_size": 4},
        {"pipeline_parallel_size": 1, "sequence_parallel_size": 2},
        {"pipeline_parallel_size": 1, "expert_parallel_size": 2},
    ],
)
def test_of_how_many_ranks_a_call_is_stays_unknown_where_they_may_be_divided(
    sizes: dict[str, int],
) -> None:
    assert np.isnan(told(data_parallel_size=8, **sizes))


def test_no_time_or_no_bytes_is_no_bandwidth() -> None:
    comm = run_of(call("all_reduce", seconds=0.0), call("barrier", bytes=0.0)).comm
    assert comm["algbw"].isna().all()


def test_a_later_summary_shows_what_is_new_since_the_earlier() -> None:
    table = {"pattern": "deepspeed_comms.summary"}
    comm = run_of(
        call("all_reduce", count=10, seconds=1.0, **table),
        call("all_reduce", count=15, seconds=1.25, **table),
        call("all_reduce", count=15, seconds=1.25, **table),
        call("all_reduce", count=2, seconds=0.5, bytes=8.0, **table),
    ).comm
    assert comm["total"].all()
    assert comm[["count", "seconds"]].to_numpy().tolist() == [[10, 1.0], [5, 0.25], [2, 0.5]]
    assert comm["algbw"][1] == pytest.approx(5 * 1e6 / 0.25)


def test_the_straggler_table_is_no_traffic() -> None:
    row = {"kind": "metric", "name": "comm_straggler", "seconds": 0.5, "text": "all_reduce"}
    assert len(run_of(row).comm) == 0


def test_a_recording_tells_group_and_exposed_time() -> None:
    comm = run_of(call("all_reduce", pattern=None, text="dp", value=0.0004)).comm
    assert (comm["group"][0], comm["exposed_seconds"][0]) == ("dp", 0.0004)
    logged = run_of(call("all_reduce", text="some_function")).comm
    assert logged["group"].isna().all()
    assert logged["phase"].isna().all()
    assert np.isnan(logged["exposed_seconds"][0])


def test_a_call_is_of_as_many_steps_as_lie_between_the_marks_around_it() -> None:
    table = call("all_reduce", pattern="deepspeed_comms.summary", step=10)
    comm = run_of(call("all_reduce", step=10, steps=10), call("broadcast", step=11), table).comm
    assert comm["steps"].tolist() == [10, 1, pd.NA]
