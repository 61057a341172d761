"""Every step of one engine, for the page to look up, to zoom into and to take apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dsprof.analysis.breakdown import main_steps
from dsprof.charts import (
    HELD,
    MIXED,
    RATES,
    STACK,
    TRAINING,
    PhaseTable,
    bound_by,
    codes_of,
    held,
    step_axis,
)
from dsprof.charts.columns import is_windowed, step_edges
from dsprof.charts.figure import Whole, keep
from dsprof.events import Bound, Kind
from dsprof.page.pack import FULL, SHORT, pack_columns
from dsprof.run.table import STEP, of_kind, positions, whole

STEPS = 120_000  #: kept of one engine; a longer run is thinned, and the page says so
SPACIOUS = 20_000  #: up to here everything is kept in full
_BOUNDS = [b.value for b in Bound]
_MEASURES = (
    "seconds", "whole_seconds", "loss", "lr", "grad_norm", "loss_scale", "samples_per_second",
    "tokens_per_second", "tflops", "communication_share",
)  # fmt: skip


#: What the seconds of a step are where the whole of some steps is known beside them.
_SUMS = {"seconds": "sum of its timers", "whole_seconds": "whole step"}


def _whole_known(steps: pd.DataFrame) -> bool:
    """Whether means are of steps whose whole time a source tells beside their timers."""
    main = main_steps(steps)
    return bool((main["seconds"] != steps.loc[main.index, "seconds"]).any())


def track(steps: pd.DataFrame, phases: PhaseTable | None, spans: Spans) -> dict[str, Any]:
    """Columns of one engine's steps.

    Args:
        steps: rows of `Run.steps` of one engine.
        phases: their phases.
        spans: the lines of every step.
    """
    columns: dict[str, Any] = {
        "step": steps["step"].to_numpy(dtype=np.int64),
        "segment": steps["segment"].to_numpy(dtype=np.int64, na_value=0),
        "x": step_axis(steps),
        **{f"bound-{b}": held(steps, b) for b in HELD if bound_by(steps, b).any()},
        "bound": _bound_codes(steps),
        "source": spans.source,
        "first_line": spans.first,
        "last_line": spans.last,
        "firsts": spans.firsts,
        "lasts": spans.lasts,
    }
    if is_windowed(steps):
        columns["low"], columns["high"] = step_edges(steps)
    whole = _whole_known(steps)
    told = [name for name in _MEASURES if name in steps and steps[name].notna().any()]
    measured = [name for name in told if whole or name != "whole_seconds"]
    classes = _classes(steps)
    clocked = (steps["seconds_from"] == "clock").any()  # means are of what it tells, which is most
    for name in (*(told if clocked else measured), *classes):
        columns[name] = steps[name].to_numpy(dtype=float, na_value=np.nan)
    if phases is not None:
        columns["phaseSeconds"] = phases.seconds.T
        if len(steps) <= SPACIOUS and len(np.unique(phases.slowest)) > 1:
            columns["slowest"], columns["longest"] = phases.slowest.T, phases.longest.T
    if "loss_broken" in steps:
        columns["loss_broken"] = steps["loss_broken"].to_numpy(dtype=np.int64)
    if "validated" in steps and steps["validated"].any():
        columns["validated"] = steps["validated"].to_numpy(dtype=np.int64)
    data, index = pack_columns(columns, FULL if len(steps) <= SPACIOUS else SHORT)
    return {
        "data": data,
        "index": index,
        "size": len(steps),
        "bounds": _BOUNDS,
        "classes": classes,
        "measures": measured,
        "words": {**TRAINING, **RATES, **(_SUMS if whole else {"seconds": "step time"})},
        "phases": _tree(phases),
        "elsewhere": spans.elsewhere,
    }


def _classes(steps: pd.DataFrame) -> list[str]:
    """Classes that some step tells; a mixture only where it takes time."""
    told = [name for name in STACK if name in steps and steps[name].notna().any()]
    return [name for name in told if name != MIXED or steps[name].gt(0).any()]


def _bound_codes(steps: pd.DataFrame) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Position in `_BOUNDS` of what holds each step back. [steps]"""
    codes = pd.Categorical(steps["bound"].astype("object"), categories=_BOUNDS).codes
    return np.where(codes < 0, _BOUNDS.index(Bound.UNKNOWN.value), codes).astype(np.int64)


def with_broken_losses(steps: pd.DataFrame, events: pd.DataFrame) -> pd.DataFrame:
    """Steps with `loss_broken`: the source prints a loss, and it is nan or infinite."""
    broken = of_kind(events, Kind.METRIC, "loss")
    broken = broken[(broken["text"] == "nan") | np.isinf(broken["value"].astype(float))]
    keys = [*STEP]
    told = pd.MultiIndex.from_frame(broken[keys].dropna().astype(np.int64))
    mine = pd.MultiIndex.from_frame(steps[keys].fillna(-1).astype(np.int64)).isin(told)
    finite = np.isfinite(steps["loss"].to_numpy(dtype=float, na_value=np.nan))
    return steps.assign(loss_broken=mine & ~finite)


def _tree(phases: PhaseTable | None) -> dict[str, Any] | None:
    if phases is None:
        return None
    return {
        "names": phases.names,
        "parents": phases.parents,
        "classes": phases.classes,
        "shared": phases.shared,
    }


@dataclass(frozen=True, slots=True)
class Spans:
    """Lines that speak of each step. Sources are positions in the page's list, -1 for none.

    Attributes:
        source, first, last: lines in the source of the step's own line. [steps]
        elsewhere: other sources that speak of the steps.
        firsts, lasts: lines there, -1 for none. [elsewhere, steps]
    """

    source: Whole
    first: Whole
    last: Whole
    elsewhere: list[int]
    firsts: Whole
    lasts: Whole

    def of(self, row: int) -> list[tuple[int, int, int]]:
        """Source, first and last line of all that is known of a step."""
        own = (int(self.source[row]), int(self.first[row]), int(self.last[row]))
        others = (
            (self.elsewhere[i], int(self.firsts[i, row]), int(self.lasts[i, row]))
            for i in np.flatnonzero(self.firsts[:, row] > 0)
        )
        found = [own, *others]
        return [(source, first, last) for source, first, last in found if source >= 0 and first > 0]


def line_spans(steps: pd.DataFrame, events: pd.DataFrame, sources: list[str]) -> Spans:
    """First and last line that speak of each step, near its own line and in other sources.

    Lines of one step lie together; a line far from the step's own is left out.
    """
    own = steps["line"].to_numpy(dtype=float, na_value=-1.0).astype(np.int64)
    source = _codes(steps["source"], sources)
    at = positions(steps, events, *STEP)
    told = (at >= 0) & events["line"].notna().to_numpy()
    at, line = at[told], whole(events["line"])[told]
    code = _codes(events["source"], sources)[told]
    here = (code == source[at]) & (np.abs(line - own[at]) <= _NEAR)
    first, last = own.copy(), own.copy()
    np.minimum.at(first, at[here], line[here])
    np.maximum.at(last, at[here], line[here])
    other = (code >= 0) & (code != source[at])
    return Spans(source, first, last, *_elsewhere(code[other], at[other], line[other], len(steps)))


def _elsewhere(code: Whole, at: Whole, line: Whole, steps: int) -> tuple[list[int], Whole, Whole]:
    """Other sources that speak of the steps, and their first and last lines of each."""
    room = max(1, ELSEWHERE // max(steps, 1))
    known = np.unique(code)[:room]
    place = np.searchsorted(known, code)
    kept = (place < len(known)) & (known[np.minimum(place, len(known) - 1)] == code)
    cell, line = (place * steps + at)[kept], line[kept]
    first = np.full(len(known) * steps, _FAR, dtype=np.int64)
    np.minimum.at(first, cell, line)
    near = line - first[cell] <= _NEAR
    last = np.full(len(first), -1, dtype=np.int64)
    np.maximum.at(last, cell[near], line[near])
    first[first == _FAR] = -1
    shape = (len(known), steps)
    return known.tolist(), first.reshape(shape), last.reshape(shape)


def _codes(column: pd.Series[Any], sources: list[str]) -> Whole:
    """Position of every row's source in `sources`, -1 for none."""
    known = {source: i for i, source in enumerate(sources)}
    codes, names = codes_of(column)
    table = np.array([known.get(name, -1) for name in names] + [-1], dtype=np.int64)
    return table[codes]  # the code -1 means none, and the last entry is -1


_NEAR = 40  #: lines
_FAR = np.iinfo(np.int64).max
ELSEWHERE = 1_000_000  #: steps times other sources kept


def thinned(steps: pd.DataFrame) -> pd.DataFrame:
    """At most `STEPS` steps, slow and fast ones among them."""
    if len(steps) <= STEPS:
        return steps
    seconds = steps["seconds"].to_numpy(dtype=float, na_value=np.nan)
    kept = np.union1d(keep(np.arange(len(steps)), seconds, STEPS), [0, len(steps) - 1])
    return steps.iloc[kept].reset_index(drop=True)
