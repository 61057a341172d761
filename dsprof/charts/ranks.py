"""Ranks side by side: which one is slow, and in which phase."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dsprof.charts.figure import Figure, Floats, axis, layout, numbers, plain
from dsprof.charts.palette import colour
from dsprof.units import format_seconds

RANKS = 256  #: columns of the map; more are shown in groups by their slowest rank


def rank_phases(phases: pd.DataFrame) -> pd.DataFrame | None:
    """Mean seconds per step, phases down and ranks across; None with fewer than two ranks."""
    told = phases[phases["rank"].notna()]
    if told["rank"].nunique() < 2:
        return None
    rank, ranks = pd.factorize(told["rank"], sort=True)
    name, names = pd.factorize(told["name"])
    shape = (len(names), len(ranks))
    cell = name.astype(np.int64) * shape[1] + rank
    seconds = told["seconds"].to_numpy(dtype=float, na_value=np.nan)
    known = np.isfinite(seconds)
    total = np.bincount(cell[known], weights=seconds[known], minlength=shape[0] * shape[1])
    count = np.bincount(cell[known], minlength=shape[0] * shape[1])
    mean = np.divide(total, count, out=np.full(len(total), np.nan), where=count > 0)
    table = pd.DataFrame(mean.reshape(shape), index=list(map(str, names)), columns=list(map(int, ranks)))
    return table.loc[table.mean(axis=1).sort_values(ascending=False).index]


def rank_map(table: pd.DataFrame) -> Figure:
    """Heat map of seconds beyond the median rank, darker is slower."""
    values = table.to_numpy(dtype=float)
    median = np.nanmedian(values, axis=1, keepdims=True)
    beyond = values - median
    limit = float(np.nanmax(np.abs(beyond))) or 1e-9
    hover = [[format_seconds(v) if np.isfinite(v) else "not told" for v in row] for row in values]
    trace = {
        "type": "heatmap",
        "x": [str(c) for c in table.columns],
        "y": [plain(name) for name in table.index],
        "z": [numbers(row, 4) for row in beyond],
        "text": hover,
        "texttemplate": "%{text}" if len(table.columns) <= 12 else "",
        "textfont": {"size": 11},
        "zmin": -limit,
        "zmax": limit,
        "xgap": 1,
        "ygap": 1,
        "colorscale": [
            [0, colour("paper")],
            [0.5, colour("grid")],
            [1, colour("compute")],
        ],
        "colorbar": {
            "title": {"text": "beyond the median rank", "side": "right", "font": {"size": 11}},
            "thickness": 8,
            "outlinewidth": 0,
            "ticksuffix": "s",
            "tickformat": "~s",
            "tickfont": {"size": 11, "color": colour("muted")},
        },
        "hovertemplate": "rank %{x} · %{y}<br>%{text}, %{z:.3s}s beyond the median<extra></extra>",
    }
    height = 26 * len(table) + 70
    return {
        "data": [trace],
        "layout": layout(
            height,
            xaxis=axis("rank", type="category", showgrid=False, nticks=32),
            yaxis=axis("", autorange="reversed", showgrid=False),
        ),
    }


def excess(table: pd.DataFrame) -> Floats:
    """How far the slowest rank is beyond the median, per phase. [phases]"""
    values = table.to_numpy(dtype=float)
    return np.asarray(np.nanmax(values, axis=1) - np.nanmedian(values, axis=1))
