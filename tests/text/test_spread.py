"""How step times scatter is told by steps that are there, and by no more of them than there are."""

from __future__ import annotations

import pandas as pd
import pytest

from dsprof.text.spread import MANY, Mark, percentile, spread


def said(seconds: list[float], of: str = "") -> str:
    parts = spread(pd.Series(seconds), of)
    return "".join(part if isinstance(part, str) else part.text for part in parts)


def test_three_steps_have_no_slowest_twentieth() -> None:
    assert said([5.66, 5.80, 5.79]) == "median 5.79 s, all between 5.66 s and 5.80 s"
    assert percentile(pd.Series([5.66, 5.80, 5.79]), 95) is None


def test_of_many_steps_nine_in_ten_are_told_and_not_the_single_slow_one() -> None:
    seconds = [1.0 + step / 100 for step in range(MANY - 1)] + [60.0]
    assert said(seconds) == "median 1.10 s, 9 in 10 between 1.00 s and 1.18 s"
    assert percentile(pd.Series(seconds), 95) == pytest.approx(1.18)


def test_steps_that_take_the_same_have_one_number() -> None:
    assert said([0.4] * 5) == "all take 400 ms"
    assert said([0.4] * MANY + [9.0], " of the 21 averaged") == (
        "9 in 10 of the 21 averaged take 400 ms"
    )


def test_one_step_does_not_scatter() -> None:
    assert said([1.0]) == ""
    assert said([]) == ""


def test_each_time_leads_to_the_steps_that_took_it() -> None:
    parts = spread(pd.Series([4.0, 1.0, 3.0, 2.0]))
    marks = [part for part in parts if isinstance(part, Mark)]
    assert [list(mark.rows) for mark in marks] == [[3, 2], [1], [0]]
