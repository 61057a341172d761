"""What passes between the steps that DeepSpeed's own rates and times count."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from dsprof.analysis.breakdown import weights_of
from dsprof.analysis.trends import Floats, spikes
from dsprof.findings.advice import record
from dsprof.findings.beside.evaluations import evaluating_inside
from dsprof.findings.beside.rated import Counted, counted
from dsprof.findings.beside.saves import saving_inside
from dsprof.findings.facts import Facts
from dsprof.findings.finding import Advice, Evidence, Finding
from dsprof.findings.over_time.rhythm import period_of, steps_apart
from dsprof.findings.over_time.spikes import LOOK
from dsprof.findings.proofs import average_proof, step_proof
from dsprof.findings.seen.places import look_at
from dsprof.findings.thresholds import (
    SPIKE_RATIO,
    UNACCOUNTED_CRITICAL,
    UNACCOUNTED_WARNING,
    WORTH_NAMING,
    grade,
)
from dsprof.findings.unknown.untimed import EVERY_PHASE
from dsprof.run.steps.durations import called
from dsprof.units import format_seconds, format_share

#: Share of it from which on those that stick out hold it.
_MOST: Final = 0.8
_LOADING: Final = Advice(
    "DataLoader(num_workers=...)",
    "",
    "more, if the script loads there what it trains with",
    "workers load the next batches while this one is trained",
)


#: Of time that rates count and no timer explains.
UNTIL_STEP: Final = (
    " DeepSpeed's samples/s count from forward() to the end of step(), with the engine's own "
    "loader (training_data) from loading on: this is loading there, a loss, or whatever else the "
    "script does up to step(). What it does between its steps, as with a loader of its own, is "
    "not in it."
)


class _Between(NamedTuple):
    """Of each judged row: its seconds by the clock, those between steps, and how many it covers;
    with the words for what DeepSpeed counts."""

    whole: Floats
    seconds: Floats
    weights: Floats
    counted: Counted

    @property
    def cost(self) -> float:
        """Seconds of the mean step that pass between steps."""
        return float(np.average(self.seconds, weights=self.weights))


def between_steps(facts: Facts) -> Finding | None:
    """DeepSpeed's figures count a part of what time stamps show (see `rated.counted`). None where
    the rest is nothing to speak of."""
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
        title=f"{share} of the time passes between DeepSpeed's steps, where its "
        f"{found.counted.figures} do not count{_seldom(facts.steps, rows)}",
        summary=f"{found.counted.said}: {format_seconds(whole - cost)}. By the time stamps it "
        f"takes {format_seconds(whole)}, in the mean of {len(facts.steps):,} "
        f"{called(facts.steps)}: {format_seconds(cost)} of that the script spends "
        f"{found.counted.apart}, such as in {found.counted.such_as}."
        + (_longest(facts.steps, found, rows) if len(rows) else "")
        + " Medium confidence: what it is can only be guessed.",
        share=cost / whole,
        seconds_per_step=cost,
        evidence=(*average_proof(facts), _rate(facts)),
        advice=(*_of_script(found, rows), *_to_see(facts, found)),
        confidence="medium",
    )


def part_between(facts: Facts, seconds: float) -> tuple[str, tuple[Advice, ...]]:
    """How much of `seconds` that no timer explains passes between steps, in a sentence, and what to
    do if that is most of it; nothing if it is not known."""
    found = _between(facts)
    if found is None:
        return "", ()
    words = found.counted
    if found.cost < WORTH_NAMING * seconds:
        return UNTIL_STEP * words.loads, ()
    rows, cost = _that_hold_it(found), min(found.cost, seconds)
    rest = seconds - cost
    said = (
        f" {words.said}: {format_seconds(cost)} of it passes "
        f"{words.apart}{_seldom(facts.steps, rows)}, such as in {words.such_as}"
    )
    if rest >= WORTH_NAMING * seconds:
        said += f"; {format_seconds(rest)} {words.inside}"
    return f"{said}.", _of_script(found, rows) if cost > rest else ()


def pass_in_few(facts: Facts) -> bool:
    """Whether nearly all of what passes between steps does so in those that stick out."""
    found = _between(facts)
    return found is not None and len(_that_hold_it(found)) > 0


def _of_script(found: _Between, rows: npt.NDArray[np.intp]) -> tuple[Advice, ...]:
    return (LOOK,) if len(rows) else (_LOADING,) * found.counted.loads


def _between(facts: Facts) -> _Between | None:
    """None unless DeepSpeed's figures and time stamps tell the seconds of the same steps.

    Where both tell means of windows alone, steps that stick out are in both.
    """
    if facts.stuck_out and facts.steps["smoothed"].any():
        facts = replace(facts, stuck_out=(), answers={})
    steps = facts.steps
    inside = counted(facts, steps)
    if inside is None:
        return None
    whole = steps["seconds"].to_numpy(dtype=float)
    apart = saving_inside(facts, steps) + evaluating_inside(facts, steps)
    weights = np.asarray(weights_of(steps), np.float64)
    return _Between(whole, whole - inside.seconds - apart, weights, inside)


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


def _to_see(facts: Facts, found: _Between) -> tuple[Advice, ...]:
    return record(facts, EVERY_PHASE) or (look_at(found.counted.apart),)
