"""Ranks side by side: how long each was in each phase, in steps that can be compared."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np
import pandas as pd

from dsprof.analysis.trends import period
from dsprof.events import Class
from dsprof.run.steps.stretches import Stretches
from dsprof.run.table import numbers, places, plain, runs, where

#: Classes of phases in which ranks meet; the rank that arrives last waits least there.
MEETING: Final = (Class.COMMUNICATION, Class.WAIT)

_MEETINGS: Final = 10  # every N steps: of fewer nobody can say who is usually late
_MOST_STEPS: Final = 2_000  # evenly spread over the run; more would not change the result


class Compared(NamedTuple):
    """A table of phases has no order in time: a rank's own work comes first, and where ranks meet
    last.

    Attributes:
        seconds: self seconds [steps x ranks x phases].
        steps, ranks, names: of these steps, ranks and phases.
        own: how many of the phases, the first ones, are a rank's own work.
    """

    seconds: np.ndarray
    steps: np.ndarray
    ranks: np.ndarray
    names: list[str]
    own: int


def compared_of(phases: pd.DataFrame) -> Compared | None:
    """The steps that all ranks report; None if fewer than two ranks can be compared."""
    told = phases["rank"].notna() & phases["step"].notna() & phases["self_seconds"].notna()
    rows = compared_steps(where(phases, told))
    (steps, step), (ranks, rank) = (places(plain(rows[name])) for name in ("step", "rank"))
    phase, names = pd.factorize(rows["name"])
    shape = (len(steps), len(ranks), len(names))
    visit = step * shape[1] + rank
    # All these steps are of equally many ranks: if one lacks a rank, none has all of them.
    if len(ranks) < 2 or not np.bincount(visit, minlength=shape[0] * shape[1]).all():
        return None
    own = np.bincount(visit * shape[2] + phase, numbers(rows["self_seconds"]), math.prod(shape))
    classes = rows["class"].iloc[np.unique(phase, return_index=True)[1]]
    meets = classes.isin(MEETING).to_numpy()
    seconds, kept = _sends_as_one(own.reshape(shape), classes.eq(Class.WAIT).to_numpy(bool))
    order = np.flatnonzero(kept)[np.argsort(meets[kept], kind="stable")]
    called = [str(names[i]) for i in order]
    return Compared(seconds[:, :, order], steps, ranks, called, int((~meets).sum()))


def meetings(phases: pd.DataFrame) -> np.ndarray | None:
    """Self seconds [steps x ranks x phases] of the phases in which ranks meet, of the steps that
    all ranks report; None if fewer than two ranks can be compared.
    """
    compared = compared_of(phases)
    return None if compared is None else compared.seconds[:, :, compared.own :]


def _sends_as_one(seconds: np.ndarray, waits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sends and receives as one meeting, in the phase that holds most of it; and which phases are
    left.

    Stages of a pipeline wait for each other in both: one that waits less in what it receives and
    more in what it sends is late nowhere.

    Args:
        seconds: [steps x ranks x phases].
        waits: which phases are such.
    """
    if waits.sum() < 2:
        return seconds, np.ones_like(waits)
    most = np.where(waits, seconds.sum(axis=(0, 1)), -1.0).argmax()
    seconds[:, :, most] = seconds[:, :, waits].sum(axis=2)
    return seconds, ~waits | (np.arange(len(waits)) == most)


def compared_steps(phases: pd.DataFrame) -> pd.DataFrame:
    """Phases of the steps that the largest number of ranks report, of at most about `_MOST_STEPS`
    steps evenly spread over the run.
    """
    step = plain(phases["step"])
    heads = runs(step)
    steps, place = np.unique(step[heads], return_inverse=True)
    ranks = Stretches(heads, place, len(step), len(steps)).ranks(phases["rank"])
    told = steps[ranks == ranks.max(initial=0)]
    if len(told) > _MOST_STEPS:  # what leads to one meeting stays together
        way = np.searchsorted(since_met(_met(phases, told)), np.arange(len(told)), "right")
        told = told[way % -(-len(told) // _MOST_STEPS) == 1]
    chosen = np.repeat(np.isin(step[heads], told), np.diff(heads, append=len(step)))
    return where(phases, chosen)


def since_met(met: np.ndarray) -> np.ndarray:
    """The steps [ascending] with which the ways to each meeting begin, and behind the last one.

    That is every step, unless ranks meet in each Nth one alone, as those of local SGD do: who is
    late shows there, by what it was in all N. Of a first way whose steps are not all known, as of a
    recording that begins amid it, it would seem to be so in few.

    Args:
        met: of each step, whether ranks meet in it.
    """
    rows = np.flatnonzero(met)
    every = period(rows) if len(rows) >= _MEETINGS else None
    if every is None:
        return np.arange(len(met) + 1)
    return rows + 1 if rows[0] + 1 < every else np.concatenate([[0], rows + 1])


def _met(phases: pd.DataFrame, steps: np.ndarray) -> np.ndarray:
    """Whether ranks meet in each of these steps; in all, if these are no phases but calls."""
    if "class" not in phases:
        return np.ones(len(steps), bool)
    meets = phases["class"].isin(MEETING) & (phases["self_seconds"] > 0)
    return np.isin(steps, plain(phases["step"])[meets.to_numpy(bool)])


def means(seconds: np.ndarray, begins: np.ndarray) -> np.ndarray:
    """Of a step, over the steps of each way [steps x ...]."""
    many = np.diff(begins).reshape(-1, *[1] * (seconds.ndim - 1))
    return np.asarray(np.add.reduceat(seconds[: begins[-1]], begins[:-1], axis=0) / many)
