"""Where a step goes: phases inside phases, as wide as they last."""

from __future__ import annotations

from typing import Any

import numpy as np

from dsprof.charts.figure import Figure, Floats, layout, numbers, plain
from dsprof.charts.palette import LABEL, PATTERN, colour, text_on
from dsprof.charts.phase_table import PhaseTable
from dsprof.units import format_seconds, format_share


def icicle(
    table: PhaseTable, values: Floats, step_seconds: float | None, widest: float | None = None
) -> Figure:
    """Icicle of one mean step.

    Args:
        table: phases.
        values: seconds per phase. [phases]
        step_seconds: how long the step was; what the phases do not explain is shown.
        widest: seconds that fill the whole width, if another step is to be compared.
    """
    covered = float(sum(values[i] for i in table.roots))
    whole = max(covered, step_seconds or 0.0)
    rest = whole - covered
    own = table.self_time(values)
    ids = ["step", *(str(i) for i in range(len(values))), "rest"]
    labels = ["one step", *map(plain, table.names), "not broken down"]
    parents = ["", *("step" if p < 0 else str(p) for p in table.parents), "step"]
    seconds = np.concatenate([[whole], _fit(table, values), [rest]])
    classes = ["unknown", *table.classes, "unknown"]
    notes = ["all of it", *(f"self {format_seconds(s)}" for s in own), "no timer covers it"]
    shown = [i for i, s in enumerate(seconds) if s > 1e-3 * whole or i == 0]
    trace = {
        "type": "icicle",
        "ids": [ids[i] for i in shown],
        "labels": [labels[i] for i in shown],
        "parents": [parents[i] for i in shown],
        "values": numbers(seconds[shown], 7),
        "text": [
            f"{format_seconds(seconds[i])} · {format_share(seconds[i] / whole)}" for i in shown
        ],
        "customdata": [f"{notes[i]} · {LABEL.get(classes[i], classes[i])}" for i in shown],
        "branchvalues": "total",
        "sort": False,
        "tiling": {"orientation": "v", "pad": 1},
        "pathbar": {"visible": False},
        "marker": _marker([classes[i] if classes[i] in LABEL else "other" for i in shown]),
        "leaf": {"opacity": 1},
        "textinfo": "label+text",
        "textfont": {
            "color": [text_on(classes[i] if classes[i] in LABEL else "other") for i in shown]
        },
        "domain": {"x": [0, round(min(1.0, whole / widest), 4) if widest else 1]},
        "hovertemplate": "%{label}<br>%{text}<br>%{customdata}<extra></extra>",
        "meta": shown,
    }
    return {
        "data": [trace],
        "layout": layout(_height(table, shown), margin={"l": 0, "r": 0, "t": 4, "b": 4}),
    }


def _marker(roles: list[str]) -> dict[str, Any]:
    return {
        "colors": [colour(role) for role in roles],
        "line": {"width": 1, "color": colour("paper")},
        "pattern": {
            "shape": [PATTERN.get(role, "") if role != "unknown" else "" for role in roles],
            "fillmode": "replace",  # overlay takes the list of colours for one colour, and warns
            "size": 6,
            "solidity": 0.12,
            "fgcolor": [colour("paper") for _ in roles],
            "bgcolor": [colour(role) for role in roles],
        },
    }


def _fit(table: PhaseTable, values: Floats) -> Floats:
    """Children that together outlast their parent (clocks differ) are scaled to fit into it."""
    fitted = values.copy()
    for parent in range(len(values)):
        children = [i for i, p in enumerate(table.parents) if p == parent]
        inside = float(fitted[children].sum()) if children else 0.0
        if inside > fitted[parent]:
            fitted[children] *= fitted[parent] / inside
    return fitted


def _height(table: PhaseTable, shown: list[int]) -> int:
    """Room for the levels that are drawn; `shown` counts phases from 1."""
    depth = [1] * len(table.parents)
    for child, parent in enumerate(table.parents):
        if parent >= 0:
            depth[child] = depth[parent] + 1
    levels = [depth[i - 1] for i in shown if 0 < i <= len(depth)]
    return 44 * (1 + max(levels, default=1)) + 8
