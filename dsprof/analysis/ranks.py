"""Who the others wait for: ranks compared step by step."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from dsprof.events import Class
from dsprof.run.table import numbers, plain, runs, visits, where, whole

#: Where ranks meet. A table of phases keeps no order in time, so a rank's own work
#: is put first and what waits for others last.
_MEETING = (Class.COMMUNICATION, Class.WAIT)

_TIE = 1e-9  # of the time reached: what adding floats in another order changes
_MOST_STEPS = 2_000  # evenly spread over the run; more tells nothing new


@dataclass(frozen=True, slots=True)
class Straggler:
    """The rank that is behind most often.

    Attributes:
        rank: the global rank.
        delay: seconds per step the median rank waits for it, mean over all steps.
        held: part of the steps in which it is the last one.
        phase: where it loses most against the median rank.
        phase_delay: seconds per step it loses there.
        steps, ranks: how much was compared.
        first, last: optimizer steps compared.
    """

    rank: int
    delay: float
    held: float
    phase: str
    phase_delay: float
    steps: int
    ranks: int
    first: int
    last: int


def frontier(seconds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Who stands at the front of each phase boundary, and by how much.

    At a boundary the frontier is the largest cumulative time of any rank; its
    increments add up to the step exactly, however ranks wait for each other
    (StageFrontier, arXiv 2606.06751).

    Args:
        seconds: steps x ranks x phases, phases in the order they run.

    Returns:
        Index of the leading rank and its lead over the median rank (of an even
        number the earlier one: it waits) in seconds, both steps x phases.
    """
    reached = seconds.cumsum(axis=2)
    leader = reached.argmax(axis=1)
    return leader, reached.max(axis=1) - _median(reached)


def _alone(seconds: np.ndarray, boundary: np.ndarray) -> np.ndarray:
    """In which steps one rank only comes last to the boundary."""
    before = np.arange(seconds.shape[2]) <= boundary[:, None, None]
    reached = np.sort((seconds * before).sum(axis=2), axis=1)
    return np.asarray(reached[:, -1] - reached[:, -2] > _TIE * reached[:, -1])


def _median(of_ranks: np.ndarray) -> np.ndarray:
    middle = np.sort(of_ranks, axis=1)[:, (of_ranks.shape[1] - 1) // 2]
    return np.asarray(middle)


def straggler(phases: pd.DataFrame) -> Straggler | None:
    """The slowest rank of a table of phases.

    None if fewer than two ranks can be compared, or none is ever the only last one: where
    several arrive last together nobody waits for one of them.
    """
    cube = _cube(phases)
    if cube is None:
        return None
    seconds, steps, ranks, names = cube
    leader, lead = frontier(seconds)
    boundary = lead.argmax(axis=1)  # just before the others wait
    rows = np.arange(len(steps))
    alone = _alone(seconds, boundary)
    last = np.where(alone, leader[rows, boundary], -1)
    if not alone.any():
        return None
    slow = int(np.bincount(last[alone], minlength=len(ranks)).argmax())
    behind = last == slow
    own = seconds[:, slow, :] - _median(seconds)
    before = np.arange(len(names)) <= boundary[:, None]
    loss = (own * before)[behind].sum(axis=0) / len(steps)
    worst = int(loss.argmax())
    return Straggler(
        rank=int(ranks[slow]),
        delay=float(lead[rows, boundary][behind].sum() / len(steps)),
        held=float(behind.mean()),
        phase=str(names[worst]),
        phase_delay=float(loss[worst]),
        steps=len(steps),
        ranks=len(ranks),
        first=int(steps[0]),
        last=int(steps[-1]),
    )


def _cube(
    phases: pd.DataFrame,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[str]] | None:
    """Self seconds as steps x ranks x phases, of steps that all these ranks report."""
    told = phases["rank"].notna() & phases["step"].notna() & phases["self_seconds"].notna()
    rows = compared_steps(where(phases, told))
    steps, step = np.unique(whole(rows["step"]), return_inverse=True)
    ranks, rank = np.unique(whole(rows["rank"]), return_inverse=True)
    phase, names = pd.factorize(rows["name"].astype("str"))
    shape = (len(steps), len(ranks), len(names))
    visit = step * shape[1] + rank
    full = np.bincount(visit, minlength=shape[0] * shape[1]).reshape(shape[:2]).all(axis=1)
    if len(ranks) < 2 or not full.any():
        return None
    own = np.bincount(visit * shape[2] + phase, numbers(rows["self_seconds"]), math.prod(shape))
    meets = rows["class"].isin(_MEETING).to_numpy()
    meets = meets[np.unique(phase, return_index=True)[1]]
    order = np.argsort(meets, kind="stable")
    cube = own.reshape(shape)[full][:, :, order]
    return cube, steps[full], ranks, [str(names[i]) for i in order]


def compared_steps(phases: pd.DataFrame) -> pd.DataFrame:
    """Phases of the steps that most ranks tell, evenly spread over the run."""
    step = plain(phases["step"])
    steps, ranks = np.unique(visits(step, plain(phases["rank"])), return_counts=True)
    told = steps[ranks == ranks.max(initial=0)]
    told = told[:: max(1, -(-len(told) // _MOST_STEPS))]
    heads = runs(step)
    chosen = np.repeat(np.isin(step[heads], told), np.diff(heads, append=len(step)))
    return where(phases, chosen)
