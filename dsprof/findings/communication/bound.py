"""Collectives: how much of a step they hold up."""

from __future__ import annotations

from typing import Final

import pandas as pd

from dsprof.analysis.breakdown import pipeline_phases
from dsprof.analysis.collectives import per_operation
from dsprof.findings.advice import record, switched_off
from dsprof.findings.beside.evaluations import meeting_in_evaluations, waiting_for_evaluations
from dsprof.findings.beside.saves import calls_in_mean, waiting_in_mean
from dsprof.findings.communication.calls import call_words
from dsprof.findings.communication.causes import cause_of
from dsprof.findings.communication.gathers import stall_seconds
from dsprof.findings.communication.small_messages import small_seconds
from dsprof.findings.communication.uneven import input_seconds
from dsprof.findings.evidence import phase_evidence, row_evidence
from dsprof.findings.facts import COLLECTING, NO_TIMERS, Facts
from dsprof.findings.failures.network import network_fallback
from dsprof.findings.finding import Advice, Evidence, Finding
from dsprof.findings.over_time.spikes import without_spikes
from dsprof.findings.over_time.throughput import late_later
from dsprof.findings.pipeline.bubbles import named_in_collectives
from dsprof.findings.ranks.accounted import late_seconds
from dsprof.findings.thresholds import (
    COMMUNICATION_CRITICAL,
    COMMUNICATION_WARNING,
    PIPELINE_CRITICAL,
    PIPELINE_WARNING,
    WORTH_NAMING,
    grade,
)
from dsprof.run.steps.classes import P2P
from dsprof.units import format_seconds, format_share

_OFFLOADED: Final = (
    "no timer of this run times collectives alone: with an offloaded optimizer, that of reduction "
    "also holds copies of gradients to the host"
)
_GATHERING: Final = "of gathering parameters"
_IN_SPIKES: Final = "in the steps that stick out"
_BETWEEN_TWO: Final = r"(?:send|recv)(?:_in_.+)?"  # a recorded call, in the phase that it blocks
_FILLED: Final = Advice(
    "micro-batches of the pipeline",
    "",
    "more, if it is one",
    "the more there are, the less of a step is its bubble",
)


def communication_bound(facts: Facts) -> list[Finding] | str:
    """Collectives that nothing hides take a large part of the step, or calls between two ranks do.

    Gain: that of the cause (`causes.cause_of`); none where the cause is unknown.
    """
    between, found = _between_two(facts), _in_collectives(facts)
    return found if not between else between + ([] if isinstance(found, str) else found)


def _between_two(facts: Facts) -> list[Finding]:
    """Recorded sends and receives that no pipeline of DeepSpeed's makes: whether their ranks wait
    for each other, or for the transfer, nothing tells."""
    if facts.breakdown is None or facts.phases_of("wait").empty:
        return []
    waiting = facts.phases_of("wait")
    waiting = waiting[waiting.index.str.fullmatch(_BETWEEN_TWO)]
    waiting = waiting.drop(pipeline_phases(waiting).index)
    seconds = float(waiting["seconds"].sum())
    severity = grade(facts.share(seconds) or 0.0, PIPELINE_WARNING, PIPELINE_CRITICAL)
    if severity is None:
        return []
    return [
        Finding(
            rule="communication-bound",
            severity=severity,
            title=f"{format_share(facts.share(seconds) or 0.0)} of a step is sending to single "
            "ranks and receiving from them, and waiting for them",
            summary=f"Point-to-point calls hold a step up for {format_seconds(seconds)} of "
            f"{format_seconds(facts.breakdown.seconds)} ({facts.windows}). The script makes them: "
            "a pipeline waits in them for its other stages (its bubble, or a slower stage), a ring "
            "for its slowest rank, and both for the network. Which of these, no timer tells, hence "
            "low confidence about the cure.",
            share=facts.share(seconds),
            seconds_per_step=seconds,
            phase=str(waiting.index[0]),
            evidence=phase_evidence(waiting),
            advice=(_FILLED,),
            confidence="low",
        )
    ]


def _in_collectives(facts: Facts) -> list[Finding] | str:
    if COLLECTING in facts.doubts:
        return f"{facts.doubts[COLLECTING]}: the network's part is unknown"
    if facts.least_communication is not None:
        return _at_least(facts, facts.least_communication)
    seconds = facts.seconds_of("communication")
    if seconds is None:
        if facts.breakdown is None:
            return NO_TIMERS
        return _OFFLOADED if facts.is_offloaded else "no timer of this run times collectives"
    named = {
        what: part
        for what, part in _named_elsewhere(facts).items()
        if part >= WORTH_NAMING * seconds
    }
    waited = sum(named.values())
    seconds = max(seconds - waited, 0.0)
    share = facts.share(seconds) or 0.0
    severity = grade(share, COMMUNICATION_WARNING, COMMUNICATION_CRITICAL)
    if severity is None:
        return []
    table, inside = facts.phases_of("communication"), waited
    if _GATHERING in named:
        table = table[~_gathers(table, recorded=facts.run.is_recording)]
        inside = waited - named[_GATHERING]
    judged = without_spikes(facts) if _IN_SPIKES in named else facts
    cause, network = cause_of(judged, seconds), _network(facts)
    largest = "" if cause.title else _largest_part(table, seconds + inside, inside)
    beyond = f"That is a lower bound: {facts.run.mixed}. " if _more_unseen(facts) else ""
    parts = " and ".join(f"{format_seconds(part)} {what}" for what, part in named.items())
    apart = f", apart from {parts}" if parts else ""
    return [
        Finding(
            rule="communication-bound",
            severity=severity,
            title=f"{'At least ' if beyond else ''}{format_share(share)} of a step is "
            f"{_words(facts)}{_beside(named)}{largest}{cause.title}",
            summary=f"Collectives hold a step up for {format_seconds(seconds)} of "
            f"{format_seconds(facts.breakdown.seconds if facts.breakdown else 0.0)} "
            f"({facts.windows})"
            f"{apart}. {beyond}{_to_mend(network)}{cause.sentence}",
            share=share,
            seconds_per_step=seconds,
            phase=str(table.index[0]) if len(table) else None,
            evidence=_timed_or_logged(facts, table, seconds + inside),
            advice=(*_of_network(facts, network), *cause.advice),
            gain=cause.gain,
            confidence="high" if cause.known else "medium",
        )
    ]


def _words(facts: Facts) -> str:
    """What it is called in a title: a single rank communicates with no other."""
    alone = facts.layout.world_size == 1
    return "collective calls in a job of one rank" if alone else "communication between ranks"


def _network(facts: Facts) -> Finding | None:
    """What is wrong with the network itself: no setting of DeepSpeed cures that."""
    found = network_fallback(facts)
    return found[0] if isinstance(found, list) and found else None


def _of_network(facts: Facts, network: Finding | None) -> tuple[Advice, ...]:
    """What mends the network, or lets NCCL take all its ways, each setting once."""
    advice = (*(network.advice if network else ()), *switched_off(facts))
    return tuple({one.setting: one for one in reversed(advice)}.values())[::-1]


def _more_unseen(facts: Facts) -> bool:
    """Whether a timer holds more of it, which no logged call tells."""
    assert facts.breakdown is not None
    told = facts.calls_are_logged or not facts.run.mixed
    return not told and bool(facts.breakdown.phases["mixed"].any())


def _to_mend(network: Finding | None) -> str:
    return f"{network.title}: that comes first. " if network else ""


def _largest_part(table: pd.DataFrame, timed: float, waited: float) -> str:
    """The timer that holds most of it, or more than any other, whatever `waited` was in it."""
    if len(table) < 2:
        return ""
    first = float(table["seconds"].iloc[0])
    if 2 * (first - waited) > timed - waited:
        return f", most of it {table.index[0]}"
    untimed = timed - float(table["seconds"].sum())
    return "" if waited or untimed > first else f", the largest part {table.index[0]}"


def _gathers(table: pd.DataFrame, *, recorded: bool) -> pd.Series[bool]:
    """The phases of `zero3-gather-stall`: they prove nothing of the rest. Recorded calls that are
    in no phase are the script's own."""
    return table.index.to_series().str.contains("gather.*_in_" if recorded else "gather|fetch_wait")


def _beside(named: dict[str, float]) -> str:
    """What of all communication, as bars and tables show it, is not counted here."""
    parts = [what.partition(" ")[2] for what in named]
    if len(parts) > 2:
        return " beside what other findings name"
    return f" apart from {' and '.join(parts)}" if parts else ""


def _timed_or_logged(facts: Facts, table: pd.DataFrame, seconds: float) -> tuple[Evidence, ...]:
    """Phases of class communication, and logged calls where these do not cover it."""
    if float(table["seconds"].sum()) >= 0.99 * seconds:
        return phase_evidence(table)
    comm = facts.held_up[~facts.held_up["op"].isin(P2P)]
    factor = facts.per_step or 0.0
    calls = tuple(
        row_evidence(
            last := comm[comm["op"] == op].iloc[-1],
            f"{op}: {format_seconds(row['seconds'] * factor)} per step in logged calls, the last: "
            f"{call_words(last)}",
        )
        for op, row in per_operation(comm).head(2).iterrows()
    )
    return calls + phase_evidence(table, 1)


def _alone(table: pd.DataFrame) -> str:
    """The timers that take it, as the subject of a sentence."""
    first, *others = map(str, table.index)
    if not others:
        return f"{first} alone takes"
    beside = others[0] if len(others) == 1 else f"{len(others)} more timers"
    return f"{first} and {beside} alone take"


def _at_least(facts: Facts, seconds: float) -> list[Finding]:
    """Communication that is timed, beside more of it inside other timers: a lower bound."""
    share = facts.share(seconds) or 0.0
    severity = grade(share, COMMUNICATION_WARNING, COMMUNICATION_CRITICAL)
    if severity is None:
        return []
    table, network = facts.phases_of("communication"), _network(facts)
    return [
        Finding(
            rule="communication-bound",
            severity=severity,
            title=f"At least {format_share(share)} of a step is {_words(facts)}",
            summary=f"{_alone(table)} {format_seconds(seconds)} per step "
            f"({facts.windows}). {_to_mend(network)}That is a lower bound: {facts.run.mixed}. "
            "Medium confidence: this source does not say how much more there is.",
            share=share,
            seconds_per_step=seconds,
            phase=str(table.index[0]),
            evidence=phase_evidence(table),
            advice=(
                *_of_network(facts, network),
                *record(facts, "times every gather and how much of it is exposed"),
            ),
            confidence="medium",
        )
    ]


def _named_elsewhere(facts: Facts) -> dict[str, float]:
    """Seconds per step of communication whose cause another finding names."""
    late, later = late_seconds(facts), late_later(facts)
    evaluating = waiting_for_evaluations(facts) - late - later  # who is late may be so by that
    parts = {
        "of waiting for a late rank": late,
        "of waiting for the input of another rank": input_seconds(facts),
        "of waiting for a rank that became late": later,
        "of waiting for a rank that evaluates": max(evaluating, 0.0),
        "in small messages": small_seconds(facts),
        _GATHERING: stall_seconds(facts),
        "in saves of checkpoints": _in_saves(facts),
        "in evaluations": meeting_in_evaluations(facts),
        "of waiting for the last stage": named_in_collectives(facts),
    }
    parts[_IN_SPIKES] = max(_in_spikes(facts) - sum(parts.values()), 0.0)
    return {what: seconds for what, seconds in parts.items() if seconds}


def _in_spikes(facts: Facts) -> float:
    """Seconds per step of communication that steps which stick out take beyond the others: they
    are of `step-spikes`, as is what makes them wait."""
    usual = without_spikes(facts).seconds_of("communication")
    return (facts.seconds_of("communication") or 0.0) - (usual or 0.0)


def _in_saves(facts: Facts) -> float:
    """Seconds per step of collectives inside a save, or that wait for the rank that saves: they
    are of `checkpoint-stall`."""
    return calls_in_mean(facts) + waiting_in_mean(facts)
