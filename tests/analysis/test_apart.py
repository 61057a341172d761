"""How far apart steps are, and what happened between them, by where the lines of a log stand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from dsprof.analysis.apart import distances, happened_in, held, longer_by


def rows_of_steps() -> pd.DataFrame:
    """Each second step, as the clock, a logged time, or a mean over all tells its seconds."""
    begun = pd.Timestamp("2026-01-01")
    return pd.DataFrame(
        {
            "segment": 0,
            "engine": 0,
            "step": [8, 10, 12, 14, 16],
            "at": [begun + pd.Timedelta(seconds=second) for second in (0, 1, 6, 7, 8)],
            "source": "job.log",
            "line": [1, 3, 5, 7, 9],
            "seconds": 1.0,
            "seconds_from": ["clock", "clock", "clock", "logged", "clock"],
            "smoothed": [False, False, False, False, True],
            "whole_seconds": float("nan"),
            "whole_from": None,
            "covers": 2.0,
        }
    )


def happening(*at: tuple[int, int], source: str = "job.log") -> pd.DataFrame:
    """Rows of these steps and lines."""
    step, line = zip(*at, strict=True)
    return pd.DataFrame({"segment": 0, "step": step, "line": line, "source": source})


def test_what_stands_behind_the_line_of_its_step_happened_in_the_next() -> None:
    apart = distances(rows_of_steps())
    found = happened_in(apart, happening((10, 4), (11, 4), (16, 10)))
    assert apart.loc[found["within"], "step"].tolist() == [12, 12]  # none ends behind 16


@pytest.mark.parametrize("line", [4, 5])
def test_what_stands_in_front_of_its_line_or_on_it_happened_before(line: int) -> None:
    apart = distances(rows_of_steps())
    assert apart.loc[happened_in(apart, happening((12, line)))["within"], "step"].tolist() == [12]


def test_where_lines_of_another_source_stand_tells_nothing() -> None:
    apart = distances(rows_of_steps())
    found = happened_in(apart, happening((12, 4), source="rank1.log"))
    assert apart.loc[found["within"], "step"].tolist() == [14]


def test_only_distances_beyond_all_plain_ones_are_longer() -> None:
    elapsed = [1.0, 1.5, 1.0, 1.0, 1.0, 1.4, 9.0]
    apart = pd.DataFrame({"passed": 1.0, "elapsed": elapsed})
    plain = np.array([True] * 5 + [False] * 2)
    assert longer_by(apart, plain).to_dict() == {6: pytest.approx(8.0)}
    assert longer_by(apart, plain & (apart.index.to_numpy() > 0)).empty  # four are too few


def test_what_happened_is_in_times_that_a_clock_tells_and_in_no_mean_over_all() -> None:
    steps = rows_of_steps()
    took = pd.Series([1.0, 2.0, 9.0, 0.5], [2, 2, 2, 4])
    assert held(distances(steps), took, steps).tolist() == [0.0, 0.0, 2.5, 0.0, 0.0]
    assert held(distances(steps), took.iloc[:0], steps).tolist() == [0.0] * 5


def test_a_logged_time_holds_what_it_is_longer_than_all_others() -> None:
    steps = rows_of_steps().assign(seconds_from="logged", seconds=[1, 1, 4, 1.5, 1.0])
    steps["at"] = steps["at"].mask(steps["at"].notna())
    steps = steps.assign(whole_seconds=steps["seconds"], whole_from="logged", smoothed=False)
    apart = distances(steps)
    assert apart["elapsed"].tolist() == [2.0, 2.0, 8.0, 3.0, 2.0]
    assert held(apart, pd.Series([9.0, 1.0], [2, 3]), steps).tolist() == [0.0, 0.0, 3.0, 0.5, 0.0]
    assert held(apart, pd.Series([1.0], [2]), steps).tolist() == [0.0, 0.0, 0.5, 0.0, 0.0]
