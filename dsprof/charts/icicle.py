"""Icicle of a mean step: nested phases, whose widths show their durations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dsprof.charts.figure import SMALLEST, Figure, Floats, layout, numbers, plain
from dsprof.charts.palette import LABEL, MIXED, PATTERN, SHORT, colour, text_on
from dsprof.charts.phase_table import PhaseTable
from dsprof.units import format_seconds, format_share


@dataclass(frozen=True, slots=True)
class _Piece:
    """A rectangle: the step, a phase of it, or the time that no timer covers."""

    id: str
    parent: str
    label: str
    role: str
    seconds: float
    drawn: float  # seconds that its width shows
    note: str


def icicle(
    table: PhaseTable, values: Floats, step_seconds: float | None, widest: float | None = None
) -> Figure:
    """Icicle of one mean step.

    Args:
        table: the phases.
        values: seconds of each phase. [phases]
        step_seconds: duration of the step, if known. Time that no phase explains gets a rectangle
            of its own; phases that together outlast the step, as some overlap, are scaled to fit.
        widest: seconds that fill the whole width, if the step is compared with another one.
    """
    once = table.drawn(values)
    covered = float(sum(once[i] for i in table.roots))
    whole = step_seconds or covered
    step = _Piece("step", "", "one step", "unknown", whole, whole, "all of it")
    left = max(whole - covered, 0.0)
    rest = _Piece("rest", "step", LABEL["unknown"], "unknown", left, left, "no timer covers it")
    pieces = [step, *_phases(table, values, _fit(table, once, whole)), rest]
    divided = {piece.parent for piece in pieces}  # their class may differ from those inside
    shown = [i for i, piece in enumerate(pieces) if piece.drawn > 1e-3 * whole or piece is step]
    seen = [pieces[i] for i in shown]
    trace = {
        "type": "icicle",
        "ids": [piece.id for piece in seen],
        "labels": [piece.label for piece in seen],
        "parents": [piece.parent for piece in seen],
        "values": numbers(np.array([piece.drawn for piece in seen]), 7),
        "text": [
            _text(piece.seconds, whole, "unknown" if piece.id in divided else piece.role)
            for piece in seen
        ],
        "customdata": [piece.note for piece in seen],
        "branchvalues": "total",
        "sort": False,
        "tiling": {"orientation": "v", "pad": 1},
        "pathbar": {"visible": False},
        "marker": _marker([piece.role for piece in seen]),
        "leaf": {"opacity": 1},
        "textinfo": "label+text",
        "textfont": {"size": 11, "color": [text_on(piece.role) for piece in seen]},
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


def _phases(table: PhaseTable, values: Floats, drawn: Floats) -> list[_Piece]:
    return [
        _Piece(
            id=str(i),
            parent="step" if table.parents[i] < 0 else str(table.parents[i]),
            label=plain(table.names[i]),
            role=table.classes[i] if table.classes[i] in LABEL else "other",
            seconds=float(values[i]),
            drawn=float(drawn[i]),
            note=note,
        )
        for i, note in enumerate(_notes(table, values))
    ]


def _notes(table: PhaseTable, values: Floats) -> list[str]:
    own = zip(table.self_time(values), table.classes, strict=True)
    told = [f"self {format_seconds(s)} · {LABEL.get(c, c)}" for s, c in own]
    for timer, phase in table.shared:
        told[timer] += (
            f"<br>{format_seconds(values[phase])} of it drawn as {plain(table.names[phase])}"
        )
    return told


def _marker(roles: list[str]) -> dict[str, Any]:
    return {
        "colors": [colour(role) for role in roles],
        "line": {"width": 1, "color": colour("paper")},
        "pattern": {
            "shape": [PATTERN.get(role, "") for role in roles],
            "fgopacity": 0.6,  # words stand on it
            "fillmode": "replace",  # "overlay" takes the list for one colour and warns
            "size": 6,
            "solidity": 0.12,
            "fgcolor": [colour("communication" if role == MIXED else "paper") for role in roles],
            "bgcolor": [colour(role) for role in roles],
        },
    }


def _fit(table: PhaseTable, values: Floats, whole: float) -> Floats:
    """`values`, with children that together outlast their parent (clocks differ) scaled to fit."""
    fitted = values.copy()
    for parent in range(-1, len(values)):
        children = [i for i, p in enumerate(table.parents) if p == parent]
        inside, room = float(fitted[children].sum()), whole if parent < 0 else fitted[parent]
        if inside > room:
            fitted[children] *= room / inside
    return fitted


def _height(table: PhaseTable, shown: list[int]) -> int:
    """Height in px for the levels that are drawn; phase i is number i + 1 in `shown`."""
    depth = [1] * len(table.parents)
    for child, parent in enumerate(table.parents):
        if parent >= 0:
            depth[child] = depth[parent] + 1
    levels = [depth[i - 1] for i in shown if 0 < i <= len(depth)]
    return 44 * (1 + max(levels, default=1)) + 8
