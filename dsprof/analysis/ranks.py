"""Finds who the others wait for, a rank or a group of them, by comparing ranks step by step."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from dsprof.analysis.compared import compared_of, means, since_met
from dsprof.units import format_ranks, listed

_TIE = 1e-9  # relative: rounding errors of sums in another order
_AWAITS = 0.15  # of its delay: a late rank's own waiting below that is what meeting costs


@dataclass(frozen=True, slots=True)
class Straggler:
    """The rank that is last most often, or the ranks that are last together.

    Attributes:
        group: global ranks, in order; mostly one.
        delay: seconds per step for which the median rank waits for it, mean over all steps.
        least: the same in three of four steps, at least.
        held: share of the steps in which it is last.
        next: the same for the rank, or as many ranks, that are last second most often.
        phases: those of its own work in which it loses most of that against the median rank, the
            worst first; none if it loses most where nothing is timed.
        place_delay: seconds per step that it loses there.
        meeting: the phase in which the others wait for it; "" if that is not timed.
        awaits: seconds per step that it waits itself where another comes later still; 0 if that is
            little beside its delay.
        awaits_in: the phase in which it does so most; "" if `awaits` is 0.
        steps, ranks: how many were compared; where ranks meet in each Nth step alone, those count
            (`by_meetings`).
        first, last: the first and the last optimizer step that was compared.
    """

    group: tuple[int, ...]
    delay: float
    least: float
    held: float
    next: float
    phases: tuple[str, ...]
    place_delay: float
    meeting: str
    steps: int
    ranks: int
    first: int
    last: int
    awaits: float = 0.0
    awaits_in: str = ""
    by_meetings: bool = False

    @property
    def above_chance(self) -> float:
        """By how many standard errors it is last more often than the next rank."""
        both = (self.held + self.next) * self.steps
        return (self.held - self.next) * self.steps / math.sqrt(both) if both else 0.0

    @property
    def chance(self) -> float:
        """The probability that some rank is last at least this often if every rank is equally
        likely to be last in each step; of a group, that as many ranks are last together.

        The tail of a binomial distribution, times the number of ranks (groups) because it might
        have been any of them (Bonferroni), at most 1.
        """
        groups = math.comb(self.ranks, len(self.group))
        it, another = -math.log(groups), math.log1p(-1 / groups)
        tail = (
            math.exp(_log_ways(self.steps, last) + (last - 1) * it + (self.steps - last) * another)
            for last in range(round(self.held * self.steps), self.steps + 1)
        )
        return min(1.0, sum(tail))

    @property
    def who(self) -> str:
        return format_ranks(self.group)

    @property
    def phase(self) -> str:
        """The worst of its phases; "" if it loses most where nothing is timed."""
        return self.phases[0] if self.phases else ""

    @property
    def place(self) -> str:
        return f"in {listed(self.phases)}" if self.phases else "outside of what is timed"


def _log_ways(of: int, many: int) -> float:
    """The logarithm of the number of ways to choose `many` of them."""
    return math.lgamma(of + 1) - math.lgamma(many + 1) - math.lgamma(of - many + 1)


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
    """The rank that is last most often, or the ranks that are together, and by how much."""

    group: np.ndarray  # indices of ranks
    steps: np.ndarray  # whether it, and no other, is last [steps]
    next: float  # share of the steps in which the next rank or group is
    delay: float  # seconds per step behind the median of the others, mean over all steps
    least: float  # the same in three of four steps, at least
    middle: float  # the same of the median rank of the group: `delay` is that of its last one


@dataclass(frozen=True, slots=True)
class _Arrivals:
    """When each rank arrives where the others wait for it."""

    at: np.ndarray  # seconds, larger is later [steps x ranks]
    before: np.ndarray  # whether a phase comes before that point [steps x phases]

    def last(self) -> _Last | None:
        """The rank that is most often the only last one, or a group that is clearly apart from the
        others; None if there is no such rank.
        """
        alone, (size, gap) = self._last(1), self._widest_gap()
        together = self._last(size) if size > 1 else None
        if together is None or together.steps.mean() * 2 <= 1 or gap * 2 < together.middle:
            return alone
        return alone if alone and together.middle * 2 < alone.delay else together

    def _widest_gap(self) -> tuple[int, float]:
        """How many ranks, at most half, come after the widest gap between two arrivals, and that
        gap, in the median step. Of a majority nobody can say that it is late.
        """
        gaps = np.median(np.diff(np.sort(self.at, axis=1), axis=1), axis=0)[::-1]
        widest = int(gaps[: max(1, self.at.shape[1] // 2)].argmax())
        return widest + 1, float(gaps[widest])

    def _last(self, size: int) -> _Last | None:
        """The ranks, `size` of them, that most often all come after all others.

        Their delay is a mean over all steps, so those in which they are early reduce it: a rank
        that is early as often as late costs no more than any other.
        """
        order = np.argsort(self.at, axis=1, kind="stable")
        late = np.take_along_axis(self.at, order, axis=1)
        apart = late[:, -size] - late[:, -size - 1] > _TIE * np.abs(late[:, -1])
        if not apart.any():
            return None
        groups, which, often = np.unique(
            np.sort(order[apart, -size:], axis=1), axis=0, return_inverse=True, return_counts=True
        )
        most = int(often.argmax())
        slow, steps = groups[most], apart.copy()
        steps[apart] = which.reshape(-1) == most
        # Of two middle ones the later: it is the median of all ranks, with the late one behind it.
        others = -of_median_rank(-np.delete(self.at, slow, axis=1))
        behind = self.at[:, slow].max(axis=1) - others
        return _Last(
            slow,
            steps,
            next=float(np.sort(np.append(often, 0))[-2] / len(steps)),
            delay=float(behind.mean()),
            least=float(np.quantile(behind, 0.25)),
            middle=float((of_median_rank(self.at[:, slow]) - others).mean()),
        )


def _by_work(seconds: np.ndarray) -> _Arrivals:
    """Arrivals by the ranks' own work, at the phase boundary where the leading rank is furthest
    ahead of the median rank.
    """
    _, lead = frontier(seconds)
    before = np.arange(seconds.shape[2]) <= lead.argmax(axis=1)[:, None]
    return _Arrivals((seconds * before[:, None, :]).sum(axis=2), before)


def _felt(seconds: np.ndarray, own: int, rest: np.ndarray | float, late: _Last) -> _Last | None:
    """What the others lose by a rank that leads at some boundary, as far as they are timed where
    ranks meet: it works longer than any of them altogether, or they wait for it there.

    If their other work, or the `rest` of theirs that no phase holds, makes up for a part of the
    lead before anybody waits, the delay is what is left; None if that is less than half. What it
    waits itself at another meeting makes up for nothing.
    """
    if own == seconds.shape[2]:
        return late
    work = seconds[:, :, :own].sum(axis=2) + rest
    longer = work[:, late.group].max(axis=1) - np.delete(work, late.group, axis=1).max(axis=1)
    waits = _waited(seconds[:, :, own:], late.group)
    felt = max(float(longer.mean()), float(waits.mean(axis=0).clip(min=0.0).sum()))
    if felt * 2 < late.delay:
        return None
    delay, instead = min(late.delay, felt), back(waits)
    if instead.any():
        delay = max(delay, float(waits[:, ~instead].sum(axis=1).mean()))
    return replace(late, delay=delay, least=min(late.least, delay))


def _waited(meetings: np.ndarray, group: np.ndarray) -> np.ndarray:
    """What the median of the other ranks, on axis 1, waits longer than the last one of a group."""
    others = np.delete(meetings, group, axis=1)  # with the group in it, it would be one of two
    return np.asarray(of_median_rank(others) - meetings[:, group].min(axis=1))


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


def straggler(phases: pd.DataFrame, rest: pd.DataFrame | None = None) -> Straggler | None:
    """The straggler in a table of phases; `rest` is what these leave out (`untimed_by_step`).

    None if fewer than two ranks can be compared, if none is ever the only last one and no group is
    clearly apart from the others (if several arrive last together, nobody waits for one of them
    alone), or if nobody waits for it, as where it is early by more than it is late.
    """
    compared = compared_of(phases)
    if compared is None:
        return None
    seconds, steps, ranks, names, own = compared
    beside: np.ndarray = np.zeros_like(seconds[:, :, 0])
    if rest is not None:
        beside = rest.reindex(steps)[ranks].fillna(0.0).to_numpy()
    begins = since_met(seconds[:, :, own:].sum(axis=(1, 2)) > 0)
    seconds, beside = (means(each, begins) for each in (seconds, beside))
    ways = [_by_work(seconds[:, :, :own]), _by_all_work(seconds, own)] if own else []
    if own < len(names):
        ways.append(_by_waiting(seconds, own))
    lasts = [(last, way) for way in ways if (last := way.last())]
    felt = [(_felt(seconds, own, beside, last), way) for last, way in lasts]
    found = [(last, way) for last, way in felt if last and last.delay >= 0]
    if not found:
        return None
    enough = (1 - _AWAITS) * max(last.delay for last, _ in found)
    alike = [one for one in found if one[0].delay >= enough]
    last, way = max(alike, key=lambda one: (one[0].steps.mean(), one[0].delay))
    behind, delay = last.steps, last.delay
    its_last = last.group[way.at.take(last.group, axis=1).argmax(axis=1)]
    more = seconds[np.arange(len(seconds)), its_last] - of_median_rank(seconds)
    loss = (more[:, :own] * way.before[:, :own])[behind].sum(axis=0) / len(seconds)
    waits = _waited(seconds[:, :, own:], last.group)
    theirs, its = waits[behind].sum(axis=0), -waits.mean(axis=0)
    its[~back(waits)] = 0.0
    awaits = float(its.sum())
    worst = _most_of(loss, delay)
    return Straggler(
        group=tuple(ranks[last.group].tolist()),
        delay=delay,
        least=last.least,
        held=float(behind.mean()),
        next=last.next,
        phases=tuple(names[phase] for phase in worst),
        place_delay=float(loss[worst].sum()) if len(worst) else delay - float(loss.sum()),
        meeting=str(names[own + int(theirs.argmax())]) if own < len(names) else "",
        steps=len(seconds),
        ranks=len(ranks),
        first=int(steps[begins[0]]),
        last=int(steps[begins[-1] - 1]),
        awaits=awaits,
        awaits_in=str(names[own + int(its.argmax())]) if awaits else "",
        by_meetings=len(begins) <= len(steps),
    )


def back(waits: np.ndarray) -> np.ndarray:
    """At which meetings a late rank waits itself, so that its delay is not made up for there but
    another rank's own comes on top. Less than `_AWAITS` of its delay is what meeting costs.

    Args:
        waits: seconds that others wait longer than it [steps x meetings].
    """
    each = waits.mean(axis=0)
    return np.asarray(each < -_AWAITS * each.max(initial=0.0))


def _most_of(loss: np.ndarray, delay: float) -> np.ndarray:
    """The phases, as few as possible, with more than half of a delay; none if all together have
    not so much.
    """
    worst = np.argsort(-loss, kind="stable")
    if 2 * max(loss.sum(), loss.max(initial=0.0)) <= delay:
        return worst[:0]
    return worst[: 1 + int((2 * loss[worst].cumsum() > delay).argmax())]
