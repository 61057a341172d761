"""Communication, problems, series: what they draw, and when they draw nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest

from dsprof.charts import (
    bandwidths,
    ceiling,
    comm_sizes,
    limit_of,
    over_steps,
    problem_line,
    step_axis,
    timeline,
    training,
    unchanged,
)
from dsprof.charts.figure import keep, numbers, whole_ticks
from dsprof.charts.palette import LABEL, PALETTE, STACK
from tests.page.runs import made, with_rows

MIB = 1 << 20


def test_memory_stands_on_the_axis_of_the_chart_of_steps() -> None:
    run = made(12)
    steps = pd.concat([run.steps, run.steps.assign(segment=1)], ignore_index=True)
    at = [(0, 2), (0, 6), (0, 11), (1, 3), (1, 9)]  # of some steps alone
    rows = [
        {"name": "allocated", "segment": s, "step": n, "rank": 0, "bytes": float(n << 30)}
        for s, n in at
    ]
    memory = pd.DataFrame(rows).assign(value=np.nan, count=np.nan)
    figure = over_steps(memory, {"allocated": ("allocated, GiB", float(1 << 30))}, steps)
    above = timeline(steps)
    assert figure
    assert above
    assert figure["layout"]["xaxis"]["range"] == above["layout"]["xaxis"]["range"]
    (line,) = figure["data"]
    known = [x for x, y in zip(line["x"], line["y"], strict=True) if y is not None]
    places = steps.assign(x=step_axis(steps)).set_index(["segment", "step"])["x"]
    assert known == places[at].tolist()


def calls(*rows: tuple[str, int, float, int, float]) -> pd.DataFrame:
    """op, bytes, seconds, rank, bus bandwidth, all in step 1."""
    frame = pd.DataFrame(rows, columns=["op", "bytes", "seconds", "rank", "busbw"])
    rest: dict[str, Any] = {
        "segment": 0,
        "step": 1,
        "group": None,
        "count": 1,
        "exposed_seconds": np.nan,
    }
    told: dict[str, Any] = {
        "algbw": np.nan,
        "suspect": pd.NA,
        "total": False,
        "source": "made.log",
        "line": 3,
    }
    return frame.assign(**rest, **told)


def test_calls_are_summed_by_operation_and_size_for_one_rank_and_step() -> None:
    comm = calls(
        ("all_reduce", MIB, 0.2, 0, 1e9),
        ("all_reduce", MIB, 0.4, 1, 2e9),
        ("all_reduce", 8, 0.001, 0, 1e3),
    )
    first = comm_sizes(comm, visits=2).iloc[0]
    assert first["seconds"] == pytest.approx(0.3)
    assert first["count"] == 1
    assert first["busbw"] == pytest.approx((0.2 * 1e9 + 0.4 * 2e9) / 0.6)


def test_each_call_says_what_limits_it() -> None:
    comm = calls(
        ("all_reduce", 64 * MIB, 0.2, 0, 9e9),
        ("all_reduce", 64 * MIB, 0.2, 1, 9e9),
        ("broadcast", 64, 0.1, 0, 1e3),
        ("send", 2 * MIB, 0.1, 0, 1e8),
        ("all_gather", 2 * MIB, 0.1, 0, 1e8),
        ("all_gather", 2 * MIB, 0.9, 1, 1e8),
    )
    sizes = comm_sizes(comm, visits=1)
    limits = {row["op"]: limit_of(row, 10e9) for _, row in sizes.iterrows()}
    assert limits == {
        "all_reduce": "bandwidth",
        "broadcast": "latency",
        "send": "peer or pipeline bubble",
        "all_gather": "a slow peer",
    }


def test_a_call_of_which_waiting_alone_is_known_is_not_limited_by_latency() -> None:
    waits = calls(("all_reduce", 64, np.nan, 0, np.nan), ("all_reduce", 64, np.nan, 1, np.nan))
    for exposed, limit in [([0.02, 0.02], "unknown"), ([0.02, 0.09], "a slow peer")]:
        sizes = comm_sizes(waits.assign(exposed_seconds=exposed), visits=1)
        assert limit_of(sizes.iloc[0], None) == limit


def test_times_that_are_doubted_are_drawn_nowhere() -> None:
    comm = calls(*[("all_reduce", 2**n * MIB, 0.1, 0, 1e9) for n in range(5)])
    sizes = comm_sizes(comm.assign(suspect="cumulative"), visits=1)
    assert bandwidths(sizes, None) is None
    assert limit_of(sizes.iloc[0], None) == "times are not trustworthy"


def test_a_doubted_time_is_not_added_to_one_that_is_believed() -> None:
    comm = calls(("all_reduce", MIB, 0.2, 0, 1e9), ("all_reduce", MIB, 12.0, 0, 1e3))
    sizes = comm_sizes(comm.assign(suspect=pd.Series([pd.NA, "cumulative"], dtype="str")), visits=1)
    assert sizes["seconds"].tolist() == [0.2, pytest.approx(np.nan, nan_ok=True)]
    assert sizes["suspect"].tolist() == [False, True]
    assert sizes["busbw"].iloc[0] == pytest.approx(1e9)


def test_sums_are_divided_by_the_steps_they_cover() -> None:
    first = comm_sizes(calls(("all_reduce", MIB, 2.0, 0, 1e9)).assign(count=40), visits=40).iloc[0]
    assert (first["count"], first["seconds"]) == (1, pytest.approx(0.05))


def test_the_ceiling_is_the_link_or_else_the_best_large_call() -> None:
    sizes = comm_sizes(calls(("all_reduce", 64 * MIB, 0.2, 0, 9e9)), visits=1)
    assert ceiling(sizes, 12.5e9) == (12.5e9, "as the run states")
    assert ceiling(sizes, None) == (9e9, "the best of this run")
    assert ceiling(sizes[sizes["bytes"] < 1], None) is None


def test_bandwidth_over_size_is_a_figure_plotly_accepts() -> None:
    comm = calls(*[("all_reduce", 2**n * MIB, 0.1, 0, n * 1e9 + 1) for n in range(5)])
    figure = bandwidths(comm_sizes(comm, visits=1), (5e9, "as the run states"))
    go.Figure(figure)
    assert figure
    assert len(figure["layout"]["shapes"]) == 1


def test_the_first_cause_is_a_star_with_its_name() -> None:
    problem = {"kind": "problem", "text": "x", "rank": 1}
    run = with_rows(
        made(5),
        problem | {"name": "oom", "line": 7},
        problem | {"name": "connection", "rank": 0, "line": 9},
    )
    problems = run.problems.assign(root_cause=[True, False], at=pd.Series([pd.NaT] * 2))
    figure = problem_line(problems, {})
    go.Figure(figure)
    assert figure
    assert figure["data"][0]["marker"]["symbol"][0] == "star"
    assert figure["layout"]["annotations"][0]["text"] == "first cause"
    assert figure["data"][0]["x"] == [7, 9]


def test_a_single_problem_needs_no_chart() -> None:
    run = with_rows(made(5), {"kind": "problem", "name": "oom", "text": "x"})
    assert problem_line(run.problems, {}) is None


def test_a_series_that_never_changes_is_told_and_not_drawn() -> None:
    steps = made(6).steps.assign(loss_scale=65536.0)
    figure = training(steps)
    assert figure
    assert unchanged(steps) == {"loss_scale": ("loss scale", 65536.0)}
    assert [a["text"] for a in figure["layout"]["annotations"]] == ["learning rate"]


def test_many_ranks_are_drawn_as_lowest_median_and_highest() -> None:
    rows: list[dict[str, Any]] = [
        {"kind": "memory", "name": "allocated", "bytes": (r + 1) << 30, "step": s, "rank": r}
        for s in range(1, 5)
        for r in range(12)
    ]
    memory = with_rows(
        made(5), *[row | {"bytes": row["bytes"] * row["step"]} for row in rows]
    ).memory
    figure = over_steps(memory, {"allocated": ("allocated, GiB", float(1 << 30))})
    go.Figure(figure)
    assert figure
    lines = {t["name"]: t["y"] for t in figure["data"]}
    assert lines["highest rank"] == [12, 24, 36, 48]
    assert lines["lowest rank"] == [1, 2, 3, 4]


def test_memory_told_once_is_no_line() -> None:
    row = {"kind": "memory", "name": "allocated", "bytes": 1 << 30, "step": 1, "rank": 0}
    assert over_steps(with_rows(made(5), row).memory, {"allocated": ("", 1.0)}) is None


def test_thinning_keeps_the_outlier_and_drops_what_is_unknown() -> None:
    y = np.sin(np.arange(50_000) / 50)
    y[[10, 40_000]] = np.nan, 99
    kept = keep(np.arange(50_000), y)
    assert len(kept) <= 1200
    assert 40_000 in kept
    assert 10 not in kept


def test_what_is_not_finite_is_null_in_json() -> None:
    assert numbers([1.0, np.nan, np.inf, -2.0]) == [1.0, None, None, -2.0]


def test_every_class_has_a_name_and_two_colours() -> None:
    assert set(STACK) <= LABEL.keys()
    assert LABEL.keys() <= PALETTE.keys()


@pytest.mark.parametrize("theme", [0, 1])
def test_words_reach_a_contrast_of_four_and_a_half(theme: int) -> None:
    paper = PALETTE["paper"][theme]
    for role in ("ink", "muted", "communication"):
        assert _contrast(PALETTE[role][theme], paper) >= 4.5, role


def _contrast(one: str, other: str) -> float:
    """Contrast ratio as WCAG 2 defines it."""
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_ticks_of_whole_numbers_never_read_the_same() -> None:
    assert whole_ticks([3, 5])["dtick"] == 1
    assert whole_ticks([])["dtick"] == 1
    assert whole_ticks([0, 40]) == {"tickformat": ",~f"}  # zoomed in, 12.5 reads 12.5


@pytest.mark.parametrize("count", [3, 5])
def test_the_axis_of_a_short_run_has_a_tick_at_each_step(count: int) -> None:
    steps = made(count).steps
    for figure in (training(steps), timeline(steps)):
        assert figure
        assert figure["layout"]["xaxis"]["dtick"] == 1


def test_calls_of_unknown_size_keep_their_lines() -> None:
    comm = pd.DataFrame(
        {
            "op": ["all_reduce", "broadcast", "all_reduce"],
            "bytes": [np.nan, 4.0, np.nan],
            "suspect": [None] * 3,
            "count": [1.0] * 3,
            "seconds": [1.0, 0.5, 1.0],
            "exposed_seconds": [np.nan] * 3,
            "busbw": [np.nan] * 3,
            "algbw": [np.nan] * 3,
            "rank": [0] * 3,
            "step": [1] * 3,
        }
    )
    sizes = comm_sizes(comm, visits=1)
    assert [list(rows) for rows in sizes["rows"]] == [[0, 2], [1]]


def test_launches_stand_behind_each_other_in_series() -> None:
    row: dict[str, Any] = {"kind": "memory", "name": "allocated", "rank": 0}
    told = [
        row | {"bytes": (step + 9 * launch) << 30, "step": step, "segment": launch}
        for launch in range(2)
        for step in range(1, 5)
    ]
    memory = with_rows(made(5), *told).memory
    figure = over_steps(memory, {"allocated": ("allocated, GiB", float(1 << 30))})
    assert figure
    (line,) = figure["data"]
    assert line["x"] == sorted(line["x"])
    assert len(set(line["x"])) == 8
    assert line["y"] == [1, 2, 3, 4, None, 10, 11, 12, 13]  # no line from launch to launch
    assert line["customdata"][5] == "step 1 of launch 2"
    assert len(figure["layout"]["shapes"]) == 1
    assert figure["layout"]["xaxis"]["ticktext"][-1] == "4"


def test_engines_have_a_line_each() -> None:
    steps = pd.concat([made(4).steps, made(4).steps.assign(engine=1)], ignore_index=True)
    figure = training(steps)
    assert figure
    assert [(t["name"], t["x"]) for t in figure["data"]] == [
        ("engine 0", [1, 2, 3, 4]),
        ("engine 1", [1, 2, 3, 4]),
    ]


def test_ranks_of_problems_count_from_the_top_and_launches_are_marked() -> None:
    problem = {"kind": "problem", "name": "oom", "text": "x"}
    rows = [problem | {"rank": rank, "line": 7 + rank} for rank in (10, 2)]
    run = with_rows(made(5), *rows, problem | {"line": 30})
    figure = problem_line(run.problems.assign(at=pd.Series([pd.NaT] * 3)), {}, [20])
    assert figure
    assert figure["layout"]["yaxis"]["categoryarray"] == ["rank unknown", "rank 10", "rank  2"]
    assert [shape["x0"] for shape in figure["layout"]["shapes"]] == [20]
    low, high = figure["layout"]["xaxis"]["range"]
    assert low < 9
    assert high > 30


@pytest.mark.parametrize(
    ("times", "title"),
    [
        ([None, None], "line of the source (no times are known)"),
        (["2026-11-21", None], "line of the source (not all have a time)"),
        (["2026-11-21", "2026-11-22"], ""),
    ],
)
def test_the_axis_of_lines_says_why_it_is_none_of_times(times: list[str], title: str) -> None:
    problem = {"kind": "problem", "name": "oom", "text": "x"}
    run = with_rows(made(5), *(problem | {"line": n} for n in (7, 9)))
    figure = problem_line(run.problems.assign(at=pd.to_datetime(pd.Series(times))), {})
    assert figure
    assert figure["layout"]["xaxis"]["title"]["text"] == title


def test_times_of_whole_seconds_and_of_parts_of_them_stand_on_one_axis() -> None:
    problem = {"kind": "problem", "name": "oom", "text": "x"}
    run = with_rows(made(5), *(problem | {"line": n} for n in (7, 8, 9)))
    times = pd.to_datetime(
        ["2026-11-21T05:58:36.500", "2026-11-21T05:58:37", "2026-11-21T05:58:38"], format="ISO8601"
    )
    figure = problem_line(run.problems.assign(at=times, root_cause=[True, False, False]), {})
    assert figure
    (mark,) = figure["layout"]["annotations"]
    assert (mark["text"], mark["xanchor"]) == ("first cause", "left")


def test_numbers_of_a_panel_are_written_as_people_write_them() -> None:
    steps = made(6).steps.assign(
        lr=np.linspace(0, 1e-5, 6),
        loss_scale=[524288.0, 262144.0, 131072.0, 65536.0, 65536.0, 65536.0],
        skipped=[0.0, 1.0, 2.0, 3.0, 3.0, 3.0],
        grad_norm=[1.5, 20000.0, 3.0, 4.0, 5.0, 6.0],
    )
    figure = training(steps)
    go.Figure(figure)
    assert figure
    rate, scale, norm, skipped = (figure["layout"][f"yaxis{n}"] for n in ("", "2", "3", "4"))
    assert rate["tickformat"] == "~g"  # 5e-6, not 0.5e-5
    assert scale["exponentformat"] == "SI"  # 400k, not 4e+5
    assert norm["exponentformat"] == "e"
    assert skipped["dtick"] == 1  # no half of a step is skipped
    assert "dtick" not in scale


def test_the_legend_of_several_panels_names_each_rank_once_and_nothing_without_a_name() -> None:
    """What no rank tells is in a panel of its own, above those that ranks tell."""
    told: list[tuple[str, int | None]] = [("host", None), ("resident", 0), ("resident", 1)]
    rows = [
        {"name": name, "step": step, "rank": rank, "value": step}
        for name, rank in told
        for step in (1, 2, 3)
    ]
    table = pd.DataFrame(rows).assign(segment=0, bytes=np.nan, count=np.nan)
    figure = over_steps(table, {"host": ("host", 1.0), "resident": ("resident", 1.0)})
    assert figure is not None
    lines = [(one["name"], one["showlegend"]) for one in figure["data"]]
    assert lines == [("", False), ("rank 0", True), ("rank 1", True)]
    dashes = [one["line"]["dash"] for one in figure["data"]]
    assert len(set(dashes)) == 3
