"""The chart of steps says what the steps say, whatever their number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest

from dsprof.charts import LABEL, bound_by, held, step_axis, timeline
from dsprof.charts.columns import COLUMNS, columns, step_edges
from dsprof.units import format_seconds
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
    marked = np.flatnonzero(np.nan_to_num(bars(figure, "bound-communication")))
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
    assert beyond["customdata"] == ["step 50"]
    assert beyond["y"] == [end]
    assert beyond["textposition"] == ["top center"]  # above the columns, whose colours hide words
    title, *others = figure["layout"]["annotations"]
    assert title["yshift"] > 12
    assert not any("yshift" in other for other in others)


def test_the_time_of_a_slow_last_step_does_not_leave_the_chart() -> None:
    figure = timeline(made(200, slow={200: 100.0}).steps)
    assert figure
    beyond = next(t for t in figure["data"] if t.get("meta") == "beyond")
    assert beyond["textposition"] == ["top left"]


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


def test_the_window_of_a_later_launch_has_its_number_where_it_ends() -> None:
    steps = made(10).steps.assign(covers=10.0)
    steps["step"] *= 10
    again = pd.concat([steps, steps.assign(segment=1)], ignore_index=True)
    figure = timeline(again)
    assert figure
    axis, (_, high) = figure["layout"]["xaxis"], step_edges(again)
    ends = dict(zip(axis["tickvals"], axis["ticktext"], strict=True))
    assert ends[100.0] == "100"  # as where a run has one launch
    assert list(ends)[-1] == high[-1] - 0.5
    assert list(ends.values())[-1] == "100"


def test_no_line_is_drawn_from_one_launch_to_another() -> None:
    steps = made(10).steps
    again = pd.concat([steps, steps.assign(segment=1)], ignore_index=True)
    figure = timeline(again)
    assert figure
    loss = next(t for t in figure["data"] if t["meta"] == "loss")
    assert [n for n, y in enumerate(loss["y"]) if y is None] == [10]
    assert len(loss["x"]) == len(loss["y"]) == len(loss["customdata"]) == 21


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
    assert LABEL["other"] == "no timer or other"


def test_a_mark_is_as_high_as_the_part_of_the_step_it_stands_for() -> None:
    steps = made(30, slow={7: 4.0, 8: 1.2}).steps
    figure = timeline(steps)
    assert figure
    marks = next(t for t in figure["data"] if t.get("meta") == "bound-communication")
    share = steps["communication_share"].to_numpy(dtype=float)
    assert marks["y"][6:8] == pytest.approx(share[6:8], abs=1e-3)
    assert marks["y"][6] > marks["y"][7]
    assert marks["customdata"][6] == "78 %"
    assert figure["layout"]["yaxis2"]["ticktext"] == ["0", "50 %", "100 %"]


def test_the_mark_of_many_steps_says_how_many_and_how_far() -> None:
    steps = made(2000, slow={8: 4.0, 9: 4.0}).steps
    steps["bound"] = "compute"
    steps.loc[[7, 8], "bound"] = "communication"
    figure = timeline(steps)
    assert figure
    marks = next(t for t in figure["data"] if t.get("meta") == "bound-communication")
    assert marks["customdata"][1] == "2 of 7 steps, 78 % of their time"
    assert marks["y"][1] == pytest.approx(
        2 / 7 * np.nanmean(held(steps, "communication")), abs=1e-3
    )
    assert marks["y"][0] is None


def test_times_are_drawn_in_the_unit_that_the_chart_names() -> None:
    steps = made(5).steps
    for column in ("seconds", "compute", "communication", "optimizer"):
        steps[column] /= 100
    figure = timeline(steps)
    assert figure
    assert figure["layout"]["meta"]["unit"] == 1e-3
    assert figure["layout"]["annotations"][0]["text"] == "time of one step, ms"
    assert bars(figure, "compute") == pytest.approx(1e3 * steps["compute"].to_numpy(dtype=float))
    compute = next(t for t in figure["data"] if t.get("meta") == "compute")
    assert compute["hovertemplate"].startswith("%{y:,.3r} ms<")


def test_records_of_unknown_steps_are_not_called_steps() -> None:
    figure = timeline(made(3).steps, "record")
    assert figure
    assert figure["data"][0]["customdata"] == ["record 1", "record 2", "record 3"]
    assert figure["layout"]["xaxis"]["title"]["text"] == "record, as printed"


@pytest.mark.parametrize(("steps", "first"), [(3, 9.0), (5, 6.0), (19, 9.0), (30, 9.0)])
def test_a_slow_first_step_does_not_flatten_a_short_run(steps: int, first: float) -> None:
    figure = timeline(made(steps, slow={1: first}).steps)
    assert figure
    (beyond,) = [t for t in figure["data"] if t.get("meta") == "beyond"]
    assert beyond["x"] == [1.0]
    assert beyond["text"] == [format_seconds(1.1 + first)]
    assert figure["layout"]["yaxis"]["range"][1] == pytest.approx(1.4 * 1.6)


@pytest.mark.parametrize("first", [0.5, 3.0])
def test_steps_of_a_short_run_that_can_be_compared_are_all_within_the_axis(first: float) -> None:
    figure = timeline(made(5, slow={1: first}).steps)
    assert figure
    assert "range" not in figure["layout"]["yaxis"]


def windows(count: int, many: float = 10.0) -> pd.DataFrame:
    """Steps of which every tenth is printed, from the 20th on, as the mean of those up to it."""
    steps = made(count).steps
    return steps.assign(step=10 * steps["step"] + 10, covers=many)


def test_a_column_of_a_window_spans_the_steps_that_it_is_the_mean_of() -> None:
    figure = timeline(windows(3))
    assert figure
    assert figure["layout"]["xaxis"]["range"] == [10.5, 40.5]
    drawn = next(t for t in figure["data"] if t.get("meta") == "compute")
    assert drawn["x"] == [15.5, 25.5, 35.5]
    assert drawn["width"] == pytest.approx([9.2] * 3)  # and a gap
    assert drawn["customdata"][0] == "steps 11 to 20, mean"
    loss = next(t for t in figure["data"] if t.get("meta") == "loss")
    assert loss["x"] == drawn["x"]  # one tooltip tells of both


def test_windows_never_reach_over_those_before_them() -> None:
    drawn = columns(windows(4, 25.0))
    ends = drawn.x + drawn.width / 1.84
    assert (np.diff(drawn.x) > 0).all()
    assert (drawn.x[1:] - drawn.width[1:] / 1.84 >= ends[:-1] - 1e-9).all()


def test_of_single_steps_that_are_printed_seldom_each_stands_at_its_own_number() -> None:
    assert columns(windows(3, 1.0)).x.tolist() == [20, 30, 40]
