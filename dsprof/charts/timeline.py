"""Step time over the run, stacked by class, with throughput and loss below it."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pandas as pd

from dsprof.charts.columns import (
    AIRY,
    Columns,
    apart,
    columns,
    launch_lines,
    launch_starts,
    reach,
    step_axis,
    step_ticks,
)
from dsprof.charts.figure import (
    TICKS,
    Figure,
    Floats,
    Whole,
    along,
    axis,
    keep,
    layout,
    numbers,
    panel_title,
    time_unit,
)
from dsprof.charts.palette import LABEL, STACK, colour, fill
from dsprof.events import Bound, Class
from dsprof.run.steps.durations import all_seconds
from dsprof.units import format_seconds, format_share

#: Rows from top to bottom: name, share of the height.
_ROWS = {"time": 0.56, "bound": 0.1, "rate": 0.19, "loss": 0.19}

BEYOND = 200  #: slow steps marked at the end of the axis
_ABOVE = 18  #: px, of what stands above steps beyond the axis
FEWEST, MANY = 3, 20  #: steps of which one may be beyond it; and without saying much

#: Rates of a step by their column, as they are titled; the first one told is drawn.
RATES: Final = {
    "samples_per_second": "samples/s",
    "tokens_per_second": "tokens/s",
    "tflops": "TFLOP/s per GPU",
}

LEAST = 1e-3  #: of the highest column; what takes less is neither drawn nor named

#: What the strip under the columns marks: bounds that communication is to blame for.
HELD = {
    Bound.COMMUNICATION: str(Class.COMMUNICATION),
    Bound.PIPELINE: str(Class.WAIT),
}


def timeline(steps: pd.DataFrame, noun: str = "step") -> Figure | None:
    """Steps of one engine, in order; None where no step has a time, a rate or a loss.

    `noun` is what the rows of `steps` are: steps, or records that nobody knows the steps of.
    Times are drawn in the unit that `layout.meta` gives in seconds.
    """
    is_timed, rate, has_loss = _known(steps, "seconds"), _rate(steps), _known(steps, "loss")
    if not (is_timed or rate or has_loss):
        return None
    bars, x = columns(steps, noun=noun), step_axis(steps)
    unit = time_unit(highest(_values(steps, "seconds")) or _longest(steps))
    traces: list[dict[str, Any]] = []
    titles: dict[str, str] = {}
    if is_timed:
        titles["time"] = f"time of one {noun}, {unit[1]}"
        traces += _times(steps, bars, x, unit)
    if is_timed and any(bound_by(steps, bound).any() for bound in HELD):
        titles["bound"] = "held back by communication or waiting"
        traces += _strips(steps, bars)
    if rate:
        column, titles["rate"] = rate
        traces.append(_line(titles["rate"], x, steps, column, "y3"))
    if has_loss:
        titles["loss"] = "loss"
        traces.append(_line("loss", x, steps, "loss", "y4"))
    return {"data": traces, "layout": _layout(titles, steps, x, unit[0], noun)}


def held(steps: pd.DataFrame, bound: str) -> Floats:
    """Which part of the steps that `bound` holds back is communication and waiting. [steps]

    NaN for all other steps.
    """
    moved = sum((np.nan_to_num(_values(steps, c)) for c in HELD.values()), np.zeros(len(steps)))
    share = np.clip(moved / all_seconds(steps).to_numpy(dtype=float), 0.0, 1.0)
    return np.where(bound_by(steps, bound), share, np.nan)


def _longest(steps: pd.DataFrame) -> float:
    return float(np.nanmax(_values(steps, "seconds"), initial=0.0))


def _times(
    steps: pd.DataFrame, bars: Columns, x: Floats, unit: tuple[float, str]
) -> list[dict[str, Any]]:
    """Columns by class; where a column is the mean of several steps, each of them as a line."""
    traces = [_heading(steps, bars, unit), *_stack(steps, bars, unit)]
    if len(bars.starts) < len(steps):
        # The columns answer for it: a tooltip of one step beside means would mislead.
        drawn = steps.assign(seconds=steps["seconds"] / unit[0])
        each = _line("each step, outliers kept", x, drawn, "seconds", "y")
        traces.append(each | {"hoverinfo": "skip", "hovertemplate": None})
    return traces + _beyond(x, steps, unit[0])


def bound_by(steps: pd.DataFrame, bound: str) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which steps that class holds back. [steps]"""
    return steps["bound"].astype("object").eq(bound).to_numpy(dtype=bool)


def _known(frame: pd.DataFrame, column: str) -> bool:
    return column in frame and bool(frame[column].notna().any())


def _rate(steps: pd.DataFrame) -> tuple[str, str] | None:
    return next((rate for rate in RATES.items() if _known(steps, rate[0])), None)


def _values(steps: pd.DataFrame, column: str) -> Floats:
    return steps[column].to_numpy(dtype=float, na_value=np.nan)


def _stack(steps: pd.DataFrame, bars: Columns, unit: tuple[float, str]) -> list[dict[str, Any]]:
    parts = {c: _values(steps, c) for c in STACK if _known(steps, c)}
    explained = sum((np.nan_to_num(p) for p in parts.values()), start=np.zeros(len(steps)))
    rest = _values(steps, "seconds") - explained
    rest[np.abs(rest) < LEAST * np.nan_to_num(_values(steps, "seconds"))] = np.nan
    parts["unknown"] = np.where(rest > 0, rest, np.nan)
    means = {role: bars.mean(values) / unit[0] for role, values in parts.items()}
    least = LEAST * max(float(np.nanmax(mean, initial=0.0)) for mean in means.values())
    edge = {"color": colour("paper"), "width": 1 if len(bars.starts) <= AIRY else 0}
    return [
        {
            "type": "bar",
            "meta": role,
            "name": LABEL[role],
            "x": numbers(bars.x, 9),
            "y": numbers(mean),
            "width": numbers(bars.width, 9),
            "customdata": bars.labels,
            "marker": fill(role) | {"line": edge},
            "hovertemplate": f"%{{y:,.3r}} {unit[1]}<extra>{LABEL[role]}</extra>",
        }
        for role, mean in means.items()
        if np.nanmax(mean, initial=0.0) > least
    ]


def _heading(steps: pd.DataFrame, bars: Columns, unit: tuple[float, str]) -> dict[str, Any]:
    """First line of a tooltip: which steps a column is of, and how long they take."""
    return {
        "type": "scatter",
        "mode": "markers",
        "meta": "columns",
        "name": "",
        "x": numbers(bars.x, 9),
        "y": numbers(bars.mean(_values(steps, "seconds")) / unit[0]),
        "customdata": bars.labels,
        "marker": {"color": "rgba(0,0,0,0)"},
        "hovertemplate": f"<b>%{{customdata}}: %{{y:,.3r}} {unit[1]}</b><extra></extra>",
    }


def _strips(steps: pd.DataFrame, bars: Columns) -> list[dict[str, Any]]:
    """Which steps are held back, as high as by how much; of many in a column, their mean."""
    size = np.diff(np.append(bars.starts, len(steps)))
    shares = {bound: held(steps, bound) for bound in HELD if bound_by(steps, bound).any()}
    counts = {
        bound: np.add.reduceat(np.isfinite(share).astype(int), bars.starts)
        for bound, share in shares.items()
    }
    degree = {bound: bars.mean(share) for bound, share in shares.items()}
    return [
        {
            "type": "bar",
            "meta": f"bound-{bound}",
            "name": f"{bound}-bound",
            "x": numbers(bars.x, 9),
            "y": numbers(degree[bound] * counts[bound] / size, 3),
            "width": numbers(bars.width, 9),
            "customdata": [
                _of_them(int(count), int(of), float(share))
                for count, of, share in zip(counts[bound], size, degree[bound], strict=True)
            ],
            "yaxis": "y2",
            "marker": fill(HELD[bound]),
            "hovertemplate": f"%{{customdata}}<extra>{bound}-bound</extra>",
        }
        for bound in shares
    ]


def _of_them(count: int, of: int, share: float) -> str:
    """How many steps of a column are held back, and by how much."""
    if not count:
        return ""
    part = format_share(share)
    return part if of == 1 else f"{count:,} of {of:,} steps, {part} of their time"


def _line(name: str, x: Floats, steps: pd.DataFrame, column: str, yaxis: str) -> dict[str, Any]:
    y = _values(steps, column)
    kept = keep(x, y)
    if f"{column}_broken" in steps:
        kept = _with_gaps(kept, steps[f"{column}_broken"].to_numpy(dtype=bool))
    step = steps["step"].to_numpy(dtype=np.int64)[kept]
    starts = launch_starts(steps["segment"].to_numpy(dtype=np.int64, na_value=0)[kept])
    role = "ink" if yaxis != "y" and len(kept) <= 400 else "muted"  # a long one is a dense band
    return {
        "type": "scatter",
        "mode": "lines+markers" if len(kept) <= 60 else "lines",
        "name": name,
        "meta": column,
        "x": numbers(apart(x[kept], starts), 9),
        "y": numbers(apart(y[kept], starts, np.nan)),
        "yaxis": yaxis,
        "connectgaps": False,
        "customdata": [f"{n:,}" for n in apart(step, starts)],
        "line": {"color": colour(role), "width": 1.4 if len(kept) <= 400 else 0.7},
        "marker": {"size": 4, "color": colour(role)},
        "hovertemplate": "%{y:,.5~r}<extra>" + name + ", step %{customdata}</extra>",
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
    if len(known) < FEWEST:
        return None
    usual = 1.4 * float(np.percentile(known, 98, method="lower"))
    much = 1.5 if len(known) >= MANY else 2.2  # of few steps the longest still shows the others
    return usual if float(known.max()) > much * usual else None


def _beyond(x: Floats, steps: pd.DataFrame, unit: float) -> list[dict[str, Any]]:
    """Steps too slow for the axis, as triangles at its end; above it stands how slow they are."""
    seconds = _values(steps, "seconds")
    end = highest(seconds)
    if end is None:
        return []
    over = np.flatnonzero(np.nan_to_num(seconds) > end)
    over = np.sort(over[np.argsort(-seconds[over])[:BEYOND]])
    number = steps["step"].to_numpy(dtype=np.int64)[over]
    follows = steps["validated"].to_numpy(dtype=bool)[over] if "validated" in steps else over < 0
    after = np.where(follows, " after a validation", "")
    return [
        {
            "type": "scatter",
            "mode": "markers+text" if len(over) <= 6 else "markers",
            "meta": "beyond",
            "name": "slower than the axis shows",
            "x": numbers(x[over], 9),
            "y": [end / unit] * len(over),
            "cliponaxis": False,
            "text": [format_seconds(s) for s in seconds[over]],
            "customdata": [f"step {n:,}{more}" for n, more in zip(number, after, strict=True)],
            "textposition": ["top left" if near else "top center" for near in _at_end(x)[over]],
            "textfont": {"size": 11, "color": colour("ink")},
            "marker": {"symbol": "triangle-up", "size": 9, "color": colour("ink")},
            "hovertemplate": "%{text}<extra>%{customdata}, beyond the axis</extra>",
        }
    ]


def _at_end(x: Floats) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Where words in the middle above a mark would leave the chart."""
    return np.asarray(x > x[-1] - 0.03 * (x[-1] - x[0]))


def _layout(
    titles: dict[str, str], steps: pd.DataFrame, x: Floats, unit: float, noun: str
) -> dict[str, Any]:
    """Panels over each other, by what stands above each."""
    names = {"time": "yaxis", "bound": "yaxis2", "rate": "yaxis3", "loss": "yaxis4"}
    domains = _domains(list(titles))
    more: dict[str, Any] = {
        names[row]: axis(
            "", domain=list(domain), fixedrange=True, nticks=TICKS, separatethousands=True
        )
        for row, domain in domains.items()
    }
    if "time" in titles:
        more["yaxis"] |= {"rangemode": "tozero"}
        end = highest(_values(steps, "seconds"))
        if end is not None:
            more["yaxis"]["range"] = [0, end / unit]
    if "bound" in titles:
        more["yaxis2"] |= {"range": [0, 1], "tickvals": [0, 0.5, 1]}
        more["yaxis2"] |= {"ticktext": ["0", "50 %", "100 %"]}
    last = "y" + names[list(titles)[-1]].removeprefix("yaxis")
    bottom = axis(along(noun), anchor=last, showgrid=False, tickformat=",d")
    above = _ABOVE if "range" in more.get("yaxis", {}) else 0
    notes = [panel_title(titles[row], top) for row, (_, top) in domains.items()]
    notes[0] |= {"yshift": above} if above else {}
    heading = {"unifiedhovertitle": {"text": " "}} if "time" in titles else {}
    return layout(
        120 + round(sum(_ROWS[row] for row in titles) * 420) + above,
        margin={"l": 68, "r": 12, "t": 24 + above, "b": 40},
        barmode="stack",
        bargap=0,
        hovermode="x unified",
        hoversubplots="axis",  # one tooltip for all panels
        dragmode="zoom",
        meta={"unit": unit, "noun": noun},
        xaxis=bottom | step_ticks(steps, x) | {"range": reach(steps)} | heading,
        shapes=launch_lines(steps, x),
        annotations=notes,
        **more,
    )


def _domains(rows: list[str]) -> dict[str, tuple[float, float]]:
    gaps = [0.08 for _ in rows[1:]]
    scale = (1 - sum(gaps)) / sum(_ROWS[row] for row in rows)
    domains, top = {}, 1.0
    for row, gap in zip(rows, [*gaps, 0.0], strict=True):
        bottom = max(0.0, top - _ROWS[row] * scale)
        domains[row] = (round(bottom, 4), round(top, 4))
        top = bottom - gap
    return domains
