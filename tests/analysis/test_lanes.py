"""What each rank did at every moment of a step."""

from __future__ import annotations

import itertools
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsprof.analysis.lanes import UNTIMED, Left, Stretch, coarse, lanes, unfinished
from dsprof.run.recorded.moments import CALL, PHASE, STEP, UNKNOWN


def row(what: str, path: str, class_: str, begin: int, end: int, rank: int = 0) -> dict[str, Any]:
    return {
        "rank": rank, "what": what, "path": path, "class": class_, "begin": begin + 10**18,
        "seconds": (end - begin) * 1e-9,
    }  # fmt: skip


def said(stretches: list[Stretch]) -> list[tuple[int, int, str]]:
    return [(one.begin, one.end, one.path or one.class_) for one in stretches]


STEPS = [
    row(STEP, "", "", 0, 100),
    row(PHASE, "forward", "compute", 10, 30),
    row(PHASE, "backward", "compute", 30, 80),
    row(PHASE, "backward/reduce", "compute", 50, 80),
    row(CALL, "backward/reduce/all_reduce", "communication", 60, 70),
]


def test_each_moment_is_that_of_the_innermost_phase_or_call() -> None:
    assert said(lanes(pd.DataFrame(STEPS))[0]) == [
        (0, 10, UNTIMED), (10, 30, "forward"), (30, 50, "backward"), (50, 60, "backward/reduce"),
        (60, 70, "backward/reduce/all_reduce"), (70, 80, "backward/reduce"), (80, 100, UNTIMED),
    ]  # fmt: skip


def test_a_rank_that_begins_later_stands_further_to_the_right() -> None:
    late = [one | {"rank": 1, "begin": one["begin"] + 40} for one in STEPS]
    both = pd.DataFrame([*STEPS, *late])
    assert said(lanes(both)[1])[0] == (40, 50, UNTIMED)
    assert said(lanes(both, each_from_its_own=True)[1])[0] == (0, 10, UNTIMED)


def test_a_wait_that_lasts_longer_than_its_phase_ends_with_it() -> None:
    rows = [*STEPS, row(CALL, "forward/all_gather", "communication", 25, 60)]
    assert (25, 30, "forward/all_gather") in said(lanes(pd.DataFrame(rows))[0])


def test_a_call_ends_where_the_wait_for_the_next_one_begins() -> None:
    """What issuing it took counts, too, and was before."""
    rows = [
        row(STEP, "", "", 0, 100),
        row(CALL, "broadcast", "communication", 10, 21),
        row(CALL, "broadcast", "communication", 20, 60),
    ]
    assert said(lanes(pd.DataFrame(rows))[0])[1:3] == [
        (10, 20, "broadcast"), (20, 60, "broadcast"),
    ]  # fmt: skip


@pytest.mark.parametrize("seconds", [float("nan"), 0.001])
def test_a_step_of_which_a_call_has_no_moment_cannot_be_drawn(seconds: float) -> None:
    summed = row(CALL, "all_reduce", "communication", 0, 0) | {"begin": UNKNOWN}
    assert not lanes(pd.DataFrame([*STEPS, summed | {"seconds": seconds}]))
    assert lanes(pd.DataFrame([*STEPS, summed])), "a call that held up nothing is not drawn anyway"


def test_a_step_of_which_all_phases_of_a_rank_are_deleted_cannot_be_drawn() -> None:
    assert not lanes(pd.DataFrame([*STEPS, row(STEP, "", "", 0, 100, rank=1)]))


def test_ranks_that_did_not_end_the_step_are_left_out() -> None:
    rows = [*STEPS, row(PHASE, "forward", "compute", 0, 9, rank=1)]
    assert list(lanes(pd.DataFrame(rows))) == [0]


@given(st.lists(st.tuples(st.integers(-20, 120), st.integers(0, 60)), max_size=12))
def test_stretches_follow_each_other_without_holes(phases: list[tuple[int, int]]) -> None:
    rows = [row(PHASE, f"p{i}", "compute", b, b + n) for i, (b, n) in enumerate(phases)]
    found = lanes(pd.DataFrame([row(STEP, "", "", 0, 100), *rows, *STEPS[1:]]))[0]
    assert found[0].begin == 0
    assert found[-1].end == 100
    assert all(one.end == other.begin for one, other in itertools.pairwise(found))
    assert all(one.end > one.begin for one in found)


def test_what_is_too_fine_to_draw_is_joined_and_keeps_its_ends() -> None:
    fine = [Stretch(at, at + 1, f"p{at}", "compute") for at in range(0, 10, 2)]
    fine += [Stretch(at, at + 1, "call", "communication") for at in range(1, 10, 2)]
    fine[0] = fine[0]._replace(class_="communication")
    whole = [*sorted(fine), Stretch(10, 40, "step", "optimizer"), Stretch(40, 41, "", UNTIMED)]
    found = coarse(whole, 5)
    assert [(one.begin, one.end, one.class_, one.parts) for one in found] == [
        (0, 5, "communication", 5), (5, 10, "communication", 5), (10, 40, "optimizer", 1),
        (40, 41, UNTIMED, 1),
    ]  # fmt: skip
    assert coarse(whole, 0) == whole


def test_joined_pieces_are_called_what_took_most_of_the_time_of_their_class() -> None:
    fine = [
        Stretch(0, 1, "forward", "compute"),
        Stretch(1, 3, "backward", "compute"),
        Stretch(3, 5, "all_reduce", "communication"),
        Stretch(5, 9, "step", "optimizer"),
    ]
    assert coarse(fine, 5) == [
        Stretch(0, 5, "backward", "compute", 3), Stretch(5, 9, "step", "optimizer", 1)
    ]  # fmt: skip


def test_what_had_not_ended_is_open_and_what_was_lost_leaves_a_hole() -> None:
    zero = 10**18
    rows = [row(PHASE, "forward", "compute", 10, 30, rank=1)]
    open_ = (
        Stretch(zero + 40, zero + 100, "backward", "compute"),
        Stretch(zero + 60, zero + 100, "backward/all_reduce", "communication"),
    )
    left = {0: Left(zero, zero + 100, open_, zero + 40), 1: Left(zero + 5, zero + 90)}
    found = unfinished(pd.DataFrame(rows), left)
    assert said(found[0]) == [(40, 60, "backward"), (60, 100, "backward/all_reduce")]
    assert [one.is_open for one in found[0]] == [False, True]
    assert said(found[1]) == [(5, 10, UNTIMED), (10, 30, "forward"), (30, 90, UNTIMED)]
    assert coarse(found[0], 1000)[0].is_open
