"""Speed over time: runs that become slower."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pandas as pd

from dsprof.analysis.chance import chance
from dsprof.analysis.ranks import Straggler
from dsprof.analysis.trends import Floats, Level, climb, levels, without_spikes
from dsprof.events import Class, Severity
from dsprof.findings.facts import Facts, once
from dsprof.findings.finding import Finding
from dsprof.findings.over_time.growth import Grown, grown
from dsprof.findings.over_time.launches import slower_launch
from dsprof.findings.over_time.look import LITTLE_BY_LITTLE, look, own_work
from dsprof.findings.over_time.work import work_beside
from dsprof.findings.proofs import step_proof
from dsprof.findings.ranks.accounted import late_seconds
from dsprof.findings.ranks.lateness import late_in, waited
from dsprof.findings.resources.flushes import flushed_in, less_memory
from dsprof.findings.seen import code_seen
from dsprof.findings.thresholds import (
    EVIDENCE_STEPS,
    MUCH_SLOWER,
    RISES_ALIKE,
    SLOWDOWN_BEGUN,
    SLOWDOWN_CHANCE,
    SLOWDOWN_CRITICAL,
    SLOWDOWN_RECOVERED,
    SLOWDOWN_WARNING,
    SPIKE_RATIO,
    SPIKES_CRITICAL,
    SPIKES_WARNING,
    WAITING_EXPLAINS,
    grade,
)
from dsprof.run.steps.durations import called, window
from dsprof.units import format_seconds, format_share


@once
def slowdown(facts: Facts) -> list[Finding] | str:
    """From some step on, or in a later launch, steps take longer than before."""
    within, between = _within(facts), slower_launch(facts)
    if isinstance(within, str) and not between:
        return within
    found = between if isinstance(within, str) else [*within, *between]
    return [_as_planned(facts, one) for one in found]


def late_later(facts: Facts) -> float:
    """Seconds per step for which the mean rank waits for one that became late, as `slowdown` says;
    not what other findings account for: `straggler-rank`, or waiting for another's input.
    """
    found, ranks = slowdown(facts), facts.compared["rank"].nunique()
    if isinstance(found, str) or late_seconds(facts):
        return 0.0
    return sum(
        (one.seconds_per_step or 0.0) * (ranks - len(one.ranks)) / ranks
        for one in found
        if one.ranks and one.phase != Class.DATA
    )


#: What gives later steps more to compute: longer samples, or more of their tokens.
_GROWING: Final = (
    "curriculum_learning",
    "data_efficiency.data_sampling.curriculum_learning",
    "data_efficiency.data_routing.random_ltd",
)


def _as_planned(facts: Facts, one: Finding) -> Finding:
    """A note without a price, where the job asks for longer steps."""
    grows = next((key for key in _GROWING if facts.setting(f"{key}.enabled") is True), None)
    if grows is None or one.severity is Severity.INFO:
        return one
    return _meant(
        one,
        f"{grows.rpartition('.')[2]} is on",
        f"The configuration turns {grows} on, which gives later steps more to compute",
    )


def _meant(one: Finding, briefly: str, why: str) -> Finding:
    return replace(
        one,
        severity=Severity.INFO,
        title=f"{one.title}: {briefly}",
        summary=f"{one.summary} {why}: they are meant to take longer. This source does not say "
        "whether anything else slows them down.",
        share=None,
        seconds_per_step=None,
        advice=(),
        gain=None,
    )


@dataclass(frozen=True, slots=True)
class _Rise:
    """A level of steps, the highest one behind it, and the row at which that is over."""

    before: Level
    after: Level
    stop: int

    @property
    def many(self) -> int:
        """Steps until it is over."""
        return self.stop - self.after.start

    @property
    def height(self) -> float:
        """As a part of the level before."""
        return self.after.median / self.before.median - 1

    @property
    def is_clear(self) -> bool:
        """Whether both levels are long."""
        return min(self.before.stop - self.before.start, self.many) >= EVIDENCE_STEPS

    @property
    def critical(self) -> float:
        """How much higher it must be; a few steps may be over soon, and have cost little."""
        return SLOWDOWN_CRITICAL if self.many >= EVIDENCE_STEPS else MUCH_SLOWER - 1


def _within(facts: Facts) -> list[Finding] | str:
    """Of one launch.

    Gain: up to all of it. Nothing, where the new work is wanted (longer texts).
    """
    steps = _comparable(facts)
    seconds = steps["seconds"].to_numpy(dtype=float)
    few = len(steps) < EVIDENCE_STEPS
    known = climb(seconds) if few else levels(seconds)
    rise = _worst_rise(known)
    if few and (rise is None or rise.height < SLOWDOWN_CRITICAL):
        return too_few(steps)
    if rise is None or (not few and _by_chance(seconds, known, rise)):
        return []
    after, stop = rise.after, rise.stop
    work = work_beside(facts, steps, rise.before, after)
    meant = rise.before.median * work.times
    cost = float((_without_spikes(seconds, after.start, stop) - meant[after.start : stop]).sum())
    cost /= len(steps)
    severity = (
        grade(after.median / meant[after.stop - 1] - 1, SLOWDOWN_WARNING, rise.critical)
        if stop == len(steps)
        else grade(cost / float(seconds.mean()), SPIKES_WARNING, SPIKES_CRITICAL)
    )
    if severity is None and not work.said:
        return []
    found = _found(facts, steps, known, rise, cost=cost, work=work.said, severity=severity)
    return [
        found if severity else _meant(found, "it computes more", "Later steps have more to compute")
    ]


def _like_a_sum(facts: Facts, seconds: Floats) -> str:
    """Words for few steps that grow by the same again and again, and by no more than the first."""
    rises = np.diff(seconds)
    alike = 0 < rises.max() <= RISES_ALIKE * min(rises.min(), seconds[0])
    if len(seconds) >= EVIDENCE_STEPS or not alike or facts.run.told["at"].notna().any():
        return ""
    return (
        f" Each is longer than the one before by about the same, {format_seconds(rises.mean())}: "
        "so grows a timer that is never reset, too. Time stamps on the lines would tell; hence "
        "low confidence."
    )


def _without_spikes(seconds: Floats, start: int, stop: int) -> Floats:
    """The steps of a rise, those that stick out set right; what they cost is told by step-spikes.

    A short rise that is over may be nothing but such steps. One that lasts to the end sticks out
    of the steps before it, too, if it is short, but is a new level: only its own steps tell what
    sticks out of that.
    """
    if stop == len(seconds):
        return without_spikes(seconds[start:], SPIKE_RATIO)
    return without_spikes(seconds, SPIKE_RATIO)[start:stop]


def _found(
    facts: Facts,
    steps: pd.DataFrame,
    known: list[Level],
    rise: _Rise,
    *,
    cost: float,
    work: str,
    severity: Severity | None,
) -> Finding:
    """The rise in words; `work` says what is known of more work in the later steps."""
    before, after = rise.before, rise.after
    again = _as_long_before(known, before, after)
    climbs = any(after.start < level.start < after.stop for level in known)
    rows = np.arange(len(steps))
    flushed = flushed_in(facts, steps, (rows >= after.start) & (rows < rise.stop))
    late = _late(facts, steps, rise)
    seconds = steps["seconds"].to_numpy(dtype=float)
    alike = _like_a_sum(facts, seconds)
    longer = (
        Grown()
        if late
        else grown(facts, *(steps.iloc[one.start : one.stop] for one in (before, after)))
    )
    return Finding(
        rule="slowdown",
        severity=severity or Severity.INFO,
        title=_title(steps, rise, climbs=climbs)
        + (", more than what it computes" if work and severity else "")
        + (", and not for the first time" if again else "")
        + (f": {late.who} {'are' if len(late.group) > 1 else 'is'} late" if late else ""),
        summary=_became(facts, steps, rise, climbs=climbs)
        + (waited(facts, late, "the later ones") if late else longer.said)
        + work
        + flushed
        + _comes_and_goes(steps, again)
        + (alike or ("" if rise.is_clear else _SHORT)),
        share=cost / max(float(seconds.mean()), facts.average or 0.0),
        seconds_per_step=cost,
        ranks=late.group if late else (),
        phase=(late.phase or None) if late else None,
        steps=(int(steps["step"].iloc[after.start]), int(steps["step"].iloc[rise.stop - 1])),
        evidence=(
            *(step_proof(facts, steps.iloc[row]) for row in _shown(seconds, rise, climbs)),
            *code_seen.proof(longer.code),
        ),
        advice=less_memory(facts)
        if flushed
        else (
            *code_seen.change(longer.code),
            *(() if late else own_work(steps, before, after) or (LITTLE_BY_LITTLE,) * climbs),
            *look(facts, late, comes_and_goes=climbs or bool(again)),
        ),
        gain=(0.0, cost),
        confidence="low" if alike else "high" if rise.is_clear else "medium",
    )


def _shown(seconds: Floats, rise: _Rise, climbs: bool) -> tuple[int, int]:
    """The rows on both sides of a jump; of a climb, the most usual ones of its two ends."""
    if not climbs:
        return rise.after.start - 1, rise.after.start
    before, after = (
        level.start + int(np.abs(seconds[level.start : level.stop] - level.median).argmin())
        for level in (rise.before, rise.after)
    )
    return before, after


def _title(steps: pd.DataFrame, rise: _Rise, *, climbs: bool) -> str:
    """`From step 31 on, a step takes 40 % longer`."""
    first, last = (int(steps["step"].iloc[row]) for row in (rise.after.start, rise.stop - 1))
    until = "on" if rise.stop == len(steps) else f"to {last:,}"
    more = format_share(rise.height)
    return f"From step {first:,} {until}, a step takes {'up to ' if climbs else ''}{more} longer"


def _became(facts: Facts, steps: pd.DataFrame, rise: _Rise, *, climbs: bool) -> str:
    """The seconds of both levels, and how long the higher one lasted."""
    last = int(steps["step"].iloc[rise.stop - 1])
    lasting = "to the end" if rise.stop == len(steps) else f"until step {last:,}"
    return (
        f"{format_seconds(rise.before.median)} per step became {format_seconds(rise.after.median)}"
        f"{' little by little' if climbs else ''} in the median, {lasting} "
        f"({rise.many:,} of {len(steps):,} {_rows(facts, steps)})."
    )


def _rows(facts: Facts, steps: pd.DataFrame) -> str:
    """`printed steps`, or `windows of 10 steps`."""
    return f"{facts.run.steps_were} steps" if window(steps) == 1 else called(steps)


def _late(facts: Facts, steps: pd.DataFrame, rise: _Rise) -> Straggler | None:
    """The rank that the others wait for in the longer steps, if it was not as late before."""
    before, after = rise.before, rise.after
    height = after.median - before.median
    late = late_in(facts, steps.iloc[after.start : after.stop], height)
    earlier = late_in(facts, steps.iloc[before.start : before.stop], 0.0)
    if late is None or earlier is None or earlier.group != late.group:
        return late
    return late if late.delay - earlier.delay >= WAITING_EXPLAINS * height else None


_SHORT = " One of the two levels is short, hence medium confidence."


def _comparable(facts: Facts) -> pd.DataFrame:
    """Steps that did all of their work: one that skipped its update is shorter."""
    steps = facts.series
    steps = steps[~steps["overflow"].fillna(False).astype(bool)]
    return steps[steps["seconds"] > 0]


def too_few(steps: pd.DataFrame) -> str:
    return f"{len(steps)} timed {called(steps, len(steps))}, {EVIDENCE_STEPS} needed"


def _worst_rise(found: list[Level]) -> _Rise | None:
    """The rise that cost most.

    Several levels that rise one after the other are one: a drift climbs in stairs. The first of
    them may be no higher yet: they are of the level before.
    """
    worst, most = None, 0.0
    for place, before in enumerate(found[:-1]):
        top = place + 1
        while top + 1 < len(found) and found[top + 1].median > found[top].median:
            top += 1
        height = found[top].median - before.median
        over = before.median + SLOWDOWN_RECOVERED * height
        behind = found[top:]
        calm = next((level.start for level in behind if level.median < over), behind[-1].stop)
        begun = before.median + SLOWDOWN_BEGUN * height
        first = next(
            (level.start for level in found[place + 1 : top] if level.median >= begun),
            found[top].start,
        )
        climb = [
            level for level in found[place + 1 :] if first <= level.start and level.stop <= calm
        ]
        cost = sum((level.median - before.median) * (level.stop - level.start) for level in climb)
        if cost > most and height >= SLOWDOWN_WARNING * before.median:
            quick = Level(before.start, first, before.median)
            after = Level(first, found[top].stop, found[top].median)
            worst, most = _Rise(quick, after, calm), cost
    return worst


def _as_long_before(found: list[Level], before: Level, after: Level) -> list[Level]:
    """Levels ahead of the quick one that were about as high as the slow one: it is a wave."""
    over = before.median + SLOWDOWN_RECOVERED * (after.median - before.median)
    return [level for level in found if level.stop <= before.start and level.median >= over]


def _comes_and_goes(steps: pd.DataFrame, again: list[Level]) -> str:
    if not again:
        return ""
    first, last = (int(steps["step"].iloc[row]) for row in (again[0].start, again[-1].stop - 1))
    return (
        f" It was about as long before, within steps {first:,} to {last:,}: it comes and goes, "
        "and does not only grow."
    )


def _by_chance(seconds: Floats, found: list[Level], rise: _Rise) -> bool:
    """Whether the run's own noise makes such rises."""
    own = np.concatenate([np.full(level.stop - level.start, level.median) for level in found])
    return chance(seconds, seconds / own - 1, rise.after.start, rise.stop) > SLOWDOWN_CHANCE
