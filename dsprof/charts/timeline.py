"""Step time over the run, stacked by class, with throughput and loss below it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from dsprof.charts.columns import Columns, columns, step_axis
from dsprof.charts.figure import (
    Figure,
    Floats,
    Whole,
    axis,
    keep,
    layout,
    numbers,
    panel_title,
    whole_ticks,
)
from dsprof.charts.palette import LABEL, STACK, colour, fill
from dsprof.events import Bound
from dsprof.units import format_seconds

#: Rows from top to bottom: name, share of the height.
_ROWS = {"time": 0.56, "bound": 0.03, "rate": 0.19, "loss": 0.19}

BEYOND = 200  #: slow steps marked at the end of the axis

#: What the strip under the columns marks: bounds that communication is to blame for.
HELD = {Bound.COMMUNICATION: "communication", Bound.PIPELINE: "wait"}


def timeline(steps: pd.DataFrame) -> Figure | None:
    """Steps of one engine, in order; None where no step has a time, a rate or a loss."""
    rate = _rate(steps)
    rows = [
        row
        for row, there in {
            "time": _known(steps, "seconds"),
            "bound": _known(steps, "seconds") and any(bound_by(steps, b).any() for b in HELD),
            "rate": rate is not None,
            "loss": _known(steps, "loss"),
        }.items()
        if there
    ]
    if not rows:
        return None
    bars, x = columns(steps), step_axis(steps)
    traces: list[dict[str, Any]] = []
    if "time" in rows:
        traces.append(_heading(steps, bars))
        traces += _stack(steps, bars)
        if len(bars.starts) < len(steps):
            # The columns answer for it: a tooltip of one step beside means would mislead.
            each = _line("each step, outliers kept", x, steps, "seconds", "y")
            traces.append(each | {"hoverinfo": "skip", "hovertemplate": None})
        traces += _beyond(x, steps)
    if "bound" in rows:
        traces += _strips(steps, bars)
    if "rate" in rows and rate is not None:
        traces.append(_line(rate[1], x, steps, rate[0], "y3"))
    if "loss" in rows:
        traces.append(_line("loss", x, steps, "loss", "y4"))
    return {"data": traces, "layout": _layout(rows, steps, x, rate[1] if rate else "")}


def bound_by(steps: pd.DataFrame, bound: str) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which steps that class holds back. [steps]"""
    return steps["bound"].astype("object").eq(bound).to_numpy(dtype=bool)


def _known(frame: pd.DataFrame, column: str) -> bool:
    return column in frame and bool(frame[column].notna().any())


def _rate(steps: pd.DataFrame) -> tuple[str, str] | None:
    for column, label in (
        ("samples_per_second", "samples/s"),
        ("tokens_per_second", "tokens/s"),
        ("tflops", "TFLOP/s per GPU"),
    ):
        if _known(steps, column):
            return column, label
    return None


def _values(steps: pd.DataFrame, column: str) -> Floats:
    return steps[column].to_numpy(dtype=float, na_value=np.nan)


def _stack(steps: pd.DataFrame, bars: Columns) -> list[dict[str, Any]]:
    parts = {c: _values(steps, c) for c in STACK if _known(steps, c)}
    explained = sum((np.nan_to_num(p) for p in parts.values()), start=np.zeros(len(steps)))
    rest = _values(steps, "seconds") - explained
    rest[np.abs(rest) < 1e-3 * np.nan_to_num(_values(steps, "seconds"))] = np.nan
    parts["unknown"] = np.where(rest > 0, rest, np.nan)
    means = {role: bars.mean(values) for role, values in parts.items()}
    return [
        {
            "type": "bar",
            "meta": role,
            "name": LABEL[role],
            "x": numbers(bars.x, 9),
            "y": numbers(mean),
            "width": numbers(bars.width, 9),
            "customdata": bars.labels,
            "marker": fill(role),
            "hovertemplate": "%{y:.3s}s<extra>" + LABEL[role] + "</extra>",
        }
        for role, mean in means.items()
        if np.nanmax(mean, initial=0.0) > 0  # what takes no time is neither drawn nor named
    ]


def _heading(steps: pd.DataFrame, bars: Columns) -> dict[str, Any]:
    """First line of a tooltip: which steps a column is of, and how long they take."""
    return {
        "type": "scatter",
        "mode": "markers",
        "meta": "columns",
        "name": "",
        "x": numbers(bars.x, 9),
        "y": numbers(bars.mean(_values(steps, "seconds"))),
        "customdata": bars.labels,
        "marker": {"color": "rgba(0,0,0,0)"},
        "hovertemplate": "<b>%{customdata}: %{y:.3s}s</b><extra></extra>",
    }


def _strips(steps: pd.DataFrame, bars: Columns) -> list[dict[str, Any]]:
    return [
        {
            "type": "bar",
            "meta": f"bound-{bound}",
            "name": f"{bound}-bound",
            "x": numbers(bars.x, 9),
            "y": numbers(bars.mean(bound_by(steps, bound).astype(float)), 3),
            "width": numbers(bars.width, 9),
            "yaxis": "y2",
            "marker": fill(role),
            "hovertemplate": "%{y:.0%} of these steps<extra>" + f"{bound}-bound</extra>",
        }
        for bound, role in HELD.items()
        if bound_by(steps, bound).any()
    ]


def _line(name: str, x: Floats, steps: pd.DataFrame, column: str, yaxis: str) -> dict[str, Any]:
    y = _values(steps, column)
    kept = keep(x, y)
    if f"{column}_broken" in steps:
        kept = _with_gaps(kept, steps[f"{column}_broken"].to_numpy(dtype=bool))
    step = steps["step"].to_numpy(dtype=np.int64)
    role = "ink" if yaxis != "y" and len(kept) <= 400 else "muted"  # a long one is a dense band
    return {
        "type": "scatter",
        "mode": "lines+markers" if len(kept) <= 60 else "lines",
        "name": name,
        "meta": column,
        "x": numbers(x[kept], 9),
        "y": numbers(y[kept]),
        "yaxis": yaxis,
        "connectgaps": False,
        "customdata": [f"{n:,}" for n in step[kept]],
        "line": {"color": colour(role), "width": 1.4 if len(kept) <= 400 else 0.7},
        "marker": {"size": 4, "color": colour(role)},
        "hovertemplate": "%{y:.4~g}<extra>" + name + ", step %{customdata}</extra>",
    }


def _with_gaps(kept: Whole, broken: np.ndarray[Any, np.dtype[np.bool_]]) -> Whole:
    """Points of a line with those that interrupt it; one is enough between two others."""
    both = np.union1d(kept, np.flatnonzero(broken))
    gap = broken[both]
    thin: Whole = both[~gap | ~np.append(False, gap[:-1])]
    return thin


def highest(seconds: Floats) -> float | None:
    """Where the axis of step times ends so that a few slow steps do not flatten the others."""
    known = seconds[np.isfinite(seconds)]
    if len(known) < 20:
        return None
    usual = 1.4 * float(np.percentile(known, 98))
    return usual if float(known.max()) > 1.5 * usual else None


def _beyond(x: Floats, steps: pd.DataFrame) -> list[dict[str, Any]]:
    """Steps too slow for the axis, as triangles at its end that say how slow."""
    seconds = _values(steps, "seconds")
    end = highest(seconds)
    if end is None:
        return []
    over = np.flatnonzero(np.nan_to_num(seconds) > end)
    over = np.sort(over[np.argsort(-seconds[over])[:BEYOND]])
    return [
        {
            "type": "scatter",
            "mode": "markers+text" if len(over) <= 6 else "markers",
            "meta": "beyond",
            "name": "slower than the axis shows",
            "x": numbers(x[over], 9),
            "y": numbers(np.full(len(over), 0.97 * end)),
            "text": [format_seconds(s) for s in seconds[over]],
            "customdata": [f"{n:,}" for n in steps["step"].to_numpy(dtype=np.int64)[over]],
            "textposition": "middle right",
            "textfont": {"size": 11, "color": colour("ink")},
            "marker": {"symbol": "triangle-up", "size": 9, "color": colour("ink")},
            "hovertemplate": "%{text}<extra>step %{customdata}, beyond the axis</extra>",
        }
    ]


def _layout(rows: list[str], steps: pd.DataFrame, x: Floats, rate: str) -> dict[str, Any]:
    titles = {"time": "time of one step", "bound": "", "rate": rate, "loss": "loss"}
    names = {"time": "yaxis", "bound": "yaxis2", "rate": "yaxis3", "loss": "yaxis4"}
    domains = _domains(rows)
    more: dict[str, Any] = {
        names[row]: axis("", domain=list(domain), fixedrange=True, nticks=4)
        for row, domain in domains.items()
    }
    if "time" in rows:
        more["yaxis"] |= {"rangemode": "tozero", "ticksuffix": "s", "tickformat": "~s"}
        end = highest(_values(steps, "seconds"))
        if end is not None:
            more["yaxis"]["range"] = [0, end]
    if "bound" in rows:
        more["yaxis2"] |= {"range": [0, 1], "showticklabels": False, "showgrid": False}
    last = "y" + names[rows[-1]].removeprefix("yaxis")
    bottom = axis("optimizer step", anchor=last, showgrid=False, tickformat=",d")
    heading = {"unifiedhovertitle": {"text": " "}} if "time" in rows else {}
    height = 120 + round(sum(_ROWS[row] for row in rows) * 420)
    return layout(
        height,
        margin={"l": 62, "r": 12, "t": 24, "b": 40},
        barmode="stack",
        bargap=0,
        hovermode="x unified",
        dragmode="zoom",
        xaxis=bottom | _ticks(steps, x) | {"range": _reach(x)} | heading,
        shapes=_launches(steps, x),
        annotations=[panel_title(titles[row], top) for row, (_, top) in domains.items()],
        **more,
    )


def _reach(x: Floats) -> list[float]:
    """The whole axis; found by plotly it would leave room for marks and words."""
    edge = (x[-1] - x[0]) / (2 * (len(x) - 1)) if len(x) > 1 else 0.5
    return [float(x[0] - edge), float(x[-1] + edge)]


def _domains(rows: list[str]) -> dict[str, tuple[float, float]]:
    gaps = [0.015 if row == "bound" else 0.08 for row in rows[1:]]
    scale = (1 - sum(gaps)) / sum(_ROWS[row] for row in rows)
    domains, top = {}, 1.0
    for row, gap in zip(rows, [*gaps, 0.0], strict=True):
        bottom = max(0.0, top - _ROWS[row] * scale)
        domains[row] = (round(bottom, 4), round(top, 4))
        top = bottom - gap
    return domains


def _ticks(steps: pd.DataFrame, x: Floats) -> dict[str, Any]:
    """Step numbers at the ticks where the axis is not the step number itself."""
    numbers_ = steps["step"].to_numpy(dtype=float)
    if np.array_equal(x, numbers_):
        return whole_ticks(x)
    at = np.unique(np.linspace(0, len(x) - 1, min(len(x), 9)).astype(int))
    return {
        "tickmode": "array",
        "tickvals": numbers(x[at], 9),
        "ticktext": [f"{int(n):,}" for n in numbers_[at]],
    }


def _launches(steps: pd.DataFrame, x: Floats) -> list[dict[str, Any]]:
    """A line where a new launch begins."""
    segment = steps["segment"].to_numpy(dtype=float, na_value=0.0)
    return [
        {
            "type": "line",
            "xref": "x",
            "yref": "paper",
            "x0": float((x[at - 1] + x[at]) / 2),
            "x1": float((x[at - 1] + x[at]) / 2),
            "y0": 0,
            "y1": 1,
            "line": {"color": colour("muted"), "width": 1, "dash": "dot"},
            "label": {"text": "new launch", "textposition": "end", "font": {"size": 10}},
        }
        for at in np.flatnonzero(np.diff(segment)) + 1
    ]
