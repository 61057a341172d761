"""Timers in DeepSpeed's own lines that no dialect knows: of a newer version, or added to it.

Forward, backward and step of the engine hold all that it times. What stands beside them may lie
inside: as a part of its own it would be counted twice. The clock can tell: where the engine's
timers leave just so much between two steps, it lies there; where they leave less, it cannot.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from dsprof.events import Kind
from dsprof.run.phases import classes_of, phases
from dsprof.run.repairs import Outcome, Repair, Source, met
from dsprof.run.step_timers import without_seconds
from dsprof.run.table import among, keys, known_rank, where
from dsprof.units import format_seconds

_OF_ENGINE: Final = "deepspeed.timers"
_ENGINE: Final = ("zero", "zero-micro")  #: flavours of what an engine times
_SPAN: Final = ("segment", "engine", "step", "rank")

STAMPED: Final = 0.002  #: seconds that the time between two stamps may be wrong
FITS: Final = 0.05  #: part of a timer that what lies between two steps may differ from it
ENOUGH: Final = 5  #: stretches between two steps that must be timed
MOST: Final = 0.9  #: of these, before they prove where a timer lies


def unplaced_timers(events: pd.DataFrame, source: Source) -> Outcome:
    """Used where the clock proves that they lie between the steps, else left out.

    What a loop around the engine prints is its own.
    """
    known = set(classes_of(source.flavours)).union(
        *({*one.aliases, *one.ignore, *one.overlaps} for one in source.flavours.values())
    )
    loops = [name for name, flavour in source.flavours.items() if flavour.sums == "mean"]
    printed = among(events["pattern"], [_OF_ENGINE]) & among(events["kind"], [Kind.PHASE])
    strange = printed & ~among(events["name"], known) & ~among(events["timers"], loops)
    if not strange.any():
        return events, None
    rows = known_rank(where(events.assign(strange=strange), printed))
    rows = where(rows, rows["seconds"].notna() & rows["step"].notna())
    span = keys(rows, *_SPAN)
    engine = span[among(rows["timers"], _ENGINE)]
    found = where(rows, rows["strange"].to_numpy(bool) & np.isin(span, engine))
    between = _between_steps(where(rows, ~rows["strange"].to_numpy(bool)), source)
    inside = [name for name in _names(found) if _has_no_room(between, _of(found, name))]
    others = found[~found["name"].isin(inside)]
    if len(others) and _fills(between, others):
        events = without_seconds(events, found[found["name"].isin(inside)])
        return events, _told(others, _BETWEEN, "repair")
    events = without_seconds(events, found)
    return events, _told(others, _UNKNOWN, "doubt") or _told(found, _INSIDE, "repair")


_UNKNOWN: Final = (
    "timers that no dialect knows ({} at most) stand beside those of the engine and may lie within "
    "them: they were left out, so that nothing is counted twice"
)
_INSIDE: Final = (
    "timers that no dialect knows ({} at most) lie within those of the engine, which leave less "
    "between two steps by the time stamps: they were left out, so that nothing is counted twice"
)
_BETWEEN: Final = (
    "timers that no dialect knows ({} at most) lie between the steps of the engine, whose own "
    "timers leave just that by the time stamps: they were counted beside them"
)


def _told(rows: pd.DataFrame, text: str, kind: str) -> Repair | None:
    longest = rows.groupby("name", observed=True)["seconds"].max().sort_values(ascending=False)
    told = ", ".join(f"{name} {format_seconds(most)}" for name, most in longest.head(3).items())
    if kind == "doubt":
        return met("unplaced-timers", "doubt", text.format(told), rows)
    return met("placed-timers", "repair", text.format(told), rows)


def _names(rows: pd.DataFrame) -> list[str]:
    return list(rows["name"].astype("str").unique())


def _of(rows: pd.DataFrame, name: str) -> pd.DataFrame:
    return rows[rows["name"] == name]


def _between_steps(rows: pd.DataFrame, source: Source) -> pd.DataFrame:
    """Seconds that the engine's timers leave of the time from each step's lines to the next."""
    timed = phases(rows, source.flavours, accumulation=_accumulation(source))
    spent = timed.astype({"rank": "Int64"}).groupby(list(_SPAN))["self_seconds"].sum(min_count=1)
    ends = rows[rows["at"].notna()].groupby(list(_SPAN))["at"].max()
    table = ends.to_frame().join(spent.rename("spent"), how="inner").reset_index()
    by = table.groupby(["segment", "engine", "rank"])
    passed = by["step"].diff().astype("float64")
    each = by["at"].diff().dt.total_seconds() / passed.where(passed > 0)
    known: pd.DataFrame = table.assign(left=each - table["spent"])[each > 0]
    return known


def _accumulation(source: Source) -> int | None:
    told = source.config.get("gradient_accumulation_steps")
    return told if isinstance(told, int) else None


def _compared(between: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """What is `left` between steps beside what `rows` take there, or as printed one step later."""
    one = list(_SPAN)
    taken = (rows["seconds"] / rows["steps"].fillna(1).clip(lower=1)).groupby(
        [rows[name] for name in one]
    )
    told = taken.sum().rename("here").reset_index().merge(between, "left", one)
    told["later"] = told.groupby(["segment", "engine", "rank"])["here"].shift(-1)
    return told[told["left"].notna()]


def _has_no_room(between: pd.DataFrame, rows: pd.DataFrame) -> bool:
    """Whether a timer takes so much that half of it would not find room between the steps.

    What is printed every tenth step may be a sum over ten.
    """
    since = rows.groupby(["segment", "engine", "rank"])["step"].diff().astype("float64")
    told = _compared(between, rows.assign(seconds=rows["seconds"] / since.clip(lower=1).fillna(1)))
    return _hold(told["left"] + STAMPED < 0.5 * told["here"])


def _fills(between: pd.DataFrame, rows: pd.DataFrame) -> bool:
    """Whether timers, each once a step, take what is left between the steps: of the step they
    are printed in, or of the one before it, whose lines they follow."""
    if rows.duplicated([*_SPAN, "name"]).any():
        return False
    told = _compared(between, rows)
    return any(_fit(told["left"], told[way]) for way in ("here", "later"))


def _fit(left: pd.Series[float], taken: pd.Series[float]) -> bool:
    fits = (left - taken).abs() <= STAMPED + FITS * taken
    return _hold((fits & (taken > STAMPED / FITS))[taken.notna()])


def _hold(judged: pd.Series[bool]) -> bool:
    values: npt.NDArray[np.bool_] = judged.to_numpy(bool)
    return len(values) >= ENOUGH and bool(values.mean() >= MOST)
