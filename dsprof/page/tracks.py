"""Every step of one engine, for the page to look up, to zoom into and to take apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from dsprof.charts import HELD, STACK, PhaseTable, bound_by, step_axis
from dsprof.charts.figure import keep
from dsprof.events import Bound
from dsprof.page.pack import FULL, SHORT, pack_columns

STEPS = 120_000  #: kept of one engine; a longer run is thinned, and the page says so
SPACIOUS = 20_000  #: up to here everything is kept in full
_BOUNDS = [b.value for b in Bound]
_MEASURES = (
    "seconds", "loss", "lr", "grad_norm", "loss_scale", "samples_per_second",
    "tokens_per_second", "tflops", "communication_share",
)  # fmt: skip


def track(
    steps: pd.DataFrame, phases: PhaseTable | None, spans: pd.DataFrame, sources: list[str]
) -> dict[str, Any]:
    """Columns of one engine's steps.

    Args:
        steps: rows of `Run.steps` of one engine.
        phases: their phases.
        spans: first and last line of every step (`source`, `first`, `last`).
        sources: names that `source` codes point at.
    """
    columns: dict[str, Any] = {
        "step": steps["step"].to_numpy(dtype=np.int64),
        "segment": steps["segment"].to_numpy(dtype=np.int64, na_value=0),
        "x": step_axis(steps),
        **{f"bound-{b}": bound_by(steps, b).astype(np.int64) for b in HELD},
        "bound": _bound_codes(steps),
        "source": spans["source"]
        .map({s: i for i, s in enumerate(sources)})
        .fillna(-1)
        .to_numpy(dtype=np.int64),
        "first": spans["first"].to_numpy(dtype=np.int64),
        "last": spans["last"].to_numpy(dtype=np.int64),
    }
    measured = [m for m in _MEASURES if m in steps and steps[m].notna().any()]
    classes = [c.value for c in STACK if c in steps and steps[c.value].notna().any()]
    for name in (*measured, *classes):
        columns[name] = steps[name].to_numpy(dtype=float, na_value=np.nan)
    if phases is not None:
        columns["phaseSeconds"] = phases.seconds.T
        if len(steps) <= SPACIOUS and len(np.unique(phases.slowest)) > 1:
            columns["slowest"], columns["longest"] = phases.slowest.T, phases.longest.T
    if "loss_broken" in steps:
        columns["loss_broken"] = steps["loss_broken"].to_numpy(dtype=np.int64)
    data, index = pack_columns(columns, FULL if len(steps) <= SPACIOUS else SHORT)
    return {
        "data": data,
        "index": index,
        "size": len(steps),
        "bounds": _BOUNDS,
        "classes": classes,
        "measures": measured,
        "phases": _tree(phases),
    }


def _bound_codes(steps: pd.DataFrame) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Position in `_BOUNDS` of what holds each step back. [steps]"""
    codes = pd.Categorical(steps["bound"].astype("object"), categories=_BOUNDS).codes
    return np.where(codes < 0, _BOUNDS.index(Bound.UNKNOWN.value), codes).astype(np.int64)


def with_broken_losses(steps: pd.DataFrame, events: pd.DataFrame) -> pd.DataFrame:
    """Steps with `loss_broken`: the source prints a loss, and it is nan or infinite."""
    broken = events[(events["kind"] == "metric") & (events["name"] == "loss")]
    broken = broken[(broken["text"] == "nan") | np.isinf(broken["value"].astype(float))]
    keys = ["segment", "engine", "step"]
    told = pd.MultiIndex.from_frame(broken[keys].dropna().astype(np.int64))
    mine = pd.MultiIndex.from_frame(steps[keys].fillna(-1).astype(np.int64)).isin(told)
    finite = np.isfinite(steps["loss"].to_numpy(dtype=float, na_value=np.nan))
    return steps.assign(loss_broken=mine & ~finite)


def _tree(phases: PhaseTable | None) -> dict[str, Any] | None:
    if phases is None:
        return None
    return {"names": phases.names, "parents": phases.parents, "classes": phases.classes}


def line_spans(steps: pd.DataFrame, events: pd.DataFrame) -> pd.DataFrame:
    """First and last line that speak of each step, in the source of the step's own line.

    Lines of one step lie together; a line far from the step's own is left out.
    """
    spans = steps[["source", "line"]].copy()
    spans["source"] = spans["source"].astype(object)
    own = steps["line"].to_numpy(dtype=float, na_value=-1.0).astype(np.int64)
    spans["first"] = spans["last"] = own
    told = events[events["step"].notna() & events["line"].notna() & events["source"].notna()]
    if told.empty:
        return spans[["source", "first", "last"]]
    keys = ["segment", "engine", "step", "source"]
    lines = told.assign(source=told["source"].astype(object)).groupby(
        keys, observed=True, dropna=False
    )["line"]
    reach = lines.agg(["min", "max"]).reset_index()
    found = (
        steps[["segment", "engine", "step"]]
        .assign(source=spans["source"])
        .merge(reach, on=keys, how="left")
    )
    low = found["min"].to_numpy(dtype=float, na_value=np.nan)
    high = found["max"].to_numpy(dtype=float, na_value=np.nan)
    near = (own >= 0) & (np.abs(low - own) <= _NEAR) & (np.abs(high - own) <= _NEAR)
    spans["first"] = np.where(near, np.minimum(low, own), own).astype(np.int64)
    spans["last"] = np.where(near, np.maximum(high, own), own).astype(np.int64)
    return spans[["source", "first", "last"]]


_NEAR = 40  #: lines


def thinned(steps: pd.DataFrame) -> pd.DataFrame:
    """At most `STEPS` steps, slow and fast ones among them."""
    if len(steps) <= STEPS:
        return steps
    seconds = steps["seconds"].to_numpy(dtype=float, na_value=np.nan)
    kept = np.union1d(keep(np.arange(len(steps)), seconds, STEPS), [0, len(steps) - 1])
    return steps.iloc[kept].reset_index(drop=True)
