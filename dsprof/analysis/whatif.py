"""Estimates by how much recorded steps would be shorter without one of their faults.

The model: each rank works as long as its own phases take and then meets the others, so a step is as
long as the last rank's work plus the communication that follows. Removing a fault changes the times
of ranks in every step, and the step becomes shorter by the change at the meeting. The estimate is
for the mean step (as in "Understanding Stragglers in Large Model Training", arXiv 2505.05713), so
jitter that no rank is responsible for remains.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from dsprof.analysis.compared import MEETING, compared_steps
from dsprof.analysis.ranks import back
from dsprof.events import CLASSES, Class
from dsprof.run.steps.calls import class_codes
from dsprof.run.table import numbers, places, plain, where

Seconds = npt.NDArray[np.float64]
Ranks = npt.NDArray[np.int64]

_MEETING: Final = [CLASSES.index(one) for one in MEETING]
_ALONE: Final = [index for index in range(len(CLASSES)) if index not in _MEETING]
_OTHER: Final = CLASSES.index(Class.OTHER)
_DATA: Final = CLASSES.index(Class.DATA)
#: Margin, as a share of the gain, for side effects of removing a fault that no recording shows.
_ELSE: Final = 0.05
#: Half the width of a 95 % interval, in standard errors.
_ERRORS: Final = 2.0


@dataclass(frozen=True, slots=True)
class Gain:
    """By how many seconds a step would be shorter, at least and at most."""

    low: float
    high: float

    def at_most(self, seconds: float) -> Gain:
        return Gain(min(self.low, seconds), min(self.high, seconds))


def parts(phases: pd.DataFrame, rest: pd.DataFrame | None = None) -> tuple[Seconds, Ranks] | None:
    """Self seconds [steps x ranks x classes] of the steps that all ranks report; and the ranks.

    What the phases leave out (`rest`, see `rest.untimed_by_step`) is a rank's own work, too.

    The steps are those of `ranks.compared_steps`. None unless there are at least two.
    """
    known = phases["step"].notna() & phases["rank"].notna() & phases["self_seconds"].notna()
    rows = compared_steps(where(phases, known))
    (steps, visit), (ranks, rank) = (places(plain(rows[name])) for name in ("step", "rank"))
    visit *= len(ranks)
    visit += rank
    told = np.zeros(len(steps) * len(ranks), bool)
    told[visit] = True
    if len(steps) < 2 or not told.all():  # all are of equally many ranks: then none has all of them
        return None
    visit *= len(CLASSES)
    visit += class_codes(rows)
    shape = len(steps), len(ranks), len(CLASSES)
    seconds = np.bincount(visit, numbers(rows["self_seconds"]), math.prod(shape))
    table = np.asarray(seconds, np.float64).reshape(shape)
    if rest is not None:
        table[:, :, _OTHER] += rest.reindex(steps)[ranks].fillna(0.0).to_numpy()
    return table, ranks


def no_straggler(
    table: Seconds, meetings: Seconds, slow: Sequence[int], *, timed: bool = True
) -> Gain:
    """The gain if the ranks at the indices `slow` worked no longer than the last of the others.

    It is measured in two ways: by how much longer they work, and by how much longer the others
    wait. Where the two differ, the truth is taken to lie between them. Where they wait themselves
    for another rank, that rank's delay remains, and makes up for nothing of theirs.

    Args:
        table: from `parts`.
        meetings: from `ranks.meetings`, of the same phases.
        slow: indices of ranks, mostly of one; of several the last one counts.
        timed: whether phases include what makes them late; otherwise only the waiting is used.
    """
    waited = np.delete(meetings, slow, axis=1) - meetings[:, slow].min(axis=1)[:, np.newaxis]
    waits = waited.min(axis=1)
    instead = back(waits)
    # Who shares a smaller group with the slow rank waits for it there, the others where all meet.
    for_them = ~back(waited.max(axis=1))
    waiting = waited[:, :, for_them].sum(axis=2).min(axis=1)
    work = table[:, :, _ALONE].sum(axis=2)
    others = np.delete(work, slow, axis=1).max(axis=1)
    longer = work[:, slow].max(axis=1) - others - waits[:, instead].sum(axis=1)
    return _between(longer if timed else waiting, waiting).at_most(_beyond(table, others))


def data_ready(table: Seconds) -> Gain:
    """The gain if no rank waited for its input. Ranks load in parallel, so the last one counts.

    Where few steps have very different waits, the interval of the mean is wide. No gain exceeds
    what a step has beyond the ranks' other work.
    """
    data = table[:, :, _DATA]
    gain = _between(data.min(axis=1), data.max(axis=1))
    return gain.at_most(_beyond(table, (table[:, :, _ALONE].sum(axis=2) - data).max(axis=1)))


def _beyond(table: Seconds, work: Seconds) -> float:
    """Seconds of the mean step beyond the `work` [steps] that some rank has to do in any case."""
    return float((table.sum(axis=2).max(axis=1) - work).mean())


def quicker(table: Seconds, class_: str, saved: float) -> float:
    """By how many seconds a step would be shorter, at most, without a part of what each rank spends
    on a class of its own work: where others work as long elsewhere, less than that.
    """
    work = table[:, :, _ALONE].sum(axis=2)
    left = work - saved * table[:, :, CLASSES.index(Class(class_))]
    return float((work.max(axis=1) - left.max(axis=1)).mean())


def waits_for_input(table: Seconds) -> float:
    """Seconds per step, mean over the ranks, of communication in which a rank waits for another
    whose input comes later, whichever that is.

    In each step that is no more than by how much longer the other's input took, nor than what the
    rank is held up beyond the one held up least.
    """
    data, held_up = (table[:, :, CLASSES.index(name)] for name in (Class.DATA, Class.COMMUNICATION))
    later = data.max(axis=1, keepdims=True) - data
    longer = held_up - held_up.min(axis=1, keepdims=True)
    return float(np.minimum(later, longer).mean())


def _between(one: Seconds, other: Seconds) -> Gain:
    ends = [*_interval(one), *_interval(other)]
    return Gain(max(0.0, float(min(ends)) * (1 - _ELSE)), max(0.0, float(max(ends)) * (1 + _ELSE)))


def _interval(values: Seconds) -> tuple[float, float]:
    """The 95 % interval of the mean."""
    error = _ERRORS * float(values.std(ddof=1)) / np.sqrt(len(values))
    return float(values.mean()) - error, float(values.mean()) + error
