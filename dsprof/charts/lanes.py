"""One step as it ran: a lane for each rank, whose pieces show what it did when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from dsprof.analysis.lanes import UNTIMED, Stretch, coarse
from dsprof.charts.figure import SMALLEST, Figure, axis, layout, numbers, plain, time_unit
from dsprof.charts.palette import LABEL, STACK, colour, fill, text_on
from dsprof.events import Class
from dsprof.run.steps.words import own_name
from dsprof.units import format_seconds

FINEST: Final = 1 / 1500  #: of the width; shorter pieces are joined
MOST: Final = 12_000  #: pieces of all lanes together; of many lanes longer ones are joined, too
_NAMED: Final = 0.05  #: of the width; pieces that are this wide have their name in them
_HIGH, _LOW, _MANY = 30, 16, 12  #: px of a lane, and how many ranks make it lower
#: A phase of that class is timed, unlike what no phase covers.
_LABEL: Final = {str(Class.OTHER): "other phases"}
_NS: Final = 1e-9


def step_lanes(lanes: Mapping[int, Sequence[Stretch]]) -> Figure:
    """A figure with one trace per class, in the order of `STACK`.

    Args:
        lanes: of each rank, see `analysis.lanes`.
    """
    width = max(one.end for lane in lanes.values() for one in lane)
    unit = time_unit(width * _NS)
    finest = width * max(FINEST, len(lanes) / MOST)
    drawn = [
        (place, rank, one)
        for place, (rank, lane) in enumerate(lanes.items())
        for one in coarse(lane, finest)
    ]
    traces = [
        _trace(role, [piece for piece in drawn if piece[2].class_ == role], width, unit)
        for role in (*STACK, UNTIMED)
        if any(piece[2].class_ == role for piece in drawn)
    ]
    many = len(lanes)
    return {
        "data": traces,
        "layout": layout(
            (_HIGH if many <= _MANY else _LOW) * many + 54,
            margin={"l": 62, "r": 12, "t": 8, "b": 46},
            barmode="overlay",
            bargap=0.22 if many <= _MANY else 0.1,
            hovermode="closest",
            uniformtext={"minsize": SMALLEST, "mode": "hide"},
            xaxis=axis(f"{unit[1]} since the step began", range=[0, width * _NS / unit[0]]),
            yaxis=axis(
                "",
                range=[many - 0.5, -0.5],
                showgrid=False,
                ticks="",
                tickvals=list(range(many)),
                ticktext=[f"rank {rank}" for rank in lanes],
                fixedrange=True,
            ),
        ),
    }


def _trace(
    role: str,
    pieces: Sequence[tuple[int, int, Stretch]],
    width: int,
    unit: tuple[float, str],
) -> dict[str, Any]:
    size = _NS / unit[0]
    begins = np.array([one.begin for *_, one in pieces], float)
    ends = np.array([one.end for *_, one in pieces], float)
    return {
        "type": "bar",
        "orientation": "h",
        "meta": role,
        "name": _LABEL.get(role, LABEL[role]),
        "y": [place for place, *_ in pieces],
        "base": numbers(begins * size, 7),
        "x": numbers((ends - begins) * size, 7),
        "text": [_name(one) if one.end - one.begin > _NAMED * width else "" for *_, one in pieces],
        "textposition": "inside",
        "insidetextanchor": "middle",
        "textangle": 0,
        "constraintext": "inside",
        "textfont": {"size": SMALLEST, "color": text_on(role)},
        "customdata": [_said(rank, one) for _, rank, one in pieces],
        "hovertemplate": "%{customdata}<extra></extra>",
        "marker": fill(role) | {"line": {"color": colour("paper"), "width": 0.5}},
    }


def _name(one: Stretch) -> str:
    name = plain(own_name(one.path)) if one.path else ""
    return f"{name}, not ended" if one.is_open else name


def _said(rank: int, one: Stretch) -> str:
    what = plain(one.path) if one.path else LABEL[UNTIMED]
    if one.parts > 1:
        what = f"{one.parts:,} short ones, most of that {what}"
    begin, taken = (format_seconds(ns * _NS) for ns in (one.begin, one.end - one.begin))
    ended = ", not ended" * one.is_open
    return f"rank {rank} · {what}<br>{taken}{ended}, {begin} after the step began"
