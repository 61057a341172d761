"""Communication by operation and message size, compared with the bandwidth of the link."""

from __future__ import annotations

import re
from typing import Any, Final

import numpy as np
import pandas as pd

from dsprof.analysis.collectives import LARGE, SMALL
from dsprof.charts.figure import Figure, Floats, Whole, axis, layout, numbers, plain
from dsprof.charts.palette import colour
from dsprof.run.table import keys, runs
from dsprof.units import format_bandwidth, format_bytes, format_seconds, format_share

NEAR: Final = 0.7  #: share of the ceiling from which a call counts as limited by bandwidth
SKEW: Final = 2.0  #: slowest over fastest rank of a call that shows that one rank was late
_POINT_TO_POINT = re.compile(r"send|recv", re.ASCII)
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_RATES = ("B/s", "KB/s", "MB/s", "GB/s", "TB/s")
_POWERS = range(0, 41, 4)
_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "cross", "star", "hexagon")


def comm_sizes(comm: pd.DataFrame, visits: int) -> pd.DataFrame:
    """One row per operation and message size, costliest first, with suspect times kept apart.

    Columns: `op`, `bytes`, `suspect`; per step and rank `count`, `seconds` and `exposed`; `busbw`
    (bytes/s, weighted by time), `algbw` (the same, filled instead if no bus bandwidth is known),
    `rows` (positions in `comm`), `skew` (slowest over fastest rank, of exposed times where nothing
    else is known). The times of a suspect row are NaN.

    Args:
        comm: rows of `Run.comm` that count no call twice.
        visits: number of optimizer steps they sum over, each counted for every rank that makes it;
            the number of ranks gives sums instead of values per step.
    """
    suspect = doubted(comm["suspect"])
    known = "busbw" if comm["busbw"].notna().any() else "algbw"
    rows = comm[["bytes", "step", "rank"]].assign(
        op=comm["op"].astype("category"),
        suspect=suspect,
        seconds=comm["seconds"].mask(suspect),
    )
    speed = comm[known].mask(suspect)
    group, first = _groups(keys(rows, "op", "bytes", "suspect"))
    table = rows[["op", "bytes", "suspect"]].iloc[first].reset_index(drop=True)
    for name, values in {
        "count": comm["count"].fillna(1),
        "seconds": rows["seconds"],
        "exposed": comm["exposed_seconds"].mask(suspect),
        "moved": speed * rows["seconds"],
        "timed": rows["seconds"].where(speed.notna()),
    }.items():
        table[name] = _sums(group, values.to_numpy(float, na_value=np.nan), len(first))
    ends = np.cumsum(np.bincount(group, minlength=len(first)))
    found: list[Any] = np.split(np.argsort(group, kind="stable"), ends)[:-1]
    table["rows"] = pd.Series(found, dtype="object")
    table[["busbw", "algbw"]] = np.nan
    table[known] = (table["moved"] / table["timed"]).where(table["timed"] > 0)
    table[["count", "seconds", "exposed"]] /= max(1, visits)
    table = table.drop(columns=["moved", "timed"])
    waits = rows.assign(seconds=rows["seconds"].fillna(comm["exposed_seconds"].mask(suspect)))
    table = table.merge(_skew(waits), on=["op", "bytes"], how="left")
    return table.sort_values(["seconds", "exposed"], ascending=False, ignore_index=True)


def _groups(key: Whole) -> tuple[Whole, Whole]:
    """The group of each row, numbered in order of appearance, and the first row of each group."""
    heads = runs(key)
    code, _ = pd.factorize(key[heads])
    first = heads[np.unique(code, return_index=True)[1]]
    return np.repeat(code, np.diff(heads, append=len(key))), first


def _sums(group: Whole, values: Floats, size: int) -> Floats:
    """Sums of known values by group; NaN if none of a group is known. [size]"""
    known = ~np.isnan(values)
    if not known.any():
        return np.full(size, np.nan)
    sums = np.asarray(np.bincount(group, np.where(known, values, 0.0), size), float)
    if known.all():
        return sums
    return np.where(np.bincount(group, known, size) > 0, sums, np.nan)


def doubted(suspect: pd.Series) -> pd.Series[bool]:
    """Whether the source's numbers are doubted; the column holds the reason or is empty. [rows]"""
    told = suspect.notna()
    return told & suspect.ne(False) if told.any() else told


def _skew(rows: pd.DataFrame) -> pd.DataFrame:
    """Slowest over fastest rank of the same operation, size and step: the median over steps."""
    told = rows[rows["rank"].notna() & rows["step"].notna() & rows["seconds"].notna()]
    mean = told.groupby(["op", "bytes", "step", "rank"], observed=True)["seconds"].mean()
    span = mean.groupby(level=["op", "bytes", "step"], observed=True).agg(["min", "max", "size"])
    span = span[(span["size"] > 1) & (span["min"] > 0)]
    ratio = (span["max"] / span["min"]).rename("skew")
    return ratio.groupby(level=["op", "bytes"], observed=True).median().reset_index()


_UNTRUSTED: Final = "times are not trustworthy"
#: What `limit_of` may answer, and what that means.
LIMITS: Final = {
    "bandwidth": f"at least {format_share(NEAR)} of the ceiling",
    "latency": f"messages below {format_bytes(SMALL)}, whose time is start-up or waiting",
    "a slow peer": "the same call takes some ranks twice as long as others: those wait",
    "peer or pipeline bubble": "between two ranks, each of which may wait for the other",
    _UNTRUSTED: "a defect of the source, see Repairs and doubts",
    "unknown": "neither small nor near the link's ceiling, or nothing tells that",
}


def ceiling(sizes: pd.DataFrame, link: float | None) -> tuple[float, str] | None:
    """Bandwidth of the link in bytes/s, and words for how it is known; None if unknown."""
    if link:
        return float(link), "as the run states"
    large = sizes[(sizes["bytes"] >= LARGE) & sizes["busbw"].notna() & ~sizes["suspect"]]
    if large.empty:
        return None
    return float(large["busbw"].max()), "the best of this run"


def limit_of(row: pd.Series, best: float | None) -> str:
    """What limits one operation and size, in words for the table.

    Args:
        row: a row of `comm_sizes`.
        best: bandwidth of the link in bytes/s, if known (`ceiling`).
    """
    if row["suspect"]:
        return _UNTRUSTED
    if _POINT_TO_POINT.search(str(row["op"])):
        return "peer or pipeline bubble"
    if row["skew"] >= SKEW:
        return "a slow peer"
    if row["bytes"] < SMALL and pd.notna(row["seconds"]):  # waiting alone may be for a peer
        return "latency"
    if best and row["busbw"] >= NEAR * best:
        return "bandwidth"
    return "unknown"


def bandwidths(
    sizes: pd.DataFrame, best: tuple[float, str] | None, unit: str = "per step"
) -> Figure | None:
    """Figure of bus bandwidth over message size; None with fewer than three points to compare.

    Args:
        sizes: from `comm_sizes`.
        best: from `ceiling`.
        unit: words for what the seconds of `sizes` refer to.
    """
    told = sizes[(sizes["bytes"] > 0) & (sizes["busbw"] > 0) & ~sizes["suspect"]]
    if len(told) < 3:
        return None
    largest = float(told["seconds"].max()) or 1.0
    operations = enumerate(told.groupby("op", observed=True))
    shapes, notes = _ceiling_line(best)
    ticks = {
        "tickvals": [2.0**p for p in _POWERS],
        "ticktext": [f"{2 ** (p % 10)} {_UNITS[p // 10]}" for p in _POWERS],
    }
    return {
        "data": [_marks(str(op), rows, nth, largest, unit) for nth, (op, rows) in operations],
        "layout": layout(
            280,
            showlegend=True,
            legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
            margin={"l": 62, "r": 12, "t": 34, "b": 44},
            shapes=shapes,
            annotations=notes,
            xaxis=axis("message size", type="log", **ticks),
            yaxis=axis("bus bandwidth", type="log", **_speeds()),
        ),
    }


def _speeds() -> dict[str, Any]:
    """Ticks at powers of ten, in the notation of the table."""
    powers = range(0, 15, 1)
    return {
        "tickvals": [10.0**p for p in powers],
        "ticktext": [f"{10 ** (p % 3)} {_RATES[p // 3]}" for p in powers],
    }


def _marks(op: str, rows: pd.DataFrame, nth: int, largest: float, unit: str) -> dict[str, Any]:
    """Marks for the sizes of one operation, with an area that shows their seconds."""
    return {
        "type": "scatter",
        "mode": "markers",
        "name": plain(op),
        "x": numbers(rows["bytes"], 9),
        "y": numbers(rows["busbw"]),
        "marker": {
            "symbol": _SYMBOLS[nth % len(_SYMBOLS)],
            "size": numbers(7 + 17 * np.sqrt(rows["seconds"] / largest), 3),
            "color": colour("communication"),
            "opacity": 0.75,
            "line": {"width": 1, "color": colour("paper")},
        },
        "text": [
            f"{format_bytes(size)}: {format_bandwidth(speed)}, {format_seconds(time)} {unit}"
            for size, speed, time in rows[["bytes", "busbw", "seconds"]].to_numpy(dtype=float)
        ],
        "hovertemplate": "%{text}<extra>%{fullData.name}</extra>",
        "meta": "rows",  # for the page: a click on a mark opens its row
        "customdata": [int(row) for row in rows.index],
    }


def _ceiling_line(
    best: tuple[float, str] | None,
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    if best is None:
        return [], []
    line = {
        "type": "line",
        "xref": "paper",
        "x0": 0,
        "x1": 1,
        "y0": best[0],
        "y1": best[0],
        "line": {"color": colour("muted"), "width": 1, "dash": "dash"},
    }
    note = {
        "xref": "paper",
        "x": 1,
        "xanchor": "right",
        "y": float(np.log10(best[0])),
        "yanchor": "bottom",
        "text": f"ceiling {format_bandwidth(best[0])}, {best[1]}",
        "showarrow": False,
        "font": {"size": 11, "color": colour("muted")},
    }
    return [line], [note]
