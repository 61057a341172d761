"""The script of the page counts as Python does: both draw the same icicle."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dsprof.analysis.breakdown import main_steps
from dsprof.charts import (
    LABEL,
    SHORT,
    STACK,
    Figure,
    PhaseTable,
    held,
    icicle,
    phase_table,
    step_axis,
    timeline,
)
from dsprof.charts.columns import is_windowed, step_edges
from dsprof.charts.icicle import _fit
from dsprof.page import words
from tests.page.runs import made, with_rows

REPORTS = Path(__file__).parents[2] / "reports"
SCRIPTS = ("format.js", "timeline.js", "step.js")
NODE = shutil.which("node")
#: What the scripts take from the others, and the page's words.
AROUND = f"""
const theme = {json.dumps({"labels": LABEL, "short": SHORT})};
const plots = new Map();
const numbered = (values) => Float64Array.from(values, (v) => v ?? NaN);
"""

pytestmark = pytest.mark.skipif(NODE is None, reason="needs node")


def answer(expression: str) -> Any:
    """What the scripts of the page say to an expression."""
    scripts = "\n".join((REPORTS / name).read_text(encoding="utf-8") for name in SCRIPTS)
    code = f"{AROUND}\n{scripts}\nconsole.log(JSON.stringify({expression}));"
    done = subprocess.run([str(NODE), "-"], input=code, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def said(expression: str) -> list[float]:
    """The same of an expression that gives a list of numbers."""
    return [float(number) for number in answer(f"[...{expression}]")]


def script_numbers(values: Any) -> str:
    """An array as the scripts have it, NaN and all."""
    array = np.asarray(values, dtype=float)
    return f"numbered({json.dumps([v if np.isfinite(v) else None for v in array.ravel()])})"


def script_tree(table: PhaseTable) -> str:
    names = ("names", "classes", "parents", "shared")
    return json.dumps({name: getattr(table, name) for name in names})


def test_the_mean_of_a_range_is_that_of_python() -> None:
    saved = {"kind": "phase", "name": "save-checkpoint", "raw": "save-checkpoint", "seconds": 20.0}
    run = with_rows(made(10), saved | {"step": 4, "steps": 1, "rank": 0, "timers": "megatron"})
    sampled = run.phases[(run.phases["step"] % 2 == 0)]
    table = phase_table(sampled, run.steps)
    assert table
    tree = {"names": table.names, "classes": table.classes, "parents": table.parents}
    track = json.dumps({"size": 10, "phases": tree})
    columns = json.dumps([v if np.isfinite(v) else None for v in table.seconds.T.ravel()])
    known = f"{columns}.map((v) => v ?? NaN)"
    for start, stop in ((0, 10), (2, 7), (3, 4)):
        mean = table.mean(slice(start, stop))
        assert said(f"phaseTotals({track}, {known}, {list(range(start, stop))})") == pytest.approx(
            mean
        )


def test_phases_are_fitted_into_the_step_as_in_python() -> None:
    table = phase_table(made(3).phases, made(3).steps)
    assert table
    values = table.mean()
    drawn = said(f"fit({json.dumps(table.parents)}, {json.dumps(values.tolist())}, 1.5)")
    assert drawn == pytest.approx(_fit(table, values, 1.5))


def test_what_the_timers_leave_of_a_whole_step_is_other_time() -> None:
    track = "{ seconds: [2, 2], whole_seconds: [5, NaN], other: [0.5, 0.5] }"
    assert said(f"[0, 1].map((row) => partOf({track}, 'other', row))") == [3.5, 0.5]
    assert said(f"[partOf({track}, 'seconds', 0)]") == [2.0]


def test_the_icicle_of_a_range_is_that_of_python() -> None:
    run = made(10, slow={8: 2.0})
    table = phase_table(run.phases, run.steps)
    assert table
    totals, step = table.mean(slice(6, 10)), 2.5
    whole = json.dumps(icicle(table, table.mean(), 2.0))
    track = f"{{ phases: {script_tree(table)} }}"
    (drawn,) = answer(f"icicleOf({track}, {whole}, {script_numbers(totals)}, {step})")["data"]
    (mine,) = icicle(table, totals, step)["data"]
    assert drawn["labels"] == mine["labels"]
    assert drawn["values"] == pytest.approx(mine["values"])
    assert drawn["text"] == mine["text"]
    assert drawn["customdata"] == mine["customdata"]


def test_what_two_timers_measure_is_drawn_once_in_a_range_too() -> None:
    shared = "{ parents: [-1, -1, 1], shared: [[0, 2]] }"
    assert said(f"drawnOnce({shared}, [5, 3, 1])") == [4, 3, 1]
    assert said(f"selfTimes({shared}, [5, 3, 1])") == [4, 2, 1]


@pytest.mark.parametrize("told", [2, 3, 12])
def test_a_range_is_of_the_steps_that_python_means(told: int) -> None:
    every = made(13).steps
    early = every.index <= told  # the first one is left out
    every["whole_seconds"] = every["seconds"].where(early) * 1.5
    every["whole_from"] = pd.Series("logged", every.index).where(early)
    mine, steps = main_steps(every), every.iloc[1:]
    track = ", ".join(
        f"{name}: {script_numbers(steps[name])}" for name in ("seconds", "whole_seconds")
    )
    range_ = answer(f"rangeOf({{ {track} }}, 0, {len(steps)})")
    assert range_["rows"] == (mine.index - 1).tolist()
    chosen = [range_["seconds"][str(row)] for row in range_["rows"]]
    assert chosen == pytest.approx(mine["seconds"].tolist())


def zoomed(steps: pd.DataFrame, figure: Figure, start: int, stop: int) -> list[dict[str, Any]]:
    """The traces that the script draws of some steps."""
    shares = ("communication", "pipeline")
    columns = {
        name: steps[name] for name in (*STACK, "seconds", "loss", "samples_per_second", "step")
    }
    columns |= {"segment": steps["segment"], "x": pd.Series(step_axis(steps))}
    if is_windowed(steps):
        columns["low"], columns["high"] = map(pd.Series, step_edges(steps))
    columns |= {f"bound-{name}": pd.Series(held(steps, name)) for name in shares}
    track = ", ".join(f"'{name}': {script_numbers(values)}" for name, values in columns.items())
    known = json.dumps([name for name in STACK if steps[name].notna().any()])
    fields = (
        f"{{ track: {{ size: {len(steps)}, classes: {known}, {track} }}, "
        f"whole: {json.dumps(figure)}, noun: 'step', from: {start}, to: {stop} }}"
    )
    part = f"Object.assign(Object.create(Timeline.prototype), {fields}).part()"
    found: list[dict[str, Any]] = answer(part)["data"]
    return found


@pytest.mark.parametrize("steps", [40, 700])
def test_the_columns_of_the_script_are_those_of_python(steps: int) -> None:
    table = made(steps, slow={8: 2.0, 30: 2.0}).steps.assign(mixed=np.nan)
    figure = timeline(table)
    assert figure
    bars = [trace for trace in figure["data"] if trace["type"] == "bar"]
    drawn = [trace for trace in zoomed(table, figure, 0, steps) if trace["type"] == "bar"]
    assert [trace["meta"] for trace in drawn] == [trace["meta"] for trace in bars]
    for mine, its in zip(bars, drawn, strict=True):
        assert its["x"] == pytest.approx(mine["x"])
        assert its["width"] == pytest.approx(mine["width"], rel=1e-3)
        assert [v or 0 for v in its["y"]] == pytest.approx([v or 0 for v in mine["y"]], abs=2e-3)
        assert its["customdata"] == mine["customdata"]


def test_no_column_holds_steps_of_two_launches() -> None:
    first = made(400).steps.assign(mixed=np.nan)
    table = pd.concat([first, first.iloc[:300].assign(segment=1)], ignore_index=True)
    figure = timeline(table)
    assert figure
    mine, its = (
        next(trace["customdata"] for trace in data if trace["type"] == "bar")
        for data in (figure["data"], zoomed(table, figure, 0, len(table)))
    )
    assert mine == its
    assert {"step 400", "steps 1 to 2, mean"} < set(mine)
    track = "{ step: [1, 2, 1], segment: [0, 0, 1] }"
    assert answer(f"fromTo({track}, 0, 3)") == "1 of launch 1 to 1 of launch 2"
    assert answer(f"fromTo({track}, 0, 2)") == "1 to 2"


@pytest.mark.parametrize("steps", [40, 700])
def test_the_windows_of_the_script_are_those_of_python(steps: int) -> None:
    table = made(steps).steps.assign(mixed=np.nan, covers=10.0)
    table["step"] *= 10
    figure = timeline(table)
    assert figure
    bars = [trace for trace in figure["data"] if trace["type"] == "bar"]
    drawn = [trace for trace in zoomed(table, figure, 0, steps) if trace["type"] == "bar"]
    for mine, its in zip(bars, drawn, strict=True):
        assert its["x"] == pytest.approx(mine["x"])
        assert its["width"] == pytest.approx(mine["width"])
        assert its["customdata"] == mine["customdata"]


def test_a_range_is_drawn_from_its_own_steps_and_keeps_its_slowest() -> None:
    table = made(700, slow={603: 2.0}).steps.assign(mixed=np.nan)
    figure = timeline(table)
    assert figure
    traces = {str(trace["meta"]): trace for trace in zoomed(table, figure, 600, 620)}
    assert traces["communication"]["x"] == list(range(601, 621))
    assert traces["communication"]["y"][2] == pytest.approx(2.0)
    assert max(traces["seconds"]["y"]) == pytest.approx(table["seconds"].max())


def test_no_line_of_a_range_leads_from_one_launch_to_another() -> None:
    first = made(10).steps.assign(mixed=np.nan)
    table = pd.concat([first, first.assign(segment=1)], ignore_index=True)
    figure = timeline(table)
    assert figure
    (loss,) = (trace for trace in zoomed(table, figure, 0, 20) if trace["meta"] == "loss")
    (mine,) = (trace for trace in figure["data"] if trace["meta"] == "loss")
    assert [n for n, y in enumerate(loss["y"]) if y is None] == [10]
    assert (loss["x"], loss["customdata"]) == (mine["x"], mine["customdata"])


@pytest.mark.parametrize(
    "seconds",
    [
        [0.12207, 0.00101, 0.0001, 7e-05],  # as a source prints milliseconds
        [0.12207, 0.00101, 0.0001, 7.25e-05],
        [4.38, 0.352, 0.0085, float("nan")],
        [1e-5, 2.5e-6],
        [0.009996, 0.00123],
    ],
)
def test_the_script_writes_a_column_as_python_does(seconds: list[float]) -> None:
    stored = np.array(seconds, np.float32)
    asked = script_numbers(stored)
    assert answer(f"[...{asked}].map(oneUnit([...{asked}]))") == words.column(seconds)


def test_the_steps_of_a_later_launch_are_numbered_in_a_range_too() -> None:
    steps = made(10).steps.assign(covers=10.0)
    steps["step"] *= 10
    again = pd.concat([steps, steps.assign(segment=1)], ignore_index=True)
    x, (_, high) = step_axis(again), step_edges(again)
    track = f"x: {script_numbers(x)}, high: {script_numbers(high)}"
    track += f", step: {script_numbers(again['step'])}"
    asked = "whole: { layout: { xaxis: { tickvals: [0] } } }, from: 12, to: 15"
    fields = f"{{ track: {{ {track} }}, {asked} }}"
    ticks = answer(f"Object.assign(Object.create(Timeline.prototype), {fields}).ticks()")
    assert ticks["ticktext"] == ["30", "40", "50"]
    assert ticks["tickvals"] == [end - 0.5 for end in high[12:15]]


def test_what_no_timer_covers_of_a_step_is_what_its_phases_leave() -> None:
    tree = "{ parents: [-1, 0, -1], shared: [] }"
    assert answer(f"untimed({tree}, [2, 1, NaN], 5)") == 3
    assert answer(f"untimed({tree}, [4, 1, 2], 5)") == 0


@pytest.mark.parametrize(
    ("column", "written"),
    [
        ([2.39, 2.5878, 10.0], ["2.390", "2.588", "10.000"]),
        ([2167.21, 978.67], ["2,167.2", "978.7"]),
        ([65536.0, 32768.0], ["65,536", "32,768"]),
        ([5.662e-06, 1.126e-04], ["0.00000566", "0.00011260"]),
        ([float("nan"), 0.5], ["–", "0.5"]),
    ],
)
def test_the_numbers_of_a_column_have_the_same_digits_behind_the_point(
    column: list[float], written: list[str]
) -> None:
    stored = script_numbers(np.array(column, np.float32))
    assert answer(f"[...{stored}].map(sameDigits({stored}))") == written
