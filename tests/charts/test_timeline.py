"""The chart of steps says what the steps say, whatever their number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest

from dsprof.charts import LABEL, bound_by, step_axis, timeline
from dsprof.charts.columns import COLUMNS, columns
from tests.page.runs import made


def bars(figure: dict[str, Any], role: str) -> np.ndarray:
    return np.array(next(t["y"] for t in figure["data"] if t.get("meta") == role), dtype=float)


def test_a_column_is_one_step_and_its_classes_add_up_to_the_step() -> None:
    steps = made(40).steps
    figure = timeline(steps)
    assert figure
    together = sum(bars(figure, role) for role in ("communication", "compute", "optimizer"))
    assert together == pytest.approx(steps["seconds"].to_numpy(dtype=float))


def test_communication_bound_steps_are_marked_and_no_others() -> None:
    steps = made(30, slow={7: 4.0, 8: 4.0}).steps
    figure = timeline(steps)
    assert figure
    marked = np.flatnonzero(bars(figure, "bound-communication"))
    assert list(marked) == list(np.flatnonzero(bound_by(steps, "communication")))
    assert {6, 7} <= set(marked)


def test_what_no_class_explains_is_drawn_as_not_broken_down() -> None:
    steps = made(10).steps.assign(compute=np.nan)
    figure = timeline(steps)
    assert figure
    explained = steps["communication"] + steps["optimizer"]
    assert bars(figure, "unknown") == pytest.approx((steps["seconds"] - explained).to_numpy())


def test_a_long_run_is_drawn_in_few_columns_that_keep_the_mean_and_the_outlier() -> None:
    steps = made(2000, slow={1234: 30.0}).steps
    figure = timeline(steps)
    assert figure
    reduced = bars(figure, "communication")
    assert len(reduced) <= COLUMNS
    assert np.average(reduced, weights=columns_sizes(steps)) == pytest.approx(
        steps["communication"].mean()
    )
    line = next(t for t in figure["data"] if t.get("meta") == "seconds")
    assert max(line["y"]) == pytest.approx(steps["seconds"].max(), rel=1e-4)


def columns_sizes(steps: pd.DataFrame) -> np.ndarray:
    return np.diff(np.append(columns(steps).starts, len(steps)))


def test_one_very_slow_step_does_not_flatten_the_others() -> None:
    figure = timeline(made(200, slow={50: 100.0}).steps)
    assert figure
    end = figure["layout"]["yaxis"]["range"][1]
    beyond = next(t for t in figure["data"] if t.get("meta") == "beyond")
    assert end < 5
    assert beyond["x"] == [50.0]
    assert beyond["text"] == ["101 s"]
    assert beyond["customdata"] == ["50"]


def test_a_run_without_times_rates_and_losses_has_no_chart() -> None:
    steps = made(5).steps.assign(seconds=np.nan, samples_per_second=np.nan, loss=np.nan)
    assert timeline(steps) is None


def test_steps_of_a_second_launch_stand_behind_those_of_the_first() -> None:
    steps = made(10).steps
    again = pd.concat([steps, steps.assign(segment=1)], ignore_index=True)
    x = step_axis(again)
    assert bool((np.diff(x) > 0).all())
    figure = timeline(again)
    assert figure
    assert len(figure["layout"]["shapes"]) == 1  # where the second launch begins
    assert figure["layout"]["xaxis"]["ticktext"][-1] == "10"


@pytest.mark.parametrize("steps", [1, 2, 59, 61, COLUMNS, COLUMNS + 1])
def test_plotly_accepts_the_figure_of_any_number_of_steps(steps: int) -> None:
    go.Figure(timeline(made(steps).steps))


def test_a_loss_that_is_no_number_leaves_a_gap() -> None:
    steps = made(6).steps
    steps["loss"] = [4.0, np.nan, 3.0, np.nan, np.inf, 2.0]
    steps["loss_broken"] = [False, False, False, True, True, False]
    figure = timeline(steps)
    assert figure
    line = next(t for t in figure["data"] if t.get("meta") == "loss")
    assert line["y"] == [4.0, 3.0, None, 2.0]  # the second step is only not told
    assert line["connectgaps"] is False
    go.Figure(figure)


def test_a_tooltip_says_of_which_steps_its_numbers_are() -> None:
    steps = made(2000).steps
    figure = timeline(steps)
    assert figure
    first, *others = figure["data"]
    assert first["customdata"][1] == "steps 8 to 14, mean"
    assert first["y"][1] == pytest.approx(steps["seconds"][7:14].mean(), rel=1e-3)
    each = next(t for t in others if t.get("meta") == "seconds")
    assert each["hoverinfo"] == "skip"
    loss = next(t for t in others if t.get("meta") == "loss")
    assert loss["customdata"][0] == "1"
    assert "step %{customdata}" in loss["hovertemplate"]


def test_time_that_no_timer_covers_is_not_called_timed() -> None:
    assert LABEL["other"] == "other or not timed"
