"""What passes between the steps that DeepSpeed's rates count, where a log has no timers."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from dsprof.analysis.breakdown import weights_of
from dsprof.analysis.rates import batch_of
from dsprof.analysis.trends import Floats, spikes
from dsprof.events import Kind
from dsprof.findings.advice import record, set_to
from dsprof.findings.evaluations import evaluating_inside
from dsprof.findings.facts import Facts
from dsprof.findings.finding import Advice, Evidence, Finding
from dsprof.findings.places import look_at
from dsprof.findings.proofs import average_proof, by_the_clock, step_proof
from dsprof.findings.rhythm import period_of, steps_apart
from dsprof.findings.saves import saving_inside
from dsprof.findings.spikes import LOOK
from dsprof.findings.thresholds import (
    SPIKE_RATIO,
    UNACCOUNTED_CRITICAL,
    UNACCOUNTED_WARNING,
    WORTH_NAMING,
    grade,
)
from dsprof.findings.untimed import EVERY_PHASE
from dsprof.run.durations import called
from dsprof.run.seldom import SELDOM
from dsprof.run.table import STEP, among, of_kind, within
from dsprof.units import format_seconds, format_share

_OF_DEEPSPEED: Final = (
    "deepspeed.throughput",
    "deepspeed.throughput_07",
    "deepspeed.throughput_cut",
)
_SYNCHRONIZED: Final = "timers.throughput.synchronized"
#: First steps of a launch that its mean rate leaves out.
_UNCOUNTED: Final = 2
#: Share of it from which on those that stick out hold it.
_MOST: Final = 0.8
_WHERE: Final = "between a step and the next forward"
_LOADING: Final = Advice(
    "DataLoader(num_workers=...)",
    "",
    "more, if the script loads there what it trains with",
    "workers load the next batches while this one is trained",
)


class _Between(NamedTuple):
    """Of each judged row: its seconds by the clock, those between steps, and how many it covers."""

    whole: Floats
    seconds: Floats
    weights: Floats

    @property
    def cost(self) -> float:
        """Seconds of the mean step that pass between steps."""
        return float(np.average(self.seconds, weights=self.weights))


def between_steps(facts: Facts) -> Finding | None:
    """ThroughputTimer counts from the start of forward, or of the engine's own loader, to the end
    of the engine's step, on a clock that waits for the GPU; time stamps count all. None where that
    is nothing to speak of.

    Source: ThroughputTimer and DeepSpeedEngine of DeepSpeed 0.7 to 0.19.
    """
    found = _between(facts)
    if found is None:
        return None
    whole, cost = float(np.average(found.whole, weights=found.weights)), found.cost
    severity = grade(cost / whole, UNACCOUNTED_WARNING, UNACCOUNTED_CRITICAL)
    if severity is None:
        return None
    rows, share = _that_hold_it(found), format_share(cost / whole)
    return Finding(
        rule="unaccounted-time",
        severity=severity,
        title=f"{share} of the time passes between DeepSpeed's steps, where its rates do not count"
        + _seldom(facts.steps, rows),
        summary=f"DeepSpeed's samples/s count from forward() to the end of step(): "
        f"{format_seconds(whole - cost)}. By the time stamps it takes {format_seconds(whole)}, in "
        f"the mean of {len(facts.steps):,} {called(facts.steps)}: {format_seconds(cost)} of that "
        "the script spends between step() and the next forward(), such as in loading data, "
        "evaluating, saving or logging."
        + (_longest(facts.steps, found, rows) if len(rows) else "")
        + " Medium confidence: what it is can only be guessed.",
        share=cost / whole,
        seconds_per_step=cost,
        evidence=(*average_proof(facts), _rate(facts)),
        advice=(*_of_script(rows), *_to_see(facts)),
        confidence="medium",
    )


def part_between(facts: Facts, seconds: float) -> tuple[str, tuple[Advice, ...]]:
    """How much of `seconds` that no timer explains passes between steps, in a sentence, and what to
    do if that is most of it; nothing if it is not known."""
    found = _between(facts)
    if found is None or found.cost < WORTH_NAMING * seconds:
        return "", ()
    rows, cost = _that_hold_it(found), min(found.cost, seconds)
    rest = seconds - cost
    said = (
        f" DeepSpeed's samples/s count from forward() to the end of step(): {format_seconds(cost)} "
        f"of it passes between step() and the next forward(){_seldom(facts.steps, rows)}, such as "
        "in loading data, evaluating, saving or logging"
    )
    if rest >= WORTH_NAMING * seconds:
        said += f"; {format_seconds(rest)} between forward() and the end of step()"
    return f"{said}.", _of_script(rows) if cost > rest else ()


def _of_script(rows: npt.NDArray[np.intp]) -> tuple[Advice, ...]:
    return (LOOK,) if len(rows) else (_LOADING,)


def _between(facts: Facts) -> _Between | None:
    """None unless rates of DeepSpeed's and time stamps tell the seconds of the same steps."""
    steps = facts.steps
    batch = batch_of(facts.run, steps)
    if batch is None or not by_the_clock(facts) or SELDOM in facts.doubts:
        return None
    if not are_deepspeeds(facts) or set_to(facts, _SYNCHRONIZED) is False:
        return None
    rated = batch / steps["samples_per_second"].to_numpy(dtype=float)
    rated *= max(1.0, _of_all(facts, batch) / float(rated.mean()))
    whole = steps["seconds"].to_numpy(dtype=float)
    apart = saving_inside(facts, steps) + evaluating_inside(facts, steps)
    weights = np.asarray(weights_of(steps), np.float64)
    return _Between(whole, whole - rated - apart, weights) if np.isfinite(rated).all() else None


def _of_all(facts: Facts, batch: float) -> float:
    """Seconds of a step by the mean rate so far, from the first to the last of the judged steps:
    those between them, which print none of their own, may be slower. 0 if it is not told."""
    means = of_kind(facts.run.told, Kind.METRIC, "samples_per_second_mean")
    means = within(facts.steps, means[means["value"].gt(0)], *STEP)
    if len(means) < 2:
        return 0.0
    counted = means["step"].to_numpy(dtype=float) - _UNCOUNTED
    passed = (batch * counted / means["value"].to_numpy(dtype=float))[[0, -1]]
    return float(np.diff(passed)[0] / max(counted[-1] - counted[0], 1.0))


def are_deepspeeds(facts: Facts) -> bool:
    """Whether all rates are of its ThroughputTimer."""
    rates = of_kind(facts.run.told, Kind.METRIC, "samples_per_second")
    return len(rates) > 0 and bool(among(rates["pattern"], _OF_DEEPSPEED).all())


def _that_hold_it(found: _Between) -> npt.NDArray[np.intp]:
    """Rows that stick out, if they hold nearly all of it."""
    rows = spikes(found.whole, SPIKE_RATIO)
    beyond = found.seconds * found.weights
    return rows if beyond[rows].sum() >= _MOST * beyond.sum() else rows[:0]


def _seldom(steps: pd.DataFrame, rows: npt.NDArray[np.intp]) -> str:
    if not len(rows):
        return ""
    distance = steps_apart(steps, period_of(rows))
    every = f", one every {distance:,} steps" if distance else ""
    return f", nearly all of it in {len(rows):,} of {len(steps):,} {called(steps)}{every}"


def _longest(steps: pd.DataFrame, found: _Between, rows: npt.NDArray[np.intp]) -> str:
    most = rows[np.argmax(found.seconds[rows])]
    usual = float(np.median(np.delete(found.whole, rows)))
    return (
        f" The longest of these, up to step {int(steps['step'].iloc[most]):,}, took "
        f"{format_seconds(float(found.whole[most]))} a step, the others {format_seconds(usual)}."
    )


def _rate(facts: Facts) -> Evidence:
    """The last rate among the judged steps."""
    return step_proof(facts, facts.own_steps.loc[facts.steps.index[-1]])


def _to_see(facts: Facts) -> tuple[Advice, ...]:
    return record(facts, EVERY_PHASE) or (look_at(_WHERE),)
