"""What sums over calls are of one step."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
import pytest

from dsprof.analysis.collectives import covered_steps, per_step


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
