"""Collectives: how much of a step they hold up, and whether compute could hide them."""

from __future__ import annotations

import re
from typing import Final

import pandas as pd

from dsprof.analysis.breakdown import pipeline_phases
from dsprof.analysis.checkpoints import IN_SAVES
from dsprof.analysis.collectives import (
    SMALL,
    during_steps,
    operations,
    per_operation,
    trusted,
)
from dsprof.events import Severity
from dsprof.findings.advice import record
from dsprof.findings.calls import call_words
from dsprof.findings.causes import (
    REDUCTION,
    cause_of,
    overlap_advice,
    overlap_is_off,
    reduction_seconds,
)
from dsprof.findings.evidence import phase_evidence, row_evidence
from dsprof.findings.facts import COLLECTING, NO_TIMERS, Facts, promise
from dsprof.findings.finding import Advice, Evidence, Finding
from dsprof.findings.gathers import stall_seconds
from dsprof.findings.network import network_fallback
from dsprof.findings.pipeline import bubble_in_collectives
from dsprof.findings.ranks import late_seconds
from dsprof.findings.saves import waiting_in_mean
from dsprof.findings.small_messages import small_seconds
from dsprof.findings.thresholds import (
    COMMUNICATION_CRITICAL,
    COMMUNICATION_WARNING,
    NO_OVERLAP_COMMUNICATION,
    NO_OVERLAP_HIDEABLE,
    NO_OVERLAP_REDUCTION,
    OVERLAP_LOW,
    PIPELINE_CRITICAL,
    PIPELINE_WARNING,
    grade,
)
from dsprof.findings.uneven import input_seconds
from dsprof.run.classes import P2P
from dsprof.run.table import numbers, where
from dsprof.units import format_bytes, format_seconds, format_share

_OFFLOADED: Final = (
    "no timer of this run times collectives alone: with an offloaded optimizer, that of reduction "
    "also holds copies of gradients to the host"
)
_REDUCES = re.compile("reduce", re.ASCII)
_FORWARD, _BACKWARD = "forward", "backward"
_BUCKETS: Final = 4  #: how many to advise: all but the last may hide behind backward
_ROUNDING: Final = 0.01  #: of one call per step
_GATHERING: Final = "of gathering parameters"
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
    named = _named_elsewhere(facts)
    waited = sum(named.values())
    seconds = max(seconds - waited, 0.0)
    share = facts.share(seconds) or 0.0
    severity = grade(share, COMMUNICATION_WARNING, COMMUNICATION_CRITICAL)
    if severity is None:
        return []
    table, inside = facts.phases_of("communication"), waited
    if _GATHERING in named:
        table, inside = table[~_gathers(table)], waited - named[_GATHERING]
    cause, network = cause_of(facts, seconds), _network(facts)
    largest = "" if cause.title else _largest_part(table, seconds + inside, inside)
    beyond = f"That is a lower bound: {facts.run.mixed}. " if _more_unseen(facts) else ""
    parts = " and ".join(f"{format_seconds(part)} {what}" for what, part in named.items())
    apart = f", apart from {parts}" if parts else ""
    return [
        Finding(
            rule="communication-bound",
            severity=severity,
            title=f"{'At least ' if beyond else ''}{format_share(share)} of a step is "
            f"communication between ranks{_beside(named)}{largest}{cause.title}",
            summary=f"Collectives hold a step up for {format_seconds(seconds)} of "
            f"{format_seconds(facts.breakdown.seconds if facts.breakdown else 0.0)} "
            f"({facts.windows})"
            f"{apart}. {beyond}{_to_mend(network)}{cause.sentence}",
            share=share,
            seconds_per_step=seconds,
            phase=str(table.index[0]) if len(table) else None,
            evidence=_timed_or_logged(facts, table, seconds + inside),
            advice=(*(network.advice if network else ()), *cause.advice),
            gain=cause.gain,
            confidence="high" if cause.known else "medium",
        )
    ]


def _network(facts: Facts) -> Finding | None:
    """What is wrong with the network itself: no setting of DeepSpeed cures that."""
    found = network_fallback(facts)
    return found[0] if isinstance(found, list) and found else None


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


def _gathers(table: pd.DataFrame) -> pd.Series[bool]:
    """The phases of `zero3-gather-stall`: they prove nothing of the rest."""
    return table.index.to_series().str.contains("gather|fetch_wait")


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
            title=f"At least {format_share(share)} of a step is communication between ranks",
            summary=f"{_alone(table)} {format_seconds(seconds)} per step "
            f"({facts.windows}). {_to_mend(network)}That is a lower bound: {facts.run.mixed}. "
            "Medium confidence: this source does not say how much more there is.",
            share=share,
            seconds_per_step=seconds,
            phase=str(table.index[0]),
            evidence=phase_evidence(table),
            advice=(
                *(network.advice if network else ()),
                *record(facts, "times every gather and how much of it is exposed"),
            ),
            confidence="medium",
        )
    ]


def _named_elsewhere(facts: Facts) -> dict[str, float]:
    """Seconds per step of communication whose cause another finding names."""
    parts = {
        "of waiting for a late rank": late_seconds(facts),
        "of waiting for the input of another rank": input_seconds(facts),
        "in small messages": small_seconds(facts),
        _GATHERING: stall_seconds(facts),
        "in saves of checkpoints": _in_saves(facts),
        "of waiting for the last stage": bubble_in_collectives(facts),
    }
    return {what: seconds for what, seconds in parts.items() if seconds}


def _in_saves(facts: Facts) -> float:
    """Seconds per step of collectives inside a save, or that wait for the rank that saves: they
    are of `checkpoint-stall`."""
    table = facts.phases_of("communication")
    inside = float(table["seconds"][table.index.str.endswith(IN_SAVES)].sum())
    return inside + waiting_in_mean(facts)


def no_overlap(facts: Facts) -> list[Finding] | str:
    """Communication and computation take turns although they could run together.

    Gain: at best the shorter of the reduction and the compute it could hide behind.
    """
    seconds, compute = facts.seconds_of("communication"), facts.seconds_of("compute")
    if seconds is None or compute is None:
        return "communication and compute are not both timed"
    large = _large_reduction(facts)
    least = NO_OVERLAP_COMMUNICATION if large is None else NO_OVERLAP_REDUCTION
    if (facts.share(seconds if large is None else large) or 0.0) < least:
        return []
    measured = None if overlap_is_off(facts) else _measured_overlap(facts)
    bucket = _only_bucket(facts)
    blind = _overlap_unseen(facts)
    if measured is None and blind and not bucket:
        return blind
    advice = _smaller_bucket(bucket) if bucket else overlap_advice(facts)
    if (measured is not None and measured >= OVERLAP_LOW) or (measured is None and not advice):
        return []
    table = facts.phases_of("communication")
    reduction = table[table.index.isin(REDUCTION)]
    hides = reduction if len(reduction) else table
    hideable = min(large or reduction_seconds(facts, seconds), compute)
    if (facts.share(hideable) or 0.0) < NO_OVERLAP_HIDEABLE:
        return []
    late = _lateness(facts) if facts.exposure_is_known else 0.0  # which nothing hides
    exposed = max(seconds - late, 0.0)
    share = format_share(facts.share(exposed) or 0.0)
    apart = f", apart from {format_seconds(late)} of waiting for a late rank," if late else ""
    said = (
        f"Only {format_share(measured)} of the communication time is hidden behind compute."
        if measured is not None
        else f"DDP reduces all gradients, {format_bytes(bucket)}, in one bucket, which is complete "
        "only when backward has computed the last of them."
        if bucket
        else f"The configuration asks for none: {advice[0].setting} is {advice[0].now}."
    )
    return [
        Finding(
            rule="no-overlap",
            severity=Severity.WARNING,
            title=f"Communication ({share} of a step) does not overlap with compute",
            summary=f"{said} {format_seconds(exposed)} per step of exposed communication{apart} "
            f"compare with {format_seconds(compute)} of compute that could hide "
            f"{format_seconds(hideable)} of it at best ({facts.windows}). Medium "
            "confidence: how much of a reduction can hide depends on when its gradients are ready"
            f"{_MAY_WAIT if large is None else ''}.",
            share=facts.share(hideable),
            seconds_per_step=hideable,
            phase=str(hides.index[0]) if len(hides) else None,
            evidence=phase_evidence(hides),
            advice=advice,
            gain=promise(hideable),
            confidence="medium",
        )
    ]


#: What else the gain hangs on where no rank's lateness is known.
_MAY_WAIT: Final = ", and on how much of it waits for a slower rank, which nothing hides"


def _large_reduction(facts: Facts) -> float | None:
    """Seconds per step for which calls worth splitting hold a recording's step up.

    None where a source does not tell what calls hold up. For what else is sent, as parameters or
    tokens of experts, the next computation waits. Of a small call there is nothing to begin
    earlier: it costs latency, or waits. What waits for a late rank is `straggler-rank`'s.
    A group that reduces in forward, too, holds parts of layers: it sums activations, which the
    next layer waits for, and not gradients.
    """
    if not facts.exposure_is_known:
        return None
    calls = facts.held_up
    calls = where(calls, operations(calls, _REDUCES) & (numbers(calls["bytes"]) >= SMALL))
    activations = calls["group"][calls["phase"].astype("str").str.startswith(_FORWARD)].unique()
    gradients = ~calls["group"].isin(activations)
    seconds = float(calls["seconds"][gradients].sum()) * (facts.per_step or 0.0)
    return max(seconds - _lateness(facts), 0.0)


def _only_bucket(facts: Facts) -> float | None:
    """Bytes of the one reduction in which DDP sums all gradients of a step; None if it has several
    buckets, or it is not known to be DDP's.
    """
    replicas = facts.layout.data_parallel if facts.is_torch_alone else None
    if not facts.exposure_is_known or not replicas:
        return None
    calls = during_steps(facts.run.comm, facts.steps)
    inside = calls["phase"].astype("str").str.startswith(_BACKWARD).to_numpy(bool)
    calls = where(calls, operations(calls, _REDUCES) & inside)
    times = float(calls["count"].sum()) * (facts.per_step or 0.0)
    alone = (calls["op"] == "all_reduce").all() and abs(times - 1) < _ROUNDING
    return float(calls["bytes"].median()) if alone and len(calls) else None


def _smaller_bucket(size: float) -> tuple[Advice, ...]:
    why = "a bucket is reduced while backward still computes the gradients of the next ones"
    to = f"at most {max(1, round(size / _BUCKETS / 2**20))}"
    return (Advice("DistributedDataParallel(bucket_cap_mb=...)", "", to, why),)


def _lateness(facts: Facts) -> float:
    """Seconds per step of waiting for a rank that is late, or for one whose input is."""
    return late_seconds(facts) or input_seconds(facts)


def _overlap_unseen(facts: Facts) -> str | None:
    """Why neither timers nor configuration tell whether communication overlaps, or could."""
    if overlap_is_off(facts):
        return "a pipeline reduces gradients after all of backward: DeepSpeed has no overlap there"
    if facts.calls_are_logged:
        return "the communication logger waits for every call: with it on, nothing overlaps"
    if COLLECTING in facts.doubts:
        return facts.doubts[COLLECTING]
    if facts.layout.zero_stage is None:
        return "neither the ZeRO stage nor how much communication overlaps with compute is known"
    return None


def _measured_overlap(facts: Facts) -> float | None:
    """Hidden part of communication time, where both are recorded."""
    comm = trusted(facts.run.comm)
    comm = comm[comm["exposed_seconds"].notna()]
    total = float(comm["seconds"].sum())
    return 1 - float(comm["exposed_seconds"].sum()) / total if total else None
