"""What holds for every rule: nothing costs more than its step, and few steps prove little."""

from __future__ import annotations

import re
from dataclasses import replace

from dsprof.analysis.breakdown import known_by, mean_of
from dsprof.findings.facts import Facts, once
from dsprof.findings.finding import OF_TIMED, Confidence, Finding, less_sure
from dsprof.findings.thresholds import FEW_STEPS, UNACCOUNTED_WARNING
from dsprof.run.steps.bars import since_start
from dsprof.run.steps.durations import called, window
from dsprof.run.table import within
from dsprof.units import format_seconds, format_share

#: Sums and means of floats may differ by this.
_ROUNDING = 1.001


def bounded(answer: list[Finding] | str, facts: Facts) -> list[Finding] | str:
    """A rule's answer; or why the source contradicts itself: a part exceeds the whole."""
    if isinstance(answer, str):
        return answer
    step = _average_step(facts)
    reasons = [_contradiction(one, step) for one in answer]
    contradicted = next((why for why in reasons if why), None)
    if contradicted:
        return contradicted
    founded = [one for one in answer if not (facts.no_basis and _is_of_the_mean(one))]
    if answer and not founded and facts.no_basis:
        return facts.no_basis
    if any(one.rule in _OF_CLASSES for one in founded) and _mixes_ranks(facts):
        return "its timers are the longest of any rank, and together longer than the step"
    return [modest(one, facts) for one in founded]


def _mixes_ranks(facts: Facts) -> bool:
    """Whether most steps have timers of different ranks that exceed them: shares are no rank's."""
    repairs = facts.run.repairs
    steps = repairs.loc[repairs["name"] == "maxima-exceed-step", "rows"].sum()
    return bool(2 * steps > len(facts.run.steps))


@once
def _average_step(facts: Facts) -> float | None:
    seconds = [] if facts.steps.empty else [mean_of(facts.steps, "seconds")]
    if facts.breakdown is not None:
        seconds.append(facts.breakdown.seconds)
    return max(seconds, default=None)


def _contradiction(one: Finding, step: float | None) -> str | None:
    cost, share = one.seconds_per_step, one.share
    if cost is not None and share and step is not None:
        step = max(step, cost / share)  # what lies beside the steps makes them longer
    if cost is not None and step is not None and cost > _ROUNDING * step:
        return (
            f"the source contradicts itself: it would cost {format_seconds(cost)} per step, "
            f"but the average step takes {format_seconds(step)}"
        )
    if share is not None and share > _ROUNDING:
        return f"the source contradicts itself: it would cost {format_share(share)} of a step"
    return None


#: Rules that judge the average step without taking a part of it.
_OF_THE_MEAN = ("compute-bound", "healthy")

#: Rules that judge how a step is divided among the classes of its timers.
_OF_CLASSES = (
    "communication-bound", "data-bound", "optimizer-bound", "offload-bound", "compute-bound",
    "generation-bound", "pipeline-bubble", "unaccounted-time", "healthy",
)  # fmt: skip

#: Rules whose share is of the steps that were made, however few are printed.
_OF_ALL_STEPS = ("overflow-streak", "checkpoint-stall", "evaluation-stall")

#: Said of steps of which nothing else is known.
_SUMS = "A step is the sum of its timers here: untimed work is not included."

_ORDER: tuple[Confidence, ...] = ("low", "medium", "high")


def modest(one: Finding, facts: Facts) -> Finding:
    """A finding about the average step, no surer than the steps it is the mean of."""
    if not _is_of_the_mean(one):
        return one
    if _sums_alone(facts):
        one = _of_what_is_timed(one, facts)
    steps = len(facts.steps)
    if steps < FEW_STEPS:
        few = f"{'one' if steps == 1 else steps} {called(facts.steps, steps)} only"
        return _at_most(one, "low", few + (_with_the_first(facts) if steps == 1 else ""))
    if facts.micro_only:
        return _at_most(one, "medium", "only micro-batches are timed")
    if _sums_alone(facts):
        one = _at_most(one, "medium", "no line read here tells how long whole steps take")
        return replace(one, summary=f"{one.summary} {_SUMS}")
    return one


def _with_the_first(facts: Facts) -> str:
    """What is said of the only row there is, if it holds the first step of a launch."""
    if not facts.steps["warm_up"].iloc[0]:
        return ""
    if facts.run.counted:
        return ", which may be the first of its launch"
    return ", with the first in it, a warm-up" if window(facts.steps) != 1 else ""


def _sums_alone(facts: Facts) -> bool:
    """Whether no line of a log says how long steps took beside their timers."""
    return not facts.run.is_recording and known_by(facts.steps) == "timers"


def _of_what_is_timed(one: Finding, facts: Facts) -> Finding:
    """The same of a step that is the sum of its timers: no part is of what none of them times.

    A bar may show that they leave little out, or much, and not how much of this step.
    """
    by_bar, step = _by_the_bar(facts), _average_step(facts)
    if by_bar and step and step > (1 - UNACCOUNTED_WARNING) * by_bar:
        return one
    title = re.sub(r"(?<=% )of a step\b", OF_TIMED, one.title)
    if by_bar is None or step is None:
        return replace(one, title=title)
    said = (
        f" The progress bar counts {format_seconds(by_bar)} per iteration since it began, only "
        f"{format_seconds(step)} of a step are timed: nothing says what the rest is, or whether "
        "every step has it."
    )
    return replace(one, title=title, summary=one.summary + said)


@once
def _by_the_bar(facts: Facts) -> float | None:
    """Seconds of a step by the training's bar, where timers alone tell of steps."""
    if facts.run.counted:
        return None
    return since_start(within(facts.steps.head(1), facts.run.told, "segment", "engine"))


def _is_of_the_mean(one: Finding) -> bool:
    takes_part = one.share is not None or one.rule in _OF_THE_MEAN or _says_shares(one)
    return takes_part and one.rule not in _OF_ALL_STEPS


def _says_shares(one: Finding) -> bool:
    """The notes on timers that nothing divides: they cost nothing."""
    return one.rule == "unaccounted-time" and bool(one.phase)


def _at_most(one: Finding, most: Confidence, why: str) -> Finding:
    if _ORDER.index(one.confidence) <= _ORDER.index(most):
        return one
    return less_sure(one, most, why)
