"""Who the others wait for: ranks compared step by step."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from dsprof.events import Class
from dsprof.run.stretches import Stretches
from dsprof.run.table import numbers, places, plain, runs, where

#: Where ranks meet: who comes last waits least there. A table of phases keeps no order in
#: time, so a rank's own work is put first and what waits for others last.
_MEETING = (Class.COMMUNICATION, Class.WAIT)

_TIE = 1e-9  # of the time reached: what adding floats in another order changes
_WORTH = 0.01  # of a step: less in no timer is no rank's secret
_MOST_STEPS = 2_000  # evenly spread over the run; more tells nothing new


@dataclass(frozen=True, slots=True)
class Straggler:
    """The rank that is behind most often.

    Attributes:
        rank: the global rank.
        delay: seconds per step the median rank waits for it, mean over all steps.
        held: part of the steps in which it is the last one.
        next: the same of the rank that is it second most often.
        phase: of its own work, where it loses most against the median rank; "" if it loses
            most where nothing is timed.
        phase_delay: seconds per step it loses there.
        meeting: where the others wait for it; "" if that is not timed.
        steps, ranks: how much was compared.
        first, last: optimizer steps compared.
    """

    rank: int
    delay: float
    held: float
    next: float
    phase: str
    phase_delay: float
    meeting: str
    steps: int
    ranks: int
    first: int
    last: int

    @property
    def above_chance(self) -> float:
        """Standard errors by which it is last more often than the next one is."""
        both = (self.held + self.next) * self.steps
        return (self.held - self.next) * self.steps / math.sqrt(both) if both else 0.0

    @property
    def chance(self) -> float:
        """How likely some rank is last so often, or more, where each step is anyone's.

        The tail of a binomial distribution, times the ranks: it might have been any of them.
        """
        last = round(self.held * self.steps)
        others = self.ranks - 1
        ways = sum(
            math.comb(self.steps, often) * others ** (self.steps - often)
            for often in range(last, self.steps + 1)
        )
        return min(1.0, float(self.ranks * ways / self.ranks**self.steps))

    @property
    def place(self) -> str:
        return f"in {self.phase}" if self.phase else "outside of what is timed"


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


def _median(of_ranks: np.ndarray) -> np.ndarray:
    middle = np.sort(of_ranks, axis=1)[:, (of_ranks.shape[1] - 1) // 2]
    return np.asarray(middle)


@dataclass(frozen=True, slots=True)
class _Last:
    """The rank at index `rank`: in which steps, and by how much per step it is the last one."""

    rank: int
    steps: np.ndarray
    next: float
    delay: float


@dataclass(frozen=True, slots=True)
class _Arrivals:
    """When each rank comes to where the others wait: steps x ranks, seconds, larger is later.

    `before` are the phases that lie in front of it, steps x phases.
    """

    at: np.ndarray
    before: np.ndarray

    def last(self) -> _Last | None:
        """Who is the only last one most often.

        Steps in which it comes before the others count against it: who is early as often as
        late costs nothing that another rank would not.
        """
        late = np.sort(self.at, axis=1)
        alone = late[:, -1] - late[:, -2] > _TIE * np.abs(late[:, -1])
        if not alone.any():
            return None
        who = np.where(alone, self.at.argmax(axis=1), -1)
        often = np.bincount(who[alone], minlength=self.at.shape[1])
        slow = int(often.argmax())
        others = _median(np.delete(self.at, slow, axis=1))
        return _Last(
            slow,
            who == slow,
            next=float(np.sort(often)[-2] / len(who)),
            delay=float((self.at[:, slow] - others).mean()),
        )


def _by_work(seconds: np.ndarray) -> _Arrivals:
    """By their own work, at the boundary where one is furthest ahead of the median rank."""
    _, lead = frontier(seconds)
    before = np.arange(seconds.shape[2]) <= lead.argmax(axis=1)[:, None]
    return _Arrivals((seconds * before[:, None, :]).sum(axis=2), before)


def _by_waiting(seconds: np.ndarray, own: int) -> _Arrivals:
    """By how long they wait at what they do together: who comes last waits least.

    This sees also what no timer of the late rank holds.
    """
    before = np.broadcast_to(np.arange(seconds.shape[2]) < own, seconds.shape[::2])
    return _Arrivals(-seconds[:, :, own:].sum(axis=2), before)


def straggler(phases: pd.DataFrame) -> Straggler | None:
    """The slowest rank of a table of phases.

    None if fewer than two ranks can be compared, or none is ever the only last one: where
    several arrive last together nobody waits for one of them.
    """
    cube = _cube(phases)
    if cube is None:
        return None
    seconds, steps, ranks, names, own = cube
    ways = [_by_work(seconds[:, :, :own])] if own else []
    if own < len(names):
        ways.append(_by_waiting(seconds, own))
    found = [(last, way) for way in ways if (last := way.last())]
    if not found:
        return None
    last, way = max(found, key=lambda one: one[0].delay)
    behind, delay = last.steps, last.delay
    more = seconds[:, last.rank, :] - _median(seconds)
    loss = (more[:, :own] * way.before[:, :own])[behind].sum(axis=0) / len(steps)
    others = _median(np.delete(seconds, last.rank, axis=1))  # of two it waits least itself
    waits = (others - seconds[:, last.rank, :])[:, own:][behind].sum(axis=0)
    worst = int(loss.argmax()) if own else 0
    timed = bool(own) and loss[worst] * 2 > delay
    return Straggler(
        rank=int(ranks[last.rank]),
        delay=delay,
        held=float(behind.mean()),
        next=last.next,
        phase=str(names[worst]) if timed else "",
        phase_delay=float(loss[worst]) if timed else delay - float(loss.sum()),
        meeting=str(names[own + int(waits.argmax())]) if own < len(names) else "",
        steps=len(steps),
        ranks=len(ranks),
        first=int(steps[0]),
        last=int(steps[-1]),
    )


def untimed(phases: pd.DataFrame, steps: pd.DataFrame) -> pd.Series[float] | None:
    """Seconds per step that none of a rank's timers holds, by rank; None where that is next to
    nothing, or how long the steps take is not known.

    A rank that is late there would else look like the quickest of all.

    Args:
        phases: of ranks, in some of `steps`.
        steps: which all ranks end together, so that each takes as long for all of them.
    """
    told = where(phases, phases["rank"].notna() & phases["self_seconds"].notna())
    lasting = steps.drop_duplicates("step").set_index("step")["seconds"]
    whole = lasting.reindex(np.unique(plain(told["step"]))).mean()
    by_rank = told.assign(rank=told["rank"].astype("int64")).groupby("rank")
    rest = whole - by_rank["self_seconds"].sum() / by_rank["step"].nunique()
    rest = rest.clip(lower=0.0)
    return rest if len(rest) and rest.max() >= _WORTH * whole else None


def _cube(
    phases: pd.DataFrame,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[str], int] | None:
    """Self seconds as steps x ranks x phases, of steps that all these ranks report.

    With them steps, ranks and phases; of the phases, how many are a rank's own work: the first.
    """
    told = phases["rank"].notna() & phases["step"].notna() & phases["self_seconds"].notna()
    rows = compared_steps(where(phases, told))
    (steps, step), (ranks, rank) = (places(plain(rows[name])) for name in ("step", "rank"))
    phase, names = pd.factorize(rows["name"])
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
    return cube, steps[full], ranks, [str(names[i]) for i in order], int((~meets).sum())


def compared_steps(phases: pd.DataFrame) -> pd.DataFrame:
    """Phases of the steps that most ranks tell, evenly spread over the run."""
    step = plain(phases["step"])
    heads = runs(step)
    steps, place = np.unique(step[heads], return_inverse=True)
    ranks = Stretches(heads, place, len(step), len(steps)).ranks(phases["rank"])
    told = steps[ranks == ranks.max(initial=0)]
    told = told[:: max(1, -(-len(told) // _MOST_STEPS))]
    chosen = np.repeat(np.isin(step[heads], told), np.diff(heads, append=len(step)))
    return where(phases, chosen)
