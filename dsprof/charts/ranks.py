"""Heat map of ranks and phases: which rank is slow, and in which phase."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from dsprof.analysis.ranks import of_median_rank
from dsprof.charts.figure import (
    Figure,
    Floats,
    Whole,
    axis,
    layout,
    numbers,
    plain,
    ratio,
    whole_ticks,
)
from dsprof.charts.palette import colour
from dsprof.charts.phase_table import codes_of
from dsprof.run.table import STEP, keys
from dsprof.units import NOTHING, format_seconds

PALE = 2.0  #: factor on the colour range under text, so that cells are pale and text legible
WORDED = 12  #: most ranks whose cells have room for text
MARGINS = {"l": 62, "r": 12, "t": 8, "b": 46}  #: px


def rank_phases(phases: pd.DataFrame) -> pd.DataFrame | None:
    """Mean seconds per step [phases, ranks], the longest phase first; None with fewer than two
    ranks. As in `PhaseTable.mean`, a step in which a rank lacks a phase holds none of it.

    Args:
        phases: phases of steps that all these ranks report, because means over different steps
            cannot be compared.
    """
    rank = phases["rank"].to_numpy(dtype=np.int64, na_value=-1)
    ranks = np.flatnonzero(np.bincount(rank + 1)) - 1
    ranks = ranks[ranks >= 0]
    if len(ranks) < 2:
        return None
    code, names = codes_of(phases["name"])
    width = int(ranks[-1]) + 2
    seconds = phases["seconds"].to_numpy(dtype=float, na_value=np.nan)
    cell = code * width + rank + 1
    known = np.isfinite(seconds) & (code >= 0)
    if not known.all():
        cell, seconds = cell[known], seconds[known]
    total = np.bincount(cell, weights=seconds, minlength=len(names) * width)
    told = np.bincount(cell, minlength=len(names) * width) > 0
    mean = ratio(total, told * np.tile(_steps_of(phases, width), len(names)))
    table = pd.DataFrame(mean.reshape(-1, width)[:, ranks + 1], index=names, columns=ranks.tolist())
    table = table.dropna(how="all")
    return table.loc[table.mean(axis=1).sort_values(ascending=False).index]


def _steps_of(phases: pd.DataFrame, width: int) -> Whole:
    """How many steps each rank tells phases of; -1, for none, comes first. [ranks]"""
    step, steps = pd.factorize(keys(phases, *STEP))
    told = np.zeros((width, len(steps)), dtype=bool)
    told[phases["rank"].to_numpy(dtype=np.int64, na_value=-1) + 1, step] = True
    steps_of: Whole = np.count_nonzero(told, axis=1).astype(np.int64)
    return steps_of


def rank_map(table: pd.DataFrame) -> Figure:
    """Heat map of seconds beyond the median rank, with one colour for slower and one for faster."""
    values = table.to_numpy(dtype=float)
    beyond, limit = beyond_median(table)
    limit *= PALE if has_words(table) else 1.0
    hover = [[format_seconds(v) if np.isfinite(v) else "not told" for v in row] for row in values]
    trace = {
        "type": "heatmap",
        "x": [int(c) for c in table.columns],
        "y": [plain(name) for name in table.index],
        "z": [numbers(row, 4) for row in beyond],
        "text": hover,
        "texttemplate": "%{text}" if has_words(table) else "",
        "textfont": {"size": 11, "color": colour("ink")},
        "zmin": -limit,
        "zmax": limit,
        "xgap": 1 if len(table.columns) <= 32 else 0,
        "ygap": 1,
        "colorscale": [[0, colour("data")], [0.5, colour("grid")], [1, colour("compute")]],
        "showscale": False,  # the page explains the colours beside the map
        "customdata": _said(table, values, beyond),
        "hovertemplate": "%{customdata}<extra></extra>",
        "meta": "rows",  # for the page: a click on a cell opens its row
    }
    return {
        "data": [trace],
        "layout": layout(
            26 * len(table) + MARGINS["t"] + MARGINS["b"],
            margin=MARGINS,
            xaxis=axis(showgrid=False, **whole_ticks(table.columns), **_ranks()),
            yaxis=axis("", autorange="reversed", showgrid=False, ticks=""),
        ),
    }


def has_words(table: pd.DataFrame) -> bool:
    """Whether each cell of the map shows its time as text."""
    return len(table.columns) <= WORDED


def beyond_median(table: pd.DataFrame) -> tuple[Floats, float]:
    """Seconds beyond the median rank [phases, ranks], and the seconds of the strongest colour."""
    values = table.to_numpy(dtype=float)
    beyond = values - of_median_rank(values)[:, None]
    # Differences below 2 % of the longest phase are noise, so they stay pale.
    return beyond, float(max(np.nanmax(np.abs(beyond)), 0.02 * np.nanmax(values))) or 1.0


def _ranks() -> dict[str, Any]:
    """Name the axis at its first tick, because a title would overlap the other ticks."""
    return {"tickprefix": "rank ", "showtickprefix": "first"}


def _said(table: pd.DataFrame, values: Floats, beyond: Floats) -> list[list[str]]:
    """Tooltips of the cells. [phases][ranks]"""
    return [
        [
            f"rank {rank} · {plain(name)}<br>"
            + (f"{format_seconds(v)}, {_beyond(b)}" if np.isfinite(v) else "not told")
            for rank, v, b in zip(table.columns, row, over, strict=True)
        ]
        for name, row, over in zip(table.index, values, beyond, strict=True)
    ]


def _beyond(seconds: float) -> str:
    if abs(seconds) < NOTHING:
        return "as the median rank"
    side = "more" if seconds >= 0 else "less"
    return f"{format_seconds(abs(seconds))} {side} than the median rank"
