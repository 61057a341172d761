"""One step as it ran."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go

from dsprof.analysis.lanes import UNTIMED, Stretch
from dsprof.charts import step_lanes
from dsprof.charts.lanes import MOST
from dsprof.charts.palette import PALETTE

MS = 1_000_000
LANES = {
    0: [Stretch(0, 10 * MS, "forward", "compute"), Stretch(10 * MS, 40 * MS, "", UNTIMED)],
    3: [
        Stretch(2 * MS, 12 * MS, "forward", "compute"),
        Stretch(12 * MS, 40 * MS, "forward/all_reduce", "communication"),
    ],
}


def drawn(figure: dict[str, Any], role: str) -> dict[str, Any]:
    (trace,) = [one for one in figure["data"] if one["meta"] == role]
    return dict(trace)


def test_each_piece_stands_in_its_rank_s_lane_where_it_began() -> None:
    figure = step_lanes(LANES)
    compute = drawn(figure, "compute")
    assert (compute["y"], compute["base"], compute["x"]) == ([0, 1], [0, 2], [10, 10])
    assert figure["layout"]["yaxis"]["ticktext"] == ["rank 0", "rank 3"]
    assert figure["layout"]["xaxis"]["title"]["text"] == "ms since the step began"
    assert figure["layout"]["xaxis"]["range"] == [0, 40]
    assert drawn(figure, "communication")["text"] == ["all_reduce"]
    go.Figure(figure)  # plotly accepts it


def test_pointing_at_a_piece_tells_what_it_is() -> None:
    figure = step_lanes(LANES)
    assert drawn(figure, "communication")["customdata"] == [
        "rank 3 · forward/all_reduce<br>28.0 ms, 12.0 ms after the step began"
    ]
    assert drawn(figure, UNTIMED)["customdata"] == [
        "rank 0 · no timer<br>30.0 ms, 10.0 ms after the step began"
    ]


def test_classes_stand_in_the_order_of_every_legend() -> None:
    assert [one["meta"] for one in step_lanes(LANES)["data"]] == [
        "communication", "compute", UNTIMED,
    ]  # fmt: skip


def test_thousands_of_short_calls_are_drawn_as_few_pieces() -> None:
    fine = [
        Stretch(at, at + 1, "gather", "communication" if at % 3 else "compute")
        for at in range(60_000)
    ]
    figure = step_lanes({0: fine})
    assert sum(len(one["y"]) for one in figure["data"]) <= 1500
    many = step_lanes(dict.fromkeys(range(32), fine))
    assert 10_000 < sum(len(one["y"]) for one in many["data"]) <= MOST
    assert "40 short ones, most of that gather" in drawn(figure, "communication")["customdata"][0]


def test_a_name_out_of_a_log_is_no_markup() -> None:
    figure = step_lanes({0: [Stretch(0, 5, "<b>x", "compute")]})
    assert drawn(figure, "compute")["text"] == ["&lt;b&gt;x"]


def test_every_colour_has_its_dark_one() -> None:
    known = {light for light, _ in PALETTE.values()}
    for trace in step_lanes(LANES)["data"]:
        assert {trace["marker"]["color"], trace["textfont"]["color"]} <= known


def test_a_timed_phase_of_no_class_is_not_called_untimed() -> None:
    lane = [Stretch(0, 10, "evaluation", "other"), Stretch(10, 20, "", UNTIMED)]
    named = {trace["meta"]: trace["name"] for trace in step_lanes({0: lane})["data"]}
    assert named == {"other": "other phases", "unknown": "no timer"}
