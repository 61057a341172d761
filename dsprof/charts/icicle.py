"""Where a step goes: phases inside phases, as wide as they last."""

from __future__ import annotations

from typing import Any

import numpy as np

from dsprof.charts.figure import Figure, Floats, layout, numbers, plain
from dsprof.charts.palette import LABEL, MIXED, PATTERN, SHORT, colour, text_on
from dsprof.charts.phase_table import PhaseTable
from dsprof.units import format_seconds, format_share

SMALLEST = 10  #: px; words that do not fit at this size are left out


def icicle(
    table: PhaseTable, values: Floats, step_seconds: float | None, widest: float | None = None
) -> Figure:
    """Icicle of one mean step.

    Args:
        table: phases.
        values: seconds per phase. [phases]
        step_seconds: how long the step was; what the phases do not explain is shown, and phases
            that together outlast it (some overlap) are fitted into it.
        widest: seconds that fill the whole width, if another step is to be compared.
    """
    once = table.drawn(values)
    covered = float(sum(once[i] for i in table.roots))
    whole = step_seconds or covered
    rest = max(whole - covered, 0.0)
    ids = ["step", *(str(i) for i in range(len(values))), "rest"]
    parents = ["", *("step" if p < 0 else str(p) for p in table.parents), "step"]
    labels = ["one step", *map(plain, table.names), "not broken down"]
    roles = ["unknown", *(c if c in LABEL else "other" for c in table.classes), "unknown"]
    seconds = np.concatenate([[whole], values, [rest]])
    drawn = np.concatenate([[whole], _fit(table, once, whole), [rest]])
    notes = _notes(table, values)
    above = set(parents)  # what lies in these may be of other classes
    words = ["unknown" if i in above else role for i, role in zip(ids, roles, strict=True)]
    shown = [i for i, s in enumerate(drawn) if s > 1e-3 * whole or i == 0]
    trace = {
        "type": "icicle",
        "ids": [ids[i] for i in shown],
        "labels": [labels[i] for i in shown],
        "parents": [parents[i] for i in shown],
        "values": numbers(drawn[shown], 7),
        "text": [_text(float(seconds[i]), whole, words[i]) for i in shown],
        "customdata": [notes[i] for i in shown],
        "branchvalues": "total",
        "sort": False,
        "tiling": {"orientation": "v", "pad": 1},
        "pathbar": {"visible": False},
        "marker": _marker([roles[i] for i in shown]),
        "leaf": {"opacity": 1},
        "textinfo": "label+text",
        "textfont": {"size": 11, "color": [text_on(roles[i]) for i in shown]},
        "domain": {"x": [0, round(min(1.0, whole / widest), 4) if widest else 1]},
        "hovertemplate": "%{label}<br>%{text}<br>%{customdata}<extra></extra>",
        "meta": shown,
    }
    room = {"l": 0, "r": 0, "t": 4, "b": 4}
    fitting = {"minsize": SMALLEST, "mode": "hide"}  # smaller ones are in the tooltip and the table
    return {
        "data": [trace],
        "layout": layout(_height(table, shown), margin=room, uniformtext=fitting),
    }


def _text(seconds: float, whole: float, role: str) -> str:
    if not whole:
        return "no time"
    said = f"{format_seconds(seconds)} · {format_share(seconds / whole)}"
    return said if role == "unknown" else f"{said} · {SHORT[role]}"


def _notes(table: PhaseTable, values: Floats) -> list[str]:
    own = zip(table.self_time(values), table.classes, strict=True)
    told = [f"self {format_seconds(s)} · {LABEL.get(c, c)}" for s, c in own]
    for timer, phase in table.shared:
        told[timer] += (
            f"<br>{format_seconds(values[phase])} of it drawn as {plain(table.names[phase])}"
        )
    return ["all of it", *told, "no timer covers it"]


def _marker(roles: list[str]) -> dict[str, Any]:
    return {
        "colors": [colour(role) for role in roles],
        "line": {"width": 1, "color": colour("paper")},
        "pattern": {
            "shape": [PATTERN.get(role, "") for role in roles],
            "fillmode": "replace",  # overlay takes the list of colours for one colour, and warns
            "size": 6,
            "solidity": 0.12,
            "fgcolor": [colour("communication" if role == MIXED else "paper") for role in roles],
            "bgcolor": [colour(role) for role in roles],
        },
    }


def _fit(table: PhaseTable, values: Floats, whole: float) -> Floats:
    """Parts that together outlast what they lie in (clocks differ) are scaled to fit into it."""
    fitted = values.copy()
    for parent in range(-1, len(values)):
        children = [i for i, p in enumerate(table.parents) if p == parent]
        inside, room = float(fitted[children].sum()), whole if parent < 0 else fitted[parent]
        if inside > room:
            fitted[children] *= room / inside
    return fitted


def _height(table: PhaseTable, shown: list[int]) -> int:
    """Room for the levels that are drawn; `shown` counts phases from 1."""
    depth = [1] * len(table.parents)
    for child, parent in enumerate(table.parents):
        if parent >= 0:
            depth[child] = depth[parent] + 1
    levels = [depth[i - 1] for i in shown if 0 < i <= len(depth)]
    return 44 * (1 + max(levels, default=1)) + 8
