"""Times between the phases of a step."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from dsprof.analysis.gaps import gaps
from dsprof.run.recorded.moments import CALL, PHASE, STEP, UNKNOWN

MS = 1_000_000


def row(
    what: str, path: str, begin: float, end: float, *, step: int = 1, rank: int = 0
) -> dict[str, Any]:
    """One row of moments; `begin` and `end` in ms."""
    return {
        "step": step, "rank": rank, "what": what, "path": path, "begin": int(begin * MS),
        "seconds": (end - begin) * 1e-3, "source": f"rank-{rank}", "line": int(begin),
    }  # fmt: skip


def told(rows: list[dict[str, Any]]) -> pd.DataFrame:
    return pd.DataFrame(rows).sort_values(["step", "rank", "begin"], kind="stable")


def between(found: pd.DataFrame, before: str, after: str, what: str = "seconds") -> float:
    return float(found[what].to_dict()[before, after])


def one_step(
    step: int = 1, rank: int = 0, at: float = 0, clipping: float = 20
) -> list[dict[str, Any]]:
    """Of `clipping` ms between backward and step, 5 ms before the batch and 1 ms after step."""
    times = [
        ("data", 5, 10), ("forward", 10, 20), ("backward", 20, 40),
        ("step", 40 + clipping, 50 + clipping),
    ]  # fmt: skip
    ends = at + 51 + clipping
    phases = [row(PHASE, n, at + b, at + e, step=step, rank=rank) for n, b, e in times]
    return [row(STEP, "", at, ends, step=step, rank=rank), *phases]


def test_what_lies_between_two_phases_is_told_by_their_names() -> None:
    found = gaps(told(one_step()))
    assert between(found, "backward", "step") == pytest.approx(0.020)
    assert between(found, "", "data") == pytest.approx(0.005)
    assert between(found, "step", "") == pytest.approx(0.001)
    assert between(found, "data", "forward") == 0
    assert found.index[0] == ("backward", "step")
    assert found["seconds"].sum() == pytest.approx(0.026), "all that no phase covers"


def test_seconds_are_the_mean_of_steps_and_ranks_and_the_longest_has_its_line() -> None:
    rows = one_step(1, 0, 0, 20) + one_step(2, 0, 100, 40) + one_step(1, 1, 0, 0)
    found = gaps(told([*rows, *one_step(2, 1, 100, 0)]))
    assert between(found, "backward", "step") == pytest.approx(0.015)
    assert between(found, "backward", "step", "longest") == pytest.approx(0.040)
    assert between(found, "backward", "step", "step") == 2
    assert between(found, "backward", "step", "line") == 180
    assert between(found, "backward", "step", "count") == 4
    assert found["source"].iloc[0] == "rank-0"


def test_micro_batches_of_a_step_are_added_up() -> None:
    rows = [row(STEP, "", 0, 100)]
    for micro in range(4):
        at = 20 * micro
        rows += [row(PHASE, "forward", at, at + 5), row(PHASE, "backward", at + 8, at + 15)]
    found = gaps(told(rows))
    assert between(found, "forward", "backward", "seconds") == pytest.approx(4 * 0.003)
    assert between(found, "backward", "forward", "seconds") == pytest.approx(3 * 0.005)
    assert between(found, "forward", "backward", "count") == 4


def test_a_call_outside_of_phases_is_a_part_of_the_step_and_one_inside_is_not() -> None:
    rows = [
        *one_step(), row(CALL, "all_reduce", 42, 58), row(CALL, "backward/all_reduce", 30, 39),
    ]  # fmt: skip
    found = gaps(told(rows))
    assert between(found, "backward", "all_reduce") == pytest.approx(0.002)
    assert between(found, "all_reduce", "step") == pytest.approx(0.002)
    assert ("backward", "step") not in found.index


def test_parts_of_a_phase_have_times_between_them_too() -> None:
    rows = [
        *one_step(),
        row(PHASE, "step/optimizer_step", 61, 63),
        row(CALL, "step/optimizer_step/all_reduce", 61, 62),
    ]
    found = gaps(told(rows), "step")
    assert between(found, "", "optimizer_step") == pytest.approx(0.001)
    assert between(found, "optimizer_step", "") == pytest.approx(0.007)


def test_parts_that_overlap_count_once() -> None:
    rows = [row(STEP, "", 0, 30), row(CALL, "a", 0, 20), row(CALL, "b", 5, 10)]
    found = gaps(told([*rows, row(PHASE, "step", 25, 30)]))
    assert between(found, "b", "step") == pytest.approx(0.005)
    assert found["seconds"].sum() == pytest.approx(0.005)


def test_without_moments_there_is_nothing() -> None:
    assert gaps(told(one_step()).iloc[:0]).empty
    assert gaps(told(one_step()), "evaluation").empty


def test_steps_whose_phases_are_deleted_are_left_out() -> None:
    found = gaps(told([*one_step(), row(STEP, "", 200, 271, step=2)]))
    assert between(found, "backward", "step") == pytest.approx(0.020)
    assert ("", "") not in found.index


@pytest.mark.parametrize("how", [{"begin": UNKNOWN}, {"seconds": float("nan")}])
def test_a_step_is_left_out_in_which_it_is_not_known_when_a_call_held_it_up(
    how: dict[str, float],
) -> None:
    call = row(CALL, "all_gather", 41, 45) | how
    found = gaps(told([*one_step(), call, *one_step(2, at=100, clipping=30)]))
    assert between(found, "backward", "step") == pytest.approx(0.030)
    assert gaps(told([*one_step(), call])).empty
    inside = call | {"path": "backward/all_gather"}
    assert between(gaps(told([*one_step(), inside])), "backward", "step") == pytest.approx(0.020)
    nothing = row(CALL, "all_gather", 41, 41) | {"begin": UNKNOWN}
    assert between(gaps(told([*one_step(), nothing])), "backward", "step") == pytest.approx(0.020)


@pytest.mark.parametrize("how", [{"begin": UNKNOWN}, {"seconds": float("nan")}])
def test_a_step_is_left_out_in_which_it_is_not_known_when_a_phase_was(
    how: dict[str, float],
) -> None:
    """It is damaged, or its GPU was not seen to come to it."""
    odd = row(PHASE, "odd", 45, 50) | how
    found = gaps(told([*one_step(), odd, *one_step(2, at=100, clipping=30)]))
    assert between(found, "backward", "step") == pytest.approx(0.030)
    assert "odd" not in found.index.get_level_values("before")
