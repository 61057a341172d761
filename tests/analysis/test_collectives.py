"""Calls: which of them count, their sums, and what these are of one step."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
import pytest

from dsprof.analysis.collectives import (
    LARGE,
    SMALL,
    apart_from_gathers,
    covered_steps,
    during_steps,
    gathers,
    held_up,
    per_operation,
    per_step,
    told_once,
    trusted,
    waiting,
)


def calls(*rows: Mapping[str, object]) -> pd.DataFrame:
    base: dict[str, object] = {
        "segment": 0,
        "engine": 0,
        "step": 1,
        "steps": 1,
        "rank": 0,
        "total": False,
    }
    return pd.DataFrame([{**base, **row} for row in rows])


STEPS = pd.DataFrame({"segment": [0, 0], "engine": [0, 0], "step": [10, 20]})


def test_calls_cover_as_many_steps_as_their_marks_stand_for() -> None:
    told = calls(*[{"step": 10, "steps": 10}] * 3, *[{"step": 20, "steps": 10}] * 3)
    assert covered_steps(told, STEPS) == 20
    assert per_step(told, STEPS) == pytest.approx(1 / 20)


def test_steps_that_are_all_marked_count_once_each_and_in_each_launch() -> None:
    told = calls({"step": 1}, {"step": 1, "rank": 1}, {"step": 2}, {"segment": 1})
    assert covered_steps(told, STEPS) == 3


def test_a_step_counts_for_the_ranks_that_have_calls_in_it() -> None:
    told = calls({"step": 1}, {"step": 1, "rank": 1}, {"step": 2}, {"segment": 1})
    assert per_step(told, STEPS) == pytest.approx(1 / 4)
    tables = told.assign(total=True)  # two steps of rank 0, one more of its second launch
    assert per_step(tables, STEPS) == pytest.approx(1 / 4)


def test_calls_without_a_rank_are_of_the_rank_that_is_named_beside_them() -> None:
    told = calls({"rank": 1}, {"rank": pd.NA}, {"rank": pd.NA, "step": 2})
    assert per_step(told, STEPS) == pytest.approx(1 / 2)


def test_a_table_covers_all_steps_since_the_start() -> None:
    assert covered_steps(calls({"step": 20, "steps": pd.NA, "total": True}), STEPS) == 20
    assert covered_steps(calls({"step": pd.NA, "total": True}), STEPS) == 20


def test_calls_of_no_step_cover_none() -> None:
    assert covered_steps(calls({"step": pd.NA}), STEPS) is None
    assert per_step(calls({"step": pd.NA}), STEPS) is None


def sized(*rows: Mapping[str, object]) -> pd.DataFrame:
    """Single calls that a log times, but for what a row says otherwise."""
    base = {"op": "all_reduce", "count": 1.0, "exposed_seconds": None, "suspect": None}
    told = calls(*({"bytes": 4.0 * SMALL, "seconds": 0.1, **base, **row} for row in rows))
    types = {"op": "category", "exposed_seconds": "float64", "suspect": "str"}
    return told.astype(types)


def test_a_call_is_trusted_that_takes_time_moves_bytes_and_is_not_doubted() -> None:
    told = sized({}, {"seconds": 0.0}, {"bytes": 0.0}, {"suspect": "cumulative"})
    assert trusted(told).index.tolist() == [0]


def test_tables_are_trusted_where_no_single_call_can_be() -> None:
    table = {"total": True, "seconds": 9.0}
    assert trusted(sized({}, table))["seconds"].tolist() == [0.1]
    assert trusted(sized({"seconds": 0.0}, table))["seconds"].tolist() == [9.0]


@pytest.mark.parametrize(("single", "told"), [(0.1, [0.1]), (0.0, [9.0])])
def test_calls_and_the_tables_that_sum_them_are_not_both_told(
    single: float, told: list[float]
) -> None:
    both = sized({"seconds": single}, {"total": True, "seconds": 9.0})
    assert told_once(both)["seconds"].tolist() == told
    assert told_once(both.iloc[:1])["seconds"].tolist() == [single]


def test_a_recorded_call_holds_up_as_long_as_it_is_exposed() -> None:
    told = sized(
        {"seconds": 0.1},
        {"seconds": None, "exposed_seconds": 0.02},
        {"seconds": None, "exposed_seconds": 0.0},  # entirely hidden
        {"seconds": None, "exposed_seconds": 0.5, "op": "isend"},  # waits for the other's work
        {"seconds": 0.3, "op": "recv"},
    )
    assert held_up(told)["seconds"].tolist() == [0.1, 0.02, 0.3]


def test_operations_are_summed_dearest_first_and_small_calls_apart() -> None:
    told = per_operation(
        sized(
            {"op": "broadcast", "seconds": 0.5, "bytes": 10.0, "count": 3.0},
            {"op": "broadcast", "seconds": 0.25, "bytes": float(SMALL)},
            {"op": "all_reduce", "seconds": 1.0, "count": None},
            {"op": "all_reduce", "seconds": None, "bytes": 1.0},
        )
    )
    assert told.index.tolist() == ["all_reduce", "broadcast"]
    assert told["seconds"].tolist() == [1.0, 0.75]
    assert told["bytes"].tolist() == [4.0 * SMALL + 1, SMALL + 30]
    assert told["count"].tolist() == [2, 4]
    assert told["small_seconds"].tolist() == [0.0, 0.5]
    assert told["small_count"].tolist() == [1, 3]


def test_a_megabyte_is_no_small_message_and_sixteen_are_a_large_one() -> None:
    assert (SMALL, LARGE) == (1 << 20, 16 << 20)


def test_calls_of_set_up_are_left_out_but_tables_stay() -> None:
    told = calls({"step": 10}, {"step": 11}, {"step": pd.NA}, {"step": pd.NA, "total": True})
    told = told.astype({"step": "Int64"})
    assert during_steps(told, STEPS).index.tolist() == [0, 3]
    assert during_steps(told.iloc[:3], STEPS).index.tolist() == [0]


def straggled(*rows: tuple[str, int, int | None, float]) -> pd.DataFrame:
    told = pd.DataFrame(rows, columns=["name", "segment", "step", "seconds"])
    return told.astype({"name": "category", "step": "Int64"})


def test_the_last_straggler_table_of_the_last_launch_tells_the_wait() -> None:
    rows = straggled(
        ("comm_straggler", 0, 30, 99.0),
        ("comm_straggler", 1, 10, 50.0),
        ("comm_straggler", 1, 20, 1.0),
        ("comm_straggler", 1, 20, 2.0),
        ("comm_fastest_rank", 1, 20, 5.0),
        ("loss", 1, 30, 7.0),
    )
    found = waiting(rows)
    assert found is not None
    assert (found.seconds, found.share) == (3.0, 3 / 8)
    assert found.row["seconds"] == 2.0


def test_a_straggler_table_without_steps_counts_and_one_without_time_does_not() -> None:
    found = waiting(straggled(("comm_straggler", 0, None, 1.0), ("comm_fastest_rank", 0, None, 1)))
    assert found is not None
    assert found.share == 0.5
    assert waiting(straggled(("comm_straggler", 0, 1, 0.0))) is None
    assert waiting(straggled(("comm_fastest_rank", 0, 1, 5.0))) is None
    assert waiting(straggled(("loss", 0, 1, 5.0))) is None


def test_only_a_recording_says_which_gathers_are_of_no_parameters() -> None:
    """PyTorch's method of that name fills a list; logs call any gather so. What is in no phase, the
    script gathers."""
    told = sized(
        {"op": "all_gather", "exposed_seconds": 0.1, "phase": "forward"},
        {"op": "_allgather_base", "exposed_seconds": 0.1, "phase": "forward"},
        {"op": "all_gather"},
        {"op": "all_reduce"},
        {"op": "_allgather_base", "exposed_seconds": 0.1},
    )
    assert gathers(told).index.tolist() == [1, 2]
    assert apart_from_gathers(told).index.tolist() == [0, 3, 4]
