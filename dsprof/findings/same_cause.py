"""One cause, one finding: of two rules that tell the same time, one is the finding and the other a
note. What one of them tells beyond the other stays a finding of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from dsprof.events import GRAVITY, Class, Severity
from dsprof.findings.facts import Facts
from dsprof.findings.finding import Advice, Finding
from dsprof.findings.over_time.growth import is_of, risen_between_steps
from dsprof.findings.over_time.spikes import LOOK, are_most_of, are_of, keep_time
from dsprof.findings.ranks.contention import short_of_cpu
from dsprof.findings.ranks.garbage import late_by_garbage
from dsprof.findings.ranks.late_ranks import meet_every
from dsprof.findings.thresholds import (
    CPU_WARNING,
    DATA_WARNING,
    GARBAGE_WARNING,
    OPTIMIZER_WARNING,
    SLOWDOWN_WARNING,
    SPIKES_WARNING,
    STRAGGLER_WARNING,
    UNACCOUNTED_WARNING,
    WAITING_EXPLAINS,
)
from dsprof.findings.unknown.between_steps import pass_in_few

_LEAST: Final = {
    "straggler-rank": STRAGGLER_WARNING,
    "unaccounted-time": UNACCOUNTED_WARNING,
    "data-bound": DATA_WARNING,
    "optimizer-bound": OPTIMIZER_WARNING,
    "step-spikes": SPIKES_WARNING,
    "slowdown": SLOWDOWN_WARNING,
    "cpu-contention": CPU_WARNING,
    "garbage-collection": GARBAGE_WARNING,
}
#: What stops ranks, though no recording tells in which steps: what is said of others that cost no
#: more, and which these are.
_MAY_BE: Final = {
    "cpu-contention": "Ranks wait for a CPU as long ({}): that may be all of it.",
    "garbage-collection": "Ranks collect garbage as long ({}): that may be all of it.",
}
_MAY_BE_OF: Final = {
    "cpu-contention": ("step-spikes", "slowdown"),
    "garbage-collection": ("step-spikes", "slowdown", "unaccounted-time"),
}
_MEANWHILE: Final = (
    " Steps become longer meanwhile: to allocate, keep and collect ever more may be why."
)


def told_once(found: Sequence[Finding], facts: Facts) -> list[Finding]:
    """The findings about one engine's steps, of which each cause has one.

    The one that tells more is kept, with the advice of both: which rank's input is late, rather
    than that input is; which rank's update is, rather than that updates are long; in which steps a
    rank is late, rather than that it is, unless it is late in all of them and ranks meet in those
    alone; that a rank is late, rather than that it waits for a CPU or collects garbage; that input
    is late, or that ranks wait for a CPU or collect garbage, rather than that some steps are
    longer; what passes between DeepSpeed's steps, rather than that some are longer by that; from
    which step on steps are longer, rather than that all of these stick out.
    """
    stands = {one.rule: one for one in reversed(found)}  # of two the first: of the steps themselves
    by_rule = dict(stands)
    _late_alike(by_rule, facts)
    _steps_and_their_rank(by_rule, facts)
    _input_of_some_steps(by_rule, facts)
    for rule in _MAY_BE:
        if rule in by_rule:
            _stopped(by_rule, rule, facts)
    _class_of_some_steps(by_rule, facts)
    _memory_first(by_rule)
    return [by_rule[one.rule] if one is stands[one.rule] else one for one in found]


def _late_alike(by_rule: dict[str, Finding], facts: Facts) -> None:
    """A late rank, and what all ranks spend on what it is late in."""
    late, data = by_rule.get("straggler-rank"), by_rule.get("data-bound")
    if late is None:
        return
    part = len(late.ranks) / _compared(facts)
    if data and _is_of(facts, late, "data"):
        _keep(by_rule, late, data, part, facts)
    update = by_rule.get("optimizer-bound")
    if update and _is_of(facts, late, "optimizer"):
        _keep(by_rule, late, _incurable(update), part, facts)


def _steps_and_their_rank(by_rule: dict[str, Finding], facts: Facts) -> None:
    """Steps that are longer, and the rank that is late in them."""
    slower, longer = by_rule.get("slowdown"), by_rule.get("step-spikes")
    if slower and longer and slower.steps and are_most_of(facts, *slower.steps):
        _keep(by_rule, slower, replace(longer, advice=()), 1.0, facts)
    for rule in ("step-spikes", "slowdown"):
        longer, late = by_rule.get(rule), by_rule.get("straggler-rank")
        if longer and late and longer.ranks == late.ranks:
            if meet_every(facts):  # what these steps do beside is not why they are longer
                _keep(by_rule, late, replace(longer, advice=()), 1.0, facts)
            else:
                _keep(by_rule, longer, late, 1.0, facts)


def _input_of_some_steps(by_rule: dict[str, Finding], facts: Facts) -> None:
    """Steps that stick out because their input is late."""
    longer, data = by_rule.get("step-spikes"), by_rule.get("data-bound")
    if longer and data and _is_of(facts, longer, "data"):
        _keep(by_rule, longer, data, 1.0, facts)
    elif longer and data and not longer.ranks and are_of(facts, "data"):
        known = tuple(one for one in longer.advice if one != LOOK)  # why their input is late
        first = replace(data, advice=known + data.advice)
        _keep(by_rule, first, longer, 1.0, facts)


def _class_of_some_steps(by_rule: dict[str, Finding], facts: Facts) -> None:
    """Steps that are longer, and a class of time that is longer in them and is judged in all."""
    if facts.breakdown is None and "step-spikes" in by_rule and pass_in_few(facts):
        # beside timers, what such steps take is no part of `unaccounted-time`
        _is_part(by_rule, "unaccounted-time", "step-spikes", facts)
    if "step-spikes" in by_rule and are_of(facts, "optimizer"):
        _is_part(by_rule, "step-spikes", "optimizer-bound", facts)
    if "slowdown" in by_rule:
        for rule, of in _CLASSES.items():
            if _grew(facts, by_rule["slowdown"], of):
                _is_part(by_rule, "slowdown", rule, facts)


def _incurable(update: Finding) -> Finding:
    """Fewer updates cure none that is longer on one rank, or in some steps, than elsewhere."""
    return replace(update, advice=(), gain=None)


#: Rules about all steps, and the class of time that each of them is about.
_CLASSES: Final = {
    "data-bound": "data",
    "optimizer-bound": "optimizer",
    "unaccounted-time": "other",
}


def _grew(facts: Facts, slower: Finding, of: str) -> bool:
    """Whether what the slower steps of a launch take beyond the others is of that class."""
    if slower.steps is None:
        return False
    steps = facts.series
    within = steps["step"].between(*slower.steps).to_numpy(dtype=bool)
    if within.all() or not within.any():
        return False
    before, after = steps[~within], steps[within]
    rise = WAITING_EXPLAINS * float(after["seconds"].mean() - before["seconds"].mean())
    between = of == Class.OTHER and risen_between_steps(facts, before, after) >= rise > 0
    return between or is_of(steps, within, of)


def _is_part(by_rule: dict[str, Finding], kept: str, rule: str, facts: Facts) -> None:
    """Make a note of a rule about all steps, if it tells what only some steps take longer."""
    longer, every = by_rule[kept], by_rule.get(rule)
    if every is None:
        return
    if rule == "optimizer-bound":
        every = _incurable(every)
    part = len(longer.ranks) / _compared(facts) if longer.ranks else 1.0
    _keep(by_rule, longer, every, part, facts)


def _is_of(facts: Facts, found: Finding, of: str) -> bool:
    """Whether a finding is about a phase of that class."""
    return facts.breakdown is not None and found.phase in facts.phases_of(of).index


def _is_late_by(facts: Facts, rule: str) -> bool:
    """Whether the late rank is late by what stops it."""
    why = late_by_garbage if rule == "garbage-collection" else short_of_cpu
    return facts.straggler is not None and why(facts, facts.straggler) is not None


def _stopped(by_rule: dict[str, Finding], rule: str, facts: Facts) -> None:
    """Ranks that are stopped, and what may be no more than that."""
    late = by_rule.get("straggler-rank")
    if late and by_rule[rule].ranks == late.ranks and _is_late_by(facts, rule):
        _keep(by_rule, late, by_rule[rule], 1.0, facts)
    for other in _MAY_BE_OF[rule]:
        stopped, longer = by_rule[rule], by_rule.get(other)
        if longer and _may_be(facts, longer, stopped):
            _keep(by_rule, stopped, replace(longer, advice=()), 1.0, facts, why=_MAY_BE[rule])


def _may_be(facts: Facts, longer: Finding, stopped: Finding) -> bool:
    """Whether steps may be longer because ranks are stopped: others who take a CPU keep to no
    interval of steps, and a rank that is not stopped is late for another reason."""
    of_cpu = stopped.rule == "cpu-contention"
    if longer.rule == "step-spikes" and of_cpu and keep_time(facts):
        return False
    return set(longer.ranks) <= set(stopped.ranks)


def _compared(facts: Facts) -> int:
    """How many ranks `straggler-rank` has compared: of a pipeline all, stage by stage."""
    late = facts.straggler
    return late.ranks if late else facts.layout.world_size or 1


def _keep(
    by_rule: dict[str, Finding],
    kept: Finding,
    other: Finding,
    part: float,
    facts: Facts,
    *,
    why: str = "This time is counted in {}, too: its cause is the same.",
) -> None:
    """Make a note of `other`, unless it tells more than this part of what is kept."""
    told, seconds = kept.seconds_per_step, other.seconds_per_step
    if Severity.INFO in {kept.severity, other.severity} or told is None or seconds is None:
        return
    rest = facts.share(seconds - part * told)
    if rest is None or rest >= _LEAST[other.rule]:
        return
    first, second = (other, kept) if other.rule in _TELLS_MORE else (kept, other)
    by_rule[kept.rule] = replace(
        kept, severity=_worse(kept, other), advice=_both(first.advice, second.advice)
    )
    summary = f"{other.summary} {why.format(kept.rule)}"
    by_rule[other.rule] = replace(other, severity=Severity.INFO, summary=summary)


#: Rules whose advice is what helps, or shows what is done there; that of others is to look around.
_TELLS_MORE: Final = ("data-bound", "unaccounted-time")


def _both(first: tuple[Advice, ...], second: tuple[Advice, ...]) -> tuple[Advice, ...]:
    told = [one.setting for one in first]
    return first + tuple(one for one in second if one.setting not in told)


def _worse(one: Finding, other: Finding) -> Severity:
    return min(one.severity, other.severity, key=GRAVITY.__getitem__)


def _memory_first(by_rule: dict[str, Finding]) -> None:
    """Growing memory is told before steps that become longer while it grows."""
    growth, slower = by_rule.get("memory-growth"), by_rule.get("slowdown")
    if growth is None or slower is None or growth.severity is Severity.INFO:
        return
    if growth.steps is None or slower.steps is None or slower.steps[1] < growth.steps[1] - 1:
        return
    beside = [by_rule[rule] for rule in ("slowdown", "step-spikes") if rule in by_rule]
    worst = min((growth, *beside), key=lambda one: GRAVITY[one.severity]).severity
    by_rule["memory-growth"] = replace(growth, severity=worst, summary=growth.summary + _MEANWHILE)
