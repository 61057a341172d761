"""Lines over steps: memory, GPU counters, learning rate, loss scale, skipped steps."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import pandas as pd

from dsprof.charts.columns import StepAxis, apart, launch_lines, launch_starts, reach, step_ticks
from dsprof.charts.figure import TICKS, Figure, along, axis, keep, layout, numbers, panel_title
from dsprof.charts.palette import colour

Line = tuple[str, np.ndarray[Any, Any], np.ndarray[Any, Any]]  #: name, x, y

LINES = 8  #: ranks drawn one by one; more are drawn as lowest, median and highest
_DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot", "5px,2px", "2px,4px")
TRAINING = {
    "lr": "learning rate",
    "loss_scale": "loss scale",
    "grad_norm": "gradient norm",
    "skipped": "skipped steps in all",
}


_TINY = 1e-2  #: numbers below it are learning rates
_PANEL, _TITLE = 96, 20  #: px, of a panel and of the title above it
_STAIRS = ("loss_scale", "skipped")  #: they stay until they jump


def training(steps: pd.DataFrame, noun: str = "step") -> Figure | None:
    """Learning rate, loss scale, gradient norm and skipped steps, those that ever change.

    Args:
        noun: what each row is, in words.
    """
    shown = [c for c in TRAINING if _changes(steps[c])]
    if not shown:
        return None
    place = StepAxis.of(steps, steps)
    panels = {TRAINING[c]: _by_engine(steps, c, place) for c in shown}
    return _panels(panels, place, stairs={TRAINING[c] for c in _STAIRS}, steps=steps, noun=noun)


def _by_engine(steps: pd.DataFrame, column: str, place: StepAxis) -> list[Line]:
    parts = list(steps.groupby("engine"))
    return [
        (f"engine {engine}" if len(parts) > 1 else "", place.at(part), _floats(part[column]))
        for engine, part in parts
    ]


def _changes(values: pd.Series[Any]) -> bool:
    known = values.dropna()
    return len(known) > 0 and bool((known != known.iloc[0]).any())


def unchanged(steps: pd.DataFrame) -> dict[str, tuple[str, float]]:
    """What a chart would show as a flat line: name -> title and its only value."""
    return {
        c: (title, float(steps[c].dropna().iloc[0]))
        for c, title in TRAINING.items()
        if steps[c].notna().any() and not _changes(steps[c])
    }


def over_steps(
    frame: pd.DataFrame,
    measures: dict[str, tuple[str, float]],
    steps: pd.DataFrame | None = None,
    noun: str = "step",
) -> Figure | None:
    """One panel per measure of a long table (columns name, segment, step, rank, the measure's).

    A measure that never changes, or is told only once or twice, has none.

    Args:
        frame: rows of `Run.memory` or `Run.gpu` of one engine.
        measures: name in the table -> title of the panel, and what to divide by.
        steps: of the run, on whose axis these stand.
        noun: what each of them is, in words.
    """
    frame = frame[frame["step"].notna()]
    place = StepAxis.of(frame, steps)
    panels = {}
    for name, (title, unit) in measures.items():
        lines = _by_rank(frame[frame["name"] == name], unit, place)
        if any(
            len(np.unique(y[np.isfinite(y)])) > 1 and len(np.unique(x)) > 2 for _, x, y in lines
        ):
            panels[title] = lines
    return _panels(panels, place, rangemode="tozero", steps=steps, noun=noun) if panels else None


def measured(rows: pd.DataFrame) -> pd.Series[float]:
    """The number of each row of `Run.memory` or `Run.gpu`: bytes, a value or a count."""
    found = rows["bytes"].where(rows["bytes"].notna(), rows["value"])
    return found.where(found.notna(), rows["count"]).astype(float)


def _by_rank(rows: pd.DataFrame, unit: float, place: StepAxis) -> list[Line]:
    rows = rows.assign(
        _x=place.at(rows), _y=measured(rows) / unit, _rank=rows["rank"].fillna(-1).astype(int)
    )
    ranks = sorted(rows["_rank"].unique())
    if len(ranks) <= LINES:
        named = [(f"rank {r}" if r >= 0 else "", rows[rows["_rank"] == r]) for r in ranks]
        return [(name, _floats(part["_x"]), _floats(part["_y"])) for name, part in named]
    spread = rows.groupby("_x")["_y"].agg(["max", "median", "min"])
    x = spread.index.to_numpy(dtype=float)
    words = {"max": "highest rank", "median": "median rank", "min": "lowest rank"}
    return [(words[c], x, _floats(spread[c])) for c in words]


def _floats(values: pd.Series[Any]) -> np.ndarray[Any, Any]:
    return values.to_numpy(dtype=float, na_value=np.nan)


def _panels(
    panels: dict[str, list[Line]],
    place: StepAxis,
    *,
    stairs: Collection[str] = (),
    rangemode: str = "normal",
    steps: pd.DataFrame | None,
    noun: str,
) -> Figure:
    """Panels over each other; from zero on where rounding would else look like a cliff."""
    traces, axes, titles = [], {}, []
    names = _names(panels)
    unexplained = set(filter(None, names))  # by the legend, which is one for all panels
    named = bool(unexplained)
    above = round(1 + _TITLE / (26 + _PANEL * len(panels)), 4)  # the first title stands below it
    gap = 0.3 / len(panels) if len(panels) > 1 else 0.0
    share = (1 - gap * (len(panels) - 1)) / len(panels)
    for row, (title, lines) in enumerate(panels.items()):
        number = "" if row == 0 else str(row + 1)
        top = 1 - row * (share + gap)
        axes[f"yaxis{number}"] = axis(
            "",
            domain=[round(max(0.0, top - share), 4), round(top, 4)],
            nticks=TICKS,
            rangemode=rangemode,
            fixedrange=True,
            **_ticks(lines, rangemode),
        )
        titles.append(panel_title(title, round(top, 4)))
        shape = "hv" if title in stairs else "linear"
        for line in lines:
            name = line[0]
            trace = _trace(line, names.index(name), f"y{number}", shape, place)
            traces.append(trace | {"showlegend": name in unexplained})
            unexplained.discard(name)
    last = "y" if len(panels) == 1 else f"y{len(panels)}"
    ticks = step_ticks(place.steps, place.x) | _range(place, steps)
    one = {} if place.launches == 1 else {"unifiedhovertitle": {"text": " "}}
    return {
        "data": traces,
        "layout": layout(
            90 + _PANEL * len(panels),
            margin={"l": 68, "r": 12, "t": 24, "b": 40},
            annotations=titles,
            shapes=launch_lines(place.steps, place.x),
            hovermode="x unified",
            dragmode="zoom",
            showlegend=named,
            legend={
                "orientation": "h",
                "x": 1,
                "xanchor": "right",
                "y": above,
                "yanchor": "bottom",
            },
            xaxis=axis(along(noun), anchor=last, showgrid=False, **ticks, **one),
            **axes,
        ),
    }


def _names(panels: dict[str, list[Line]]) -> list[str]:
    """Of the lines of all panels, each of which looks alike wherever it is; no name comes last."""
    every = dict.fromkeys(name for lines in panels.values() for name, _, _ in lines)
    return sorted(every, key=lambda name: not name)


def _range(place: StepAxis, steps: pd.DataFrame | None) -> dict[str, Any]:
    """The range of the chart of steps, and of what is told beyond it: what stands below each other
    is of one step."""
    if steps is None or steps.empty:
        return {}
    low, high = reach(steps)
    spare = 0.02 * (high - low)
    first, last = float(place.x[0]), float(place.x[-1])
    return {"range": [min(low, first - spare), max(high, last + spare)]}


def _ticks(lines: list[Line], rangemode: str) -> dict[str, Any]:
    """How the axis of a panel writes its numbers: counts whole, tiny ones as they are told."""
    values = np.concatenate([y[np.isfinite(y)] for _, _, y in lines])
    if 0 < np.abs(values).max(initial=0.0) < _TINY:
        return {"tickformat": "~g"}  # plotly's own would be 0.5e-5
    ticks: dict[str, Any] = {"separatethousands": True, "exponentformat": "e", "minexponent": 4}
    if not np.array_equal(values, np.round(values)):
        return ticks
    from_zero = [0.0] if rangemode == "tozero" else []
    whole = {"dtick": 1} if np.ptp([*from_zero, *values]) < TICKS else {}
    return ticks | {"exponentformat": "SI"} | whole


def _trace(line: Line, nth: int, yaxis: str, shape: str, place: StepAxis) -> dict[str, Any]:
    name, x, y = line
    kept = keep(x, y)
    words = [name] if name else []
    told: dict[str, Any] = {}
    starts = launch_starts(place.segment_at(x[kept]))
    along = apart(x[kept], starts)
    if place.launches > 1:  # the axis has step numbers twice: a tooltip says which is meant
        told["customdata"] = _launch_words(place, along)
        words.append("%{customdata}")
    return told | {
        "type": "scatter",
        "mode": "lines+markers" if len(kept) <= 60 else "lines",
        "name": name,
        "x": numbers(along, 9),
        "y": numbers(apart(y[kept], starts, np.nan)),
        "yaxis": yaxis,
        "line": {
            "color": colour("ink" if nth == 0 else "muted"),
            "width": 1.3,
            "shape": shape,
            "dash": _DASHES[nth % len(_DASHES)],
        },
        "marker": {"size": 4, "color": colour("ink" if nth == 0 else "muted")},
        "hovertemplate": f"{_readable(y)}<extra>{', '.join(words)}</extra>",
    }


def _readable(values: np.ndarray[Any, Any]) -> str:
    """How a tooltip writes the numbers of a line: whole ones whole, tiny ones with an exponent."""
    known = values[np.isfinite(values)]
    if np.array_equal(known, np.round(known)):
        return "%{y:,.0f}"
    return "%{y:.4~g}" if np.abs(known).max(initial=0.0) < _TINY else "%{y:,.4~r}"


def _launch_words(place: StepAxis, x: np.ndarray[Any, Any]) -> list[str]:
    """The step and the launch at some places of the axis."""
    step = place.steps["step"].to_numpy()[np.searchsorted(place.x, x)]
    segment = place.segment_at(x)
    return [f"step {n:,} of launch {of + 1}" for n, of in zip(step, segment, strict=True)]
