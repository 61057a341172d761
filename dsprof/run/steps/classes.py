"""Seconds of a step by class, from its phases and, where those are blind, its collectives."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from dsprof.events import CLASSES, Class
from dsprof.run.steps.calls import class_codes
from dsprof.run.steps.stretches import Stretches
from dsprof.run.table import (
    STEP,
    Codes,
    Numbers,
    among,
    keys,
    numbers,
    of_part,
    places,
    plain,
    positions,
    visits,
)

SEEN: Final = 1e-3  # of the timed seconds: what several ranks exchange at the least
UPDATES: Final = ("step", "optimizer")  #: what is mixed in them is no forward nor backward
LOCAL: Final = (Class.COMPUTE, Class.DATA, Class.OFFLOAD)  # what a rank does by itself
GATHERS: Final = "gathers"  #: that part of the logged communication
P2P: Final = ("send", "recv", "isend", "irecv", "batch_isend_irecv")

#: Timers may exceed their step by rounding and by what the logged time leaves out.
TOLERATED: Final = 1.05


def class_seconds(
    table: pd.DataFrame,
    phases: pd.DataFrame,
    at: Stretches,
    comm: pd.DataFrame,
    *,
    recorded: bool = False,
) -> pd.DataFrame:
    """A column per class, mean over the ranks; NaN where the run has no timer of that class.

    Where phases hold compute and communication together (`mixed`, as under ZeRO-3) both are
    unknown, unless the collectives of the step were logged one by one.
    What little communication a recording (`recorded`) shows is all there was.
    `at`: `phases` by the rows of `table`.
    """
    own = numbers(phases["self_seconds"])
    ranks = at.ranks(phases["rank"])
    run = keys(table, "segment", "engine")
    (class_,) = at.once(class_codes(phases))
    total, rows = (at.sums(class_, len(CLASSES), values) for values in (own, None))
    mean = total / np.maximum(ranks, 1.0)[:, None]
    known = {
        word: (ranks > 0) & np.isin(run, run[count > 0])
        for word, count in zip(CLASSES, rows.T, strict=True)
    }
    found = pd.DataFrame(mean, table.index, list(CLASSES)).where(pd.DataFrame(known, table.index))
    unknown = np.isnan(own)  # a timer is missing: where its time went is unknown as well
    broken = at.of_rows[unknown] if unknown.any() else np.zeros(0, np.int64)
    found.iloc[broken] = np.nan
    if recorded:
        return found
    found = _seen(found, table)
    found = _with_calls(table, found, phases, at.of_rows, comm)
    found.iloc[broken] = np.nan
    return found


def timed_steps(table: pd.DataFrame, at: Stretches) -> pd.Series[bool]:
    """The steps that have timers: logged calls alone are no whole step."""
    timed = np.isin(np.arange(len(table)), at.place)
    return pd.Series(timed, table.index, dtype="bool")


def _with_calls(
    table: pd.DataFrame,
    found: pd.DataFrame,
    phases: pd.DataFrame,
    place: Codes,
    comm: pd.DataFrame,
) -> pd.DataFrame:
    """Classes of which timers say nothing, as far as logged calls do."""
    own = numbers(phases["self_seconds"])
    ranks = ranks_of(place, phases, len(table))
    moved = _moved(table, comm)
    holds = phases["mixed"].to_numpy(bool) & ~among(phases["name"], UPDATES)
    if not holds.any():
        return _complete(found, moved)
    return _unmix(found, moved, _sum(place[holds], own[holds], ranks))


def _seen(found: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """Communication is unknown where its timers ran around next to nothing.

    Frameworks on top of DeepSpeed keep timers around reductions that the engine does
    itself; they read 0.00 or 0.01 ms.
    """
    reduced = found[Class.COMMUNICATION].fillna(0.0)
    total = of_part(table, found.sum(axis=1))
    empty = pd.Series(of_part(table, reduced) < SEEN * total, found.index)
    if not empty.any():
        return found
    return found.assign(
        **{
            Class.COMMUNICATION: found[Class.COMMUNICATION].mask(empty),
            Class.OTHER: found[Class.OTHER].add(
                reduced.where(empty & (reduced > 0)), fill_value=0.0
            ),
        }
    )


def ranks_of(place: Codes, rows: pd.DataFrame, size: int) -> Numbers:
    """How many ranks each step has rows of."""
    return np.bincount(visits(place, plain(rows["rank"])), minlength=size).astype(float)


def _sum(place: Codes, seconds: Numbers | None, ranks: Numbers) -> Numbers:
    return np.bincount(place, seconds, len(ranks)) / np.maximum(ranks, 1.0)


def _moved(table: pd.DataFrame, comm: pd.DataFrame) -> pd.DataFrame:
    """Seconds of one step that trustworthy single calls spent moving data or waiting."""
    if comm.empty:
        words = (str(Class.COMMUNICATION), str(Class.WAIT), str(GATHERS))
        return pd.DataFrame(np.nan, table.index, words)
    single = ~comm["total"] & comm["suspect"].isna() & comm["seconds"].notna()
    calls = comm[single & comm["step"].notna()]
    place = positions(table, calls, *STEP)
    calls, place = calls[place >= 0], place[place >= 0]
    exposed = numbers(calls["exposed_seconds"].fillna(calls["seconds"]))
    exposed = exposed / numbers(calls["steps"])
    ranks = ranks_of(place, calls, len(table))
    p2p = calls["op"].isin(P2P).to_numpy()
    gathers = calls["op"].astype("str").str.contains("gather").fillna(False).to_numpy(bool)
    columns = {Class.COMMUNICATION: ~p2p, Class.WAIT: p2p, GATHERS: gathers}
    return pd.DataFrame(
        {
            str(word): np.where(ranks > 0, _sum(place[mine], exposed[mine], ranks), np.nan)
            for word, mine in columns.items()
        },
        index=table.index,
    )


def mixed_seconds(table: pd.DataFrame, phases: pd.DataFrame, classes: pd.DataFrame) -> Numbers:
    """Seconds of each step that stay compute and communication unseparated, part of `other`.

    Logged calls split what forward and backward hold (`classes` then know), not what an update
    does.
    """
    if not phases["mixed"].any():
        return np.zeros(len(table))
    place = positions(table, phases, *STEP)
    own = numbers(phases["self_seconds"])
    split = classes[Class.COMPUTE].notna().to_numpy()[place]
    left = phases["mixed"].to_numpy(bool) & (~split | among(phases["name"], UPDATES))
    return _sum(place[left], own[left], ranks_of(place, phases, len(table)))


def _complete(found: pd.DataFrame, moved: pd.DataFrame) -> pd.DataFrame:
    """Let logged collectives speak where no timer covers communication."""
    blind = found[Class.COMMUNICATION].isna() & moved[Class.COMMUNICATION].notna()
    inside = moved[Class.COMMUNICATION].where(blind)
    found = found.assign(
        **{Class.COMMUNICATION: found[Class.COMMUNICATION].fillna(inside)},
    )
    rest = (found[Class.OTHER] - inside.fillna(0.0)).clip(lower=0.0)
    return found.assign(**{Class.OTHER: rest})


def _unmix(found: pd.DataFrame, moved: pd.DataFrame, held: Numbers) -> pd.DataFrame:
    """ZeRO-3: `held` seconds are compute and communication; only logged collectives split them.

    All gathers lie in there; of the reductions, what the timers around them do not cover.
    """
    around = found[Class.COMMUNICATION].fillna(0.0)
    reductions = moved[Class.COMMUNICATION] - moved[GATHERS]
    inside = (moved[GATHERS] + (reductions - around).clip(lower=0.0)).clip(upper=held)
    taken = pd.Series(held, found.index).where(inside.notna(), -around)
    unmixed = found.assign(
        **{
            Class.COMPUTE: held - inside,
            Class.COMMUNICATION: around + inside,
            Class.OTHER: (found[Class.OTHER] - taken).clip(lower=0.0),
        }
    )
    timed = found.notna().any(axis=1)
    return unmixed.where(timed, _complete(found, moved))


def settle(classes: pd.DataFrame, seconds: Numbers) -> pd.DataFrame:
    """Classes that add up to `seconds`: the rest is `other`; an excess is scaled down.

    A checkpoint that does not fit, or is all that was timed, lies between steps.
    """
    inside = classes.drop(columns=Class.CHECKPOINT)
    timed = inside.notna().any(axis=1)
    written = classes[Class.CHECKPOINT].where(timed)
    fits = inside.sum(axis=1) + written <= TOLERATED * seconds
    written = written.where(fits | written.isna(), 0.0)
    classes = classes.assign(**{Class.CHECKPOINT: written})
    total = classes.sum(axis=1, min_count=1).to_numpy()
    known = np.isfinite(total) & np.isfinite(seconds)
    rest = np.where(known, seconds - total, 0.0)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        scale = np.where(known & (rest < 0), seconds / total, 1.0)
    if (scale < 1.0).any():
        classes = classes.mul(scale, axis=0)
    other = classes[Class.OTHER].fillna(0.0) + np.maximum(rest, 0.0)
    return classes.assign(**{Class.OTHER: other.where(known)})


def reduce_untimed(classes: pd.DataFrame, replicas: int | None) -> pd.DataFrame:
    """The pipeline engine times waiting, but not the reduction of gradients over replicas.

    With one replica there is none. With several it is most of what no timer explains, which
    is taken for it; with an unknown number it stays unknown.
    """
    untimed = classes[Class.WAIT].notna() & classes[Class.COMMUNICATION].isna()
    if replicas is None or not untimed.any():
        return classes
    rest = classes[Class.OTHER].where(untimed) if replicas > 1 else untimed * 0.0
    communication = classes[Class.COMMUNICATION].fillna(rest.where(untimed))
    other = classes[Class.OTHER].mask(untimed & (replicas > 1), 0.0)
    return classes.assign(**{Class.COMMUNICATION: communication, Class.OTHER: other})


def excess_of(table: pd.DataFrame, phases: pd.DataFrame, at: Stretches) -> Numbers:
    """Part of the step by which the slowest rank's own work exceeds the median rank's.

    NaN for a step with timers of fewer than two ranks.
    """
    work = np.sort(_own_work(phases, at), axis=1)
    told = np.isfinite(work).sum(axis=1)
    step = np.arange(len(table))
    median = (work[step, (told - 1) // 2] + work[step, told // 2 - (told == 0)]) / 2
    gap = np.where(told > 1, work[step, told - 1], np.nan) - median
    excess: Numbers = gap / numbers(table["seconds"])
    return excess


def _own_work(phases: pd.DataFrame, at: Stretches) -> Numbers:
    """Seconds that each rank works by itself; infinite where it does not tell. [steps, ranks]"""
    local, rank = at.once(among(phases["class"], LOCAL), plain(phases["rank"]))
    known, whose = places(np.maximum(rank, 0))  # who is not named is rank 0
    whose[~local] = -1
    own, width = numbers(phases["self_seconds"]), max(1, len(known))
    own = own if np.isfinite(own.sum()) else np.nan_to_num(own)
    return np.where(at.sums(whose, width) > 0, at.sums(whose, width, own), np.inf)
