"""Speed over time: runs that become slower."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from dsprof.analysis.breakdown import CLASSES
from dsprof.analysis.chance import chance
from dsprof.analysis.trends import Floats, Level, levels
from dsprof.findings.facts import Facts
from dsprof.findings.finding import Advice, Finding
from dsprof.findings.flushes import flushed_in, less_memory
from dsprof.findings.launches import slower_launch
from dsprof.findings.proofs import step_proof
from dsprof.findings.thresholds import (
    EVIDENCE_STEPS,
    SLOWDOWN_CHANCE,
    SLOWDOWN_CRITICAL,
    SLOWDOWN_RECOVERED,
    SLOWDOWN_WARNING,
    SPIKES_CRITICAL,
    SPIKES_WARNING,
    grade,
)
from dsprof.units import format_seconds, format_share


def slowdown(facts: Facts) -> list[Finding] | str:
    """From some step on, or in a later launch, steps take longer than before."""
    within, between = _within(facts), slower_launch(facts)
    return between or within if isinstance(within, str) else [*within, *between]


def _within(facts: Facts) -> list[Finding] | str:
    """Of one launch.

    Gain: up to all of it. Nothing, where the new work is wanted (a curriculum, longer texts).
    """
    steps = _comparable(facts)
    if len(steps) < EVIDENCE_STEPS:
        return too_few(steps)
    seconds = steps["seconds"].to_numpy(dtype=float)
    found = levels(seconds)
    rise = _worst_rise(found)
    if rise is None or _by_chance(seconds, found, rise):
        return []
    before, after, stop = rise
    ratio = after.median / before.median - 1
    first, last = steps.iloc[after.start], steps.iloc[stop - 1]
    cost = float((seconds[after.start : stop] - before.median).sum()) / len(steps)
    share, lasts = cost / float(seconds.mean()), stop == len(steps)
    again = _as_long_before(found, before, after)
    climbs = any(after.start < level.start < after.stop for level in found)
    severity = (
        grade(ratio, SLOWDOWN_WARNING, SLOWDOWN_CRITICAL)
        if lasts
        else grade(share, SPIKES_WARNING, SPIKES_CRITICAL)
    )
    if severity is None:
        return []
    rows = np.arange(len(steps))
    flushed = flushed_in(facts, steps, (rows >= after.start) & (rows < stop))
    lasting = "to the end" if lasts else f"until step {int(last['step']):,}"
    return [
        Finding(
            rule="slowdown",
            severity=severity,
            title=f"From step {int(first['step']):,} on, a step takes "
            f"{'up to ' if climbs else ''}{format_share(ratio)} longer"
            + (", and not for the first time" if again else ""),
            summary=f"{format_seconds(before.median)} per step became "
            f"{format_seconds(after.median)}{' little by little' if climbs else ''}, {lasting} "
            f"({stop - after.start:,} of {len(steps):,} printed steps)."
            + grown(
                steps.iloc[before.start : before.stop],
                steps.iloc[after.start : after.stop],
                after.median - before.median,
            )
            + flushed
            + _comes_and_goes(steps, again)
            + ("" if _clear(before, stop - after.start) else _SHORT),
            share=share,
            seconds_per_step=cost,
            steps=(int(first["step"]), int(last["step"])),
            evidence=tuple(
                step_proof(facts, steps.iloc[row]) for row in (after.start - 1, after.start)
            ),
            advice=less_memory(facts) if flushed else (_LOOK,),
            gain=(0.0, cost),
            confidence="high" if _clear(before, stop - after.start) else "medium",
        )
    ]


_LOOK: Final = Advice(
    "GPU clocks and neighbours at that time",
    "",
    "nvidia-smi -q -d PERFORMANCE",
    "thermal throttling, a shared node or network, or a longer curriculum start at one step and "
    "stay",
)

_SHORT = " One of the two levels is short, hence medium confidence."


def _clear(before: Level, rows: int) -> bool:
    return min(before.stop - before.start, rows) >= EVIDENCE_STEPS


def _comparable(facts: Facts) -> pd.DataFrame:
    """Steps that did all of their work: one that skipped its update is shorter."""
    steps = facts.series
    steps = steps[~steps["overflow"].fillna(False).astype(bool)]
    return steps[steps["seconds"] > 0]


def too_few(steps: pd.DataFrame) -> str:
    return f"{len(steps)} timed steps, {EVIDENCE_STEPS} needed"


def _worst_rise(found: list[Level]) -> tuple[Level, Level, int] | None:
    """The rise that cost most: level before, highest after, and the row at which it is over.

    Several levels that rise one after the other are one: a drift climbs in stairs.
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
        climb = [level for level in found[place + 1 :] if level.stop <= calm]
        cost = sum((level.median - before.median) * (level.stop - level.start) for level in climb)
        if cost > most and height >= SLOWDOWN_WARNING * before.median:
            after = Level(climb[0].start, found[top].stop, found[top].median)
            worst, most = (before, after, calm), cost
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


def _by_chance(seconds: Floats, found: list[Level], rise: tuple[Level, Level, int]) -> bool:
    """Whether the run's own noise makes such rises."""
    own = np.concatenate([np.full(level.stop - level.start, level.median) for level in found])
    _, after, stop = rise
    return chance(seconds, seconds / own - 1, after.start, stop) > SLOWDOWN_CHANCE


def grown(before: pd.DataFrame, after: pd.DataFrame, rise: float) -> str:
    """Which class of time grew most, where classes are known. `rise`: seconds a step."""
    known = [name for name in CLASSES if before[name].notna().any() or after[name].notna().any()]
    if len(known) < 2:
        return " The source does not time what grew."
    more = after[known].fillna(0.0).mean() - before[known].fillna(0.0).mean()
    name = str(more.idxmax())
    share = float(more[name]) / rise
    return (
        f" Of what was added, {format_share(min(share, 1.0))} is "
        f"{'time no timer explains' if name == 'other' else name}."
    )
