"""Shared by all figures: their type, axes, thinning of long series, and text from logs."""

from __future__ import annotations

import html
import re
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from tsdownsample import MinMaxLTTBDownsampler

from dsprof.charts.palette import colour

Figure = dict[str, Any]  #: `{"data": [...], "layout": {...}}`, ready for plotly or JSON
Floats = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]

FONT: Final = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif'
SMALLEST: Final = 10  #: px; text in a piece that does not fit at this size is left out
FEW: Final = 10  #: the largest range of whole numbers on an axis for which each has a tick
TICKS: Final = 5  #: most ticks of a low panel; with a lower limit plotly may draw only one
_LONGEST: Final = 60  # characters of text from a log
POINTS: Final = 1200  #: most points of one line; more than a screen shows
TIMES: Final = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))


def axis(title: str = "", **more: Any) -> dict[str, Any]:
    return {
        "title": {"text": title, "font": {"size": 11, "color": colour("muted")}, "standoff": 8},
        "gridcolor": colour("grid"),
        "linecolor": colour("line"),
        "zeroline": False,
        "tickfont": {"size": 11, "color": colour("muted")},
        "automargin": True,
        **more,
    }


def along(noun: str) -> str:
    """What an axis of steps counts: optimizer steps, or records where their steps are unknown."""
    return "optimizer step" if noun == "step" else f"{noun}, as printed"


def whole_ticks(values: npt.ArrayLike) -> dict[str, Any]:
    """Ticks of an axis of whole numbers, no two of them with the same label.

    In a small range plotly would also put ticks between whole numbers. In a large one it does so
    only after zooming in; such a tick then shows its fraction.
    """
    known = np.asarray(values, dtype=float)
    known = known[np.isfinite(known)]
    few = known.size == 0 or float(np.ptp(known)) <= FEW
    return {"tickformat": ",d", "dtick": 1, "tick0": 0} if few else {"tickformat": ",~f"}


def layout(height: int, **more: Any) -> dict[str, Any]:
    return {
        "height": height,
        "margin": {"l": 62, "r": 12, "t": 8, "b": 40},
        "font": {"family": FONT, "size": 12, "color": colour("ink")},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "showlegend": False,
        "hoverlabel": {
            "bgcolor": colour("paper"),
            "bordercolor": colour("line"),
            "font": {"family": FONT, "size": 12, "color": colour("ink")},
        },
        **more,
    }


def time_unit(largest: float) -> tuple[float, str]:
    """The unit in which seconds up to `largest` are drawn: its size in seconds, and its name."""
    return next((unit for unit in TIMES if largest >= unit[0]), TIMES[-1])


def panel_title(text: str, top: float) -> dict[str, Any]:
    """A title above the left end of a panel; a rotated one would be cut off in a low panel."""
    return {
        "xref": "paper",
        "yref": "paper",
        "x": 0,
        "y": top,
        "xanchor": "left",
        "yanchor": "bottom",
        "text": text,
        "showarrow": False,
        "font": {"size": 11, "color": colour("muted")},
    }


def keep(x: npt.ArrayLike, y: npt.ArrayLike, points: int = POINTS) -> Whole:
    """Indices of the points to draw: the known ones, thinned to `points` so that outliers stay."""
    xs, ys = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    known = np.flatnonzero(np.isfinite(ys) & np.isfinite(xs))
    if len(known) <= points:
        return known.astype(np.int64)
    thin = MinMaxLTTBDownsampler()  # type: ignore[no-untyped-call]
    chosen = thin.downsample(xs[known], ys[known], n_out=points)
    return known[np.asarray(chosen, dtype=np.int64)].astype(np.int64)


def ratio(total: npt.NDArray[Any], count: npt.NDArray[Any]) -> Floats:
    """`total / count`, NaN where nothing was counted."""
    nothing = np.full(len(total), np.nan)
    return np.asarray(np.divide(total, count, out=nothing, where=count > 0), dtype=np.float64)


def numbers(values: npt.ArrayLike, digits: int = 5) -> list[float | None]:
    """JSON numbers with this many significant digits; None (null) for values that are not
    finite.
    """
    array = np.asarray(values, dtype=float)
    return [float(f"{v:.{digits}g}") if np.isfinite(v) else None for v in array]


_UNSEEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)


def visible(text: str) -> str:
    """`text` with escapes for control characters and those that change the writing direction."""
    return _UNSEEN.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def plain(text: object) -> str:
    """Text of a log, shortened and escaped so that plotly, which interprets markup, shows it
    literally.
    """
    shown = visible(str(text))
    if len(shown) > _LONGEST:
        shown = shown[: _LONGEST - 1] + "…"
    return html.escape(shown, quote=False)
