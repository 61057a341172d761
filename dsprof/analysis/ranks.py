"""Finds the straggler, the rank that the others wait for, by comparing ranks step by step."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np
import pandas as pd

from dsprof.events import Class
from dsprof.run.stretches import Stretches
from dsprof.run.table import numbers, places, plain, runs, where

#: Classes of phases in which ranks meet; the rank that arrives last waits least there. A table of
#: phases has no order in time, so a rank's own work is put first and these phases last.
_MEETING = (Class.COMMUNICATION, Class.WAIT)

_TIE = 1e-9  # relative: rounding errors of sums in another order
_WORTH = 0.01  # of a step; less untimed work than this cannot hide a straggler
_MOST_STEPS = 2_000  # evenly spread over the run; more would not change the result


@dataclass(frozen=True, slots=True)
class Straggler:
    """The rank that is last most often.

    Attributes:
        rank: global rank.
        delay: seconds per step for which the median rank waits for it, mean over all steps.
        least: the same in three of four steps, at least.
        held: share of the steps in which it is last.
        next: the same for the rank that is last second most often.
        phase: the phase of its own work in which it loses most time against the median rank; "" if
            it loses most where nothing is timed.
        phase_delay: seconds per step that it loses there.
        meeting: the phase in which the others wait for it; "" if that is not timed.
        steps, ranks: how many were compared.
        first, last: the first and the last optimizer step that was compared.
    """

    rank: int
    delay: float
    least: float
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
        """By how many standard errors it is last more often than the next rank."""
        both = (self.held + self.next) * self.steps
        return (self.held - self.next) * self.steps / math.sqrt(both) if both else 0.0

    @property
    def chance(self) -> float:
        """The probability that some rank is last at least this often if every rank is equally
        likely to be last in each step.

        The tail of a binomial distribution, times the number of ranks because it might have been
        any of them (Bonferroni), at most 1.
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
    """The rank with the largest cumulative time at each phase boundary, and its lead.

    At a boundary the frontier is the largest cumulative time of any rank. Its increments add up to
    the step exactly, however ranks wait for each other (StageFrontier, arXiv 2606.06751).

    Args:
        seconds: [steps x ranks x phases], phases in the order in which they run.

    Returns:
        The index of the leading rank, and its lead over the median rank in seconds, both
        [steps x phases].
    """
    reached = seconds.cumsum(axis=2)
    leader = reached.argmax(axis=1)
    return leader, reached.max(axis=1) - of_median_rank(reached)


def of_median_rank(seconds: np.ndarray) -> np.ndarray:
    """What the median of the ranks, on axis 1, has: the lower of two middle ones, because that one
    waits. Ranks of which nothing is known (NaN) do not count; NaN where none is.
    """
    known = np.isfinite(seconds).sum(axis=1, keepdims=True)
    middle = np.maximum((known - 1) // 2, 0)
    return np.asarray(np.take_along_axis(np.sort(seconds, axis=1), middle, axis=1).squeeze(1))


@dataclass(frozen=True, slots=True)
class _Last:
    """The rank that is last most often, and by how much."""

    rank: int  # index
    steps: np.ndarray  # whether it is the only last one [steps]
    next: float  # share of the steps in which the next rank is
    delay: float  # seconds per step behind the median of the others, mean over all steps
    least: float  # the same in three of four steps, at least


@dataclass(frozen=True, slots=True)
class _Arrivals:
    """When each rank arrives where the others wait for it."""

    at: np.ndarray  # seconds, larger is later [steps x ranks]
    before: np.ndarray  # whether a phase comes before that point [steps x phases]

    def last(self) -> _Last | None:
        """The rank that is most often the only last one; None if none ever is.

        Its delay is a mean over all steps, so those in which it is early reduce it: a rank that is
        early as often as late costs no more than any other.
        """
        late = np.sort(self.at, axis=1)
        alone = late[:, -1] - late[:, -2] > _TIE * np.abs(late[:, -1])
        if not alone.any():
            return None
        who = np.where(alone, self.at.argmax(axis=1), -1)
        often = np.bincount(who[alone], minlength=self.at.shape[1])
        slow = int(often.argmax())
        behind = self.at[:, slow] - of_median_rank(np.delete(self.at, slow, axis=1))
        return _Last(
            slow,
            who == slow,
            next=float(np.sort(often)[-2] / len(who)),
            delay=float(behind.mean()),
            least=float(np.quantile(behind, 0.25)),
        )


def _by_work(seconds: np.ndarray) -> _Arrivals:
    """Arrivals by the ranks' own work, at the phase boundary where the leading rank is furthest
    ahead of the median rank.
    """
    _, lead = frontier(seconds)
    before = np.arange(seconds.shape[2]) <= lead.argmax(axis=1)[:, None]
    return _Arrivals((seconds * before[:, None, :]).sum(axis=2), before)


def _is_felt(seconds: np.ndarray, own: int, late: _Last) -> bool:
    """Whether a rank that leads at some boundary delays the others, as far as they are timed where
    ranks meet: it works longer altogether, or they wait for it there. If its other work makes up
    for the lead before anybody waits, it is not late.
    """
    if own == seconds.shape[2]:
        return True
    work = seconds[:, :, :own].sum(axis=2)
    longer = float((work[:, late.rank] - of_median_rank(np.delete(work, late.rank, 1))).mean())
    others = of_median_rank(np.delete(seconds[:, :, own:], late.rank, axis=1))
    waits = (others - seconds[:, late.rank, own:]).mean(axis=0)
    return max(longer, float(waits.clip(min=0.0).sum())) * 2 >= late.delay


def _by_all_work(seconds: np.ndarray, own: int) -> _Arrivals:
    """Arrivals by all of the ranks' own work."""
    before = np.broadcast_to(np.arange(seconds.shape[2]) < own, seconds.shape[::2])
    return _Arrivals(seconds[:, :, :own].sum(axis=2), before)


def _by_waiting(seconds: np.ndarray, own: int) -> _Arrivals:
    """Arrivals by how long ranks wait where they meet: the rank that arrives last waits least.

    This also shows delays that no timer of the late rank includes.

    Args:
        seconds: [steps x ranks x phases].
        own: the number of phases, the first ones, that are a rank's own work.
    """
    before = np.broadcast_to(np.arange(seconds.shape[2]) < own, seconds.shape[::2])
    return _Arrivals(-seconds[:, :, own:].sum(axis=2), before)


def straggler(phases: pd.DataFrame) -> Straggler | None:
    """The straggler in a table of phases.

    None if fewer than two ranks can be compared, or if none is ever the only last one: if several
    arrive last together, nobody waits for one of them alone.
    """
    cube = _cube(phases)
    if cube is None:
        return None
    seconds, steps, ranks, names, own = cube
    ways = [_by_work(seconds[:, :, :own]), _by_all_work(seconds, own)] if own else []
    if own < len(names):
        ways.append(_by_waiting(seconds, own))
    lasts = [(last, way) for way in ways if (last := way.last())]
    found = [(last, way) for last, way in lasts if _is_felt(seconds, own, last)]
    if not found:
        return None
    last, way = max(found, key=lambda one: one[0].delay)
    behind, delay = last.steps, last.delay
    more = seconds[:, last.rank, :] - of_median_rank(seconds)
    loss = (more[:, :own] * way.before[:, :own])[behind].sum(axis=0) / len(steps)
    others = of_median_rank(np.delete(seconds, last.rank, axis=1))  # it would be the median of two
    waits = (others - seconds[:, last.rank, :])[:, own:][behind].sum(axis=0)
    worst = int(loss.argmax()) if own else 0
    timed = bool(own) and loss[worst] * 2 > delay
    return Straggler(
        rank=int(ranks[last.rank]),
        delay=delay,
        least=last.least,
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


@dataclass(frozen=True, slots=True)
class Uneven:
    """What collectives take because ranks work unequally long, whichever of them works longest.

    Attributes:
        seconds: per step, mean over all ranks, beyond the rank that is held up least.
        phase: the phase in which the rank that works longest exceeds the mean of the others most;
            "" if that explains less than half of it.
    """

    seconds: float
    phase: str


def uneven(phases: pd.DataFrame, meets: re.Pattern[str]) -> Uneven | None:
    """How much longer ranks are held up in phases that match `meets` than the one held up least.

    Ranks end a collective together, so in a step that one has worked longest. A lower bound: in a
    step of several collectives, different ranks may come last. None if ranks cannot be compared.
    """
    cube = _cube(phases)
    if cube is None:
        return None
    seconds, _, ranks, names, own = cube
    held_up = seconds[:, :, [bool(meets.match(name)) for name in names]].sum(axis=2)
    longest = held_up.argmin(axis=1)[:, None]
    more = float((held_up - np.take_along_axis(held_up, longest, axis=1)).mean())
    work = seconds[:, :, :own]
    of_it = np.take_along_axis(work, longest[:, :, None], axis=1)[:, 0]
    beyond = (of_it - (work.sum(axis=1) - of_it) / (len(ranks) - 1)).mean(axis=0)
    behind = more * len(ranks) / (len(ranks) - 1)  # the mean of the others
    worst = int(beyond.argmax()) if own else 0
    return Uneven(more, names[worst] if own and beyond[worst] * 2 > behind else "")


def untimed(phases: pd.DataFrame, steps: pd.DataFrame) -> pd.Series[float] | None:
    """Seconds per step outside of all timers, by rank; None if that is less than `_WORTH` of a step
    for all ranks, or if the duration of steps is unknown.

    Without this, a rank that is late outside of its timers would look like the fastest one.

    Args:
        phases: phases by rank, in some of `steps`.
        steps: steps that all ranks end together, so that each has one duration for all ranks.
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
    """Self seconds [steps x ranks x phases] of the steps that all ranks report; None if fewer than
    two ranks can be compared.

    Also returns the steps, the ranks, the names of the phases, and how many of these, the first
    ones, are a rank's own work.
    """
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
    meets = rows["class"].isin(_MEETING).to_numpy()
    meets = meets[np.unique(phase, return_index=True)[1]]
    order = np.argsort(meets, kind="stable")
    cube = own.reshape(shape)[:, :, order]
    return cube, steps, ranks, [str(names[i]) for i in order], int((~meets).sum())


def compared_steps(phases: pd.DataFrame) -> pd.DataFrame:
    """Phases of the steps that the largest number of ranks report, of at most about `_MOST_STEPS`
    steps evenly spread over the run.
    """
    step = plain(phases["step"])
    heads = runs(step)
    steps, place = np.unique(step[heads], return_inverse=True)
    ranks = Stretches(heads, place, len(step), len(steps)).ranks(phases["rank"])
    told = steps[ranks == ranks.max(initial=0)]
    told = told[:: max(1, -(-len(told) // _MOST_STEPS))]
    chosen = np.repeat(np.isin(step[heads], told), np.diff(heads, append=len(step)))
    return where(phases, chosen)
