"""Which launch of which engine reports are of."""

from __future__ import annotations

import pandas as pd

from dsprof.run.job.longest import longest_part


def steps(*parts: tuple[int, int, float, str]) -> pd.DataFrame:
    """Of each part: segment, steps, seconds of each, and where the last one was told."""
    rows = [
        {"segment": segment, "engine": 0, "seconds": seconds, "source": source if at else "a.log"}
        for segment, many, seconds, source in parts
        for at in range(many)
    ]
    return pd.DataFrame(rows)


def test_it_is_the_one_that_took_most_time() -> None:
    part = longest_part(steps((0, 10, 1.0, "a.log"), (1, 20, 0.2, "a.log")))
    assert set(part["segment"]) == {0}


def test_one_that_was_recorded_comes_before_all_that_only_logs_tell_of() -> None:
    recorded = "run/rank-00000.7.dsprof"
    part = longest_part(steps((0, 10, 1.0, "a.log"), (1, 5, 0.2, recorded), (2, 3, 0.2, recorded)))
    assert set(part["segment"]) == {1}


def test_of_no_timed_step_there_is_none() -> None:
    nothing = steps((0, 3, 1.0, "a.log")).assign(seconds=float("nan"))
    assert longest_part(nothing).empty
