"""Timers in DeepSpeed's own lines that no dialect knows: from a newer version, or added by a fork.

Forward, backward and step of the engine include all that it times. A timer beside them may be part
of them, and would be counted twice if taken as a phase of its own. Time stamps can decide: if the
engine's timers leave just that much time between two steps, or between all steps since the timer
was last printed, it lies there. If they leave less, it cannot.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from dsprof.events import Kind
from dsprof.run.defects.step_timers import without_seconds
from dsprof.run.repairs import Outcome, Repair, Source, met
from dsprof.run.steps.phases import phases
from dsprof.run.steps.words import classes_of
from dsprof.run.table import among, keys, known_rank, where
from dsprof.units import format_seconds

_OF_ENGINE: Final = "deepspeed.timers"
_ENGINE: Final = ("zero", "zero-micro")  #: flavours of the engine's timers
_SPAN: Final = ("segment", "engine", "step", "rank")

STAMPED: Final = 0.002  #: seconds by which the time between two stamps may be wrong
FITS: Final = 0.05  #: share of a timer by which the time left between two steps may differ from it
ENOUGH: Final = 5  #: intervals between two steps that must be timed
MANY: Final = 200  #: names that no job gives its timers: to judge each takes too long
MOST: Final = 0.9  #: share of them that must agree to prove where a timer lies


def unplaced_timers(events: pd.DataFrame, source: Source) -> Outcome:
    """Keep such timers if time stamps prove that they lie between the steps; otherwise drop them.

    Timers that a loop around the engine prints are its own and are not affected.
    """
    printed = among(events["pattern"], [_OF_ENGINE]) & among(events["kind"], [Kind.PHASE])
    if not printed.any():
        return events, None
    known = set(classes_of(source.flavours)).union(
        *({*one.aliases, *one.ignore, *one.overlaps} for one in source.flavours.values())
    )
    loops = [name for name, flavour in source.flavours.items() if flavour.sums == "mean"]
    strange = printed & ~among(events["name"], known) & ~among(events["timers"], loops)
    if not strange.any():
        return events, None
    rows = known_rank(where(events.assign(strange=strange), printed))
    rows = where(rows, rows["seconds"].notna() & rows["step"].notna())
    span = keys(rows, *_SPAN)
    engine = span[among(rows["timers"], _ENGINE)]
    found = where(rows, rows["strange"].to_numpy(bool) & np.isin(span, engine))
    between = _between_steps(where(rows, ~rows["strange"].to_numpy(bool)), source)
    inside = _inside(between, found)
    others = found[~found["name"].isin(inside)]
    if len(others) and _fills(between, others):
        events = without_seconds(events, found[found["name"].isin(inside)])
        return events, _told(others, _BETWEEN, "repair")
    each = _of_each_step(between, others)
    if len(each):
        events = without_seconds(events, found[found["name"].isin(inside)])
        return _divided(events, others, each), _told(others, _SUMS, "repair")
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
_SUMS: Final = (
    "timers that no dialect knows ({} at most) take just what the timers of the engine leave of "
    "all steps since they were printed last: they lie between the steps, and what the time stamps "
    "leave of each was taken for theirs"
)


def _told(rows: pd.DataFrame, text: str, kind: str) -> Repair | None:
    longest = rows.groupby("name", observed=True)["seconds"].max().sort_values(ascending=False)
    told = ", ".join(f"{name} {format_seconds(most)}" for name, most in longest.head(3).items())
    if kind == "doubt":
        return met("unplaced-timers", "doubt", text.format(told), rows)
    return met("placed-timers", "repair", text.format(told), rows)


def _names(rows: pd.DataFrame) -> list[str]:
    return list(rows["name"].astype("str").unique())


def _inside(between: pd.DataFrame, found: pd.DataFrame) -> list[str]:
    """The timers for which there is no room between the steps; not looked for among many."""
    names = _names(found)
    if len(names) > MANY:
        return []
    return [name for name in names if _has_no_room(between, _of(found, name))]


def _of(rows: pd.DataFrame, name: str) -> pd.DataFrame:
    return rows[rows["name"] == name]


def _between_steps(rows: pd.DataFrame, source: Source) -> pd.DataFrame:
    """Seconds from each step's lines to the next that the engine's timers leave."""
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
    """`left`: the time left between steps; `here`: what `rows` take; `later`: the same, printed one
    step later.
    """
    one = list(_SPAN)
    taken = (rows["seconds"] / rows["steps"].fillna(1).clip(lower=1)).groupby(
        [rows[name] for name in one]
    )
    told = taken.sum().rename("here").reset_index().merge(between, "left", one)
    told["later"] = told.groupby(["segment", "engine", "rank"])["here"].shift(-1)
    return told[told["left"].notna()]


def _has_no_room(between: pd.DataFrame, rows: pd.DataFrame) -> bool:
    """Whether not even half of the timer's time fits between the steps.

    A timer that is printed every tenth step may be a sum over ten.
    """
    since = rows.groupby(["segment", "engine", "rank"])["step"].diff().astype("float64")
    told = _compared(between, rows.assign(seconds=rows["seconds"] / since.clip(lower=1).fillna(1)))
    return _hold(told["left"] + STAMPED < 0.5 * told["here"])


def _fills(between: pd.DataFrame, rows: pd.DataFrame) -> bool:
    """Whether timers that are printed once per step take the time left between steps: that of their
    own step, or of the one before, whose lines precede them.
    """
    if rows.duplicated([*_SPAN, "name"]).any():
        return False
    told = _compared(between, rows)
    return any(_fit(told["left"], told[way]) for way in ("here", "later"))


def _of_each_step(between: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """The seconds of each step that are `theirs`, if timers printed every few steps add up to what
    is left between all of these steps; no rows otherwise.

    For a step that is not between two such lines, or if more time is left, it is at most the mean.
    """
    by, one = ["segment", "engine", "rank"], list(_SPAN)
    coarse = rows["at"].isna().any() or not rows["at"].dt.microsecond.any()
    if coarse or rows.duplicated([*one, "name"]).any():
        return between.iloc[:0]
    lines = rows.groupby(one, observed=True)["seconds"].sum().rename("taken").reset_index()
    lines = lines.assign(since=lines.groupby(by)["step"].diff(), until=lines["step"])
    lines = lines[lines["since"].fillna(0) > 1]
    steps = _by_step(between).merge(_by_step(lines), "left", one).sort_values(one)
    told = ["taken", "since", "until"]
    steps[told] = steps.groupby(by)[told].bfill()
    steps["left"] = steps["left"].clip(lower=0)
    window = steps[steps["step"] > steps["until"] - steps["since"]].groupby([*by, "until"])
    sums, many = (window["left"].transform(how).reindex(steps.index) for how in ("sum", "size"))
    sums = sums.where(many == steps["since"])
    last = steps[(steps["step"] == steps["until"]) & sums.notna()]
    if not _fit(sums[last.index], last["taken"]):
        return between.iloc[:0]
    mean = last["taken"].sum() / last["since"].sum()
    theirs = steps["left"].where(_fitting(sums, steps["taken"]), steps["left"].clip(upper=mean))
    return steps[[*one]].assign(theirs=theirs)[theirs > 0]


def _by_step(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.astype(dict.fromkeys(_SPAN, "int64"))


def _divided(events: pd.DataFrame, sums: pd.DataFrame, each: pd.DataFrame) -> pd.DataFrame:
    """Replace timers over several steps by `theirs` for each step, divided among these timers."""
    by = ["segment", "engine", "rank"]
    part = sums.groupby("name", observed=True)["seconds"].sum() / sums["seconds"].sum()
    found = [events.drop(index=sums.index)]
    for name, lines in _by_step(sums.assign(row=sums.index)).groupby("name", observed=True):
        near = lines[[*_SPAN, "row"]].sort_values("step")
        of = pd.merge_asof(each.sort_values("step"), near, on="step", by=by, direction="nearest")
        of = of[of["row"].notna()]
        more = events.loc[of["row"]].assign(
            step=of["step"].to_numpy(),
            steps=1,
            seconds=(of["theirs"] * part[name]).to_numpy(),
        )
        more["at"] = more["at"].mask(more["at"].notna())  # that of the original line is wrong here
        found.append(more.astype(events.dtypes.to_dict()))
    return pd.concat(found).sort_index(kind="stable").reset_index(drop=True)


def _fit(left: pd.Series[float], taken: pd.Series[float]) -> bool:
    return _hold((_fitting(left, taken) & (taken > STAMPED / FITS))[taken.notna()])


def _fitting(left: pd.Series[float], taken: pd.Series[float]) -> pd.Series[bool]:
    return (left - taken).abs() <= STAMPED + FITS * taken


def _hold(judged: pd.Series[bool]) -> bool:
    values: npt.NDArray[np.bool_] = judged.to_numpy(bool)
    return len(values) >= ENOUGH and bool(values.mean() >= MOST)
