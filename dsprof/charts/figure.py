"""What all figures share: type, axes, and reduction of long series."""

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
FEW: Final = 10  #: numbers on an axis so close that each has a tick
TICKS: Final = 5  #: of a low panel at most: of fewer, plotly may leave a single one
_LONGEST: Final = 60  # letters of a log's words
POINTS: Final = 1200  #: of one line; more than a screen is wide
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


def whole_ticks(values: npt.ArrayLike) -> dict[str, Any]:
    """Ticks of an axis of whole numbers; no two of them read the same.

    With few numbers plotly would put ticks between them. With many it does so only after
    zooming in; such a tick then shows its fraction.
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
    """Size and name of the unit in which seconds up to `largest` are drawn."""
    return next((unit for unit in TIMES if largest >= unit[0]), TIMES[-1])


def panel_title(text: str, top: float) -> dict[str, Any]:
    """A title above the left end of a panel: rotated ones are cut off in low panels."""
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
    """Positions of the points worth drawing: known ones, thinned so that outliers stay."""
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
    """JSON numbers of so many significant digits; what is not finite becomes null."""
    array = np.asarray(values, dtype=float)
    return [float(f"{v:.{digits}g}") if np.isfinite(v) else None for v in array]


_UNSEEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)


def visible(text: str) -> str:
    """Letters that turn the direction of writing or that no face draws, as escapes."""
    return _UNSEEN.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def plain(text: object) -> str:
    """Words of a log as plotly must get them to show them as they are: it reads markup."""
    shown = visible(str(text))
    if len(shown) > _LONGEST:
        shown = shown[: _LONGEST - 1] + "…"
    return html.escape(shown, quote=False)
