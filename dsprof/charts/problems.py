"""Failures and warnings on a time line, with the first cause marked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from dsprof.charts.columns import launch_line
from dsprof.charts.figure import Figure, axis, layout, plain, whole_ticks
from dsprof.charts.palette import colour
from dsprof.events import GRAVITY

SHOWN = 2000  #: most marks; the list below the figure has its own limit
ROWS = 24  #: most rows that each have room for a name, also in print
EDGE = 0.25  #: share of the axis at either end where words are aligned inwards
NO_RANK = "rank unknown"
SYMBOL = {"critical": "diamond", "warning": "triangle-up", "info": "circle-open"}


def problem_line(
    problems: pd.DataFrame, names: Mapping[str, str], launches: Sequence[int] = ()
) -> Figure | None:
    """Figure of problems by rank over time; over line numbers of the source if not all have a time.

    None if there are fewer than two.

    Args:
        problems: from `Run.problems`.
        names: kind of a problem → words for it.
        launches: lines of the source at which further launches begin.
    """
    if len(problems) < 2:
        return None
    shown = _first(problems)
    timed = on_time(problems)
    x = [t.isoformat() for t in shown["at"]] if timed else [int(n) for n in shown["line"].fillna(0)]
    where = _where(shown)
    cause = shown["root_cause"].fillna(False).astype(bool).tolist()
    rows = len(set(where))
    more = {} if timed else whole_ticks(x) | {"range": _reach(x, launches)}
    return {
        "data": [_marks(shown, x, where, cause, names)],
        "layout": layout(
            70 + 22 * min(rows, ROWS),
            xaxis=axis("" if timed else _untimed(shown), **more),
            yaxis=axis(
                "",
                type="category",
                categoryorder="array",
                categoryarray=_rows(where),
                **({"dtick": 1} if rows <= ROWS else {}),  # else plotly leaves names out
            ),
            annotations=_first_cause(x, where, first_cause(shown)),
            shapes=[] if timed else [launch_line(line) for line in launches],
        ),
    }


def _untimed(shown: pd.DataFrame) -> str:
    """Title of an axis of line numbers, with the reason why it does not show times."""
    some = bool(shown["at"].notna().any())
    return f"line of the source ({'not all have a time' if some else 'no times are known'})"


def on_time(problems: pd.DataFrame) -> bool:
    """Whether marks are placed by time; otherwise by line number."""
    return bool(_first(problems)["at"].notna().all())


def _reach(lines: list[Any], launches: Sequence[int]) -> list[float]:
    """The range of lines, with room for marks on the left and for words on the right."""
    low, high = min(*lines, *launches), max(*lines, *launches)
    wide = max(high - low, 1)
    return [low - 0.03 * wide, high + (0.12 if launches else 0.03) * wide]


def _rows(where: list[str]) -> list[str]:
    """Rows from the bottom up, as plotly counts: ranks are at the top, in order from the top down,
    and below them the rows without a rank.
    """
    ranks = sorted({name for name in where if name.startswith("rank ")})
    return [*ranks, *sorted(set(where) - set(ranks))][::-1]


def _first(problems: pd.DataFrame) -> pd.DataFrame:
    order = problems["severity"].astype(str).map(GRAVITY)
    keep = order.sort_values(kind="stable").index[:SHOWN]
    return problems.loc[keep.sort_values()]


def _where(shown: pd.DataFrame) -> list[str]:
    ranks = [None if pd.isna(r) else int(r) for r in shown["rank"]]
    hosts = ["" if pd.isna(h) else str(h) for h in shown["host"]]
    width = len(str(max((r for r in ranks if r is not None), default=0)))
    return [
        f"rank {r:>{width}}" if r is not None else (plain(h) or NO_RANK)
        for r, h in zip(ranks, hosts, strict=True)
    ]


def _marks(
    shown: pd.DataFrame,
    x: list[Any],
    where: list[str],
    cause: list[bool],
    names: Mapping[str, str],
) -> dict[str, Any]:
    severity = shown["severity"].astype(str).tolist()
    judged = [*zip(cause, severity, strict=True)]
    return {
        "type": "scatter",
        "mode": "markers",
        "x": x,
        "y": where,
        "marker": {
            "opacity": 1,
            "symbol": ["star" if first else SYMBOL.get(s, "circle") for first, s in judged],
            "size": [14 if first else 9 for first in cause],
            "color": [
                colour("ink" if first or s == "critical" else "muted") for first, s in judged
            ],
        },
        "text": [
            f"{plain(names.get(kind, kind))}, {s}"
            for kind, s in zip(shown["kind"].astype(str), severity, strict=True)
        ],
        "meta": "places",  # for the page: a click on a mark opens its line
        "customdata": [
            [str(source), None if pd.isna(line) else int(line)]
            for source, line in zip(shown["source"], shown["line"], strict=True)
        ],
        "hovertemplate": "%{y}: %{text}<extra></extra>",
    }


def first_cause(problems: pd.DataFrame) -> int | None:
    """Position of the problem that ended the run, or the last launch that failed; None if
    unknown.
    """
    causes = np.flatnonzero(problems["root_cause"].fillna(False).to_numpy(dtype=bool))
    if not len(causes):
        return None
    launch = problems["segment"].fillna(0).to_numpy(dtype=np.int64)[causes]
    return int(causes[launch.argmax()])


def _first_cause(x: list[Any], where: list[str], at: int | None) -> list[dict[str, Any]]:
    """An annotation at the mark of the first cause."""
    if at is None:
        return []
    side = _side(x, at)
    return [
        {
            "x": x[at],
            "y": where[at],
            "text": "first cause",
            "showarrow": False,
            "xanchor": side,
            "xshift": {"left": -8, "center": 0, "right": 8}[side],
            "yshift": 15,
            "font": {"size": 11, "color": colour("ink")},
        }
    ]


def _side(x: list[Any], at: int) -> str:
    """Which end of a text to anchor at its mark, so that it stays inside the chart near an edge."""
    times = pd.to_datetime(x, format="ISO8601") if isinstance(x[0], str) else x
    places = pd.Series(times).astype("int64")
    part = (places[at] - places.min()) / max(1, places.max() - places.min())
    return "left" if part < EDGE else "right" if part > 1 - EDGE else "center"
