"""Collectives: how much of a step they hold up, and whether compute could hide them."""

from __future__ import annotations

from dsprof.analysis.collectives import trusted
from dsprof.events import Severity
from dsprof.findings.causes import cause_of, overlap_advice
from dsprof.findings.facts import NO_TIMERS, Facts, phase_evidence, promise
from dsprof.findings.finding import Finding
from dsprof.findings.ranks import straggler_rank
from dsprof.findings.thresholds import (
    COMMUNICATION_CRITICAL,
    COMMUNICATION_WARNING,
    NO_OVERLAP_COMMUNICATION,
    NO_OVERLAP_HIDEABLE,
    OVERLAP_LOW,
    grade,
)
from dsprof.units import format_seconds, format_share

_REDUCTION = ("backward_allreduce", "reduce_grads", "reduce_tied_grads")


def communication_bound(facts: Facts) -> list[Finding] | str:
    """Collectives that nothing hides take a large part of the step."""
    seconds = facts.seconds_of("communication")
    if seconds is None:
        return NO_TIMERS if facts.breakdown is None else "no timer of this run times collectives"
    waited = _waited(facts)
    seconds = max(seconds - waited, 0.0)
    share = facts.share(seconds) or 0.0
    severity = grade(share, COMMUNICATION_WARNING, COMMUNICATION_CRITICAL)
    if severity is None:
        return []
    table = facts.phases_of("communication")
    cause = cause_of(facts, seconds)
    largest = f", most of it {table.index[0]}" if len(table) > 1 and not cause.title else ""
    doubt = facts.doubts.get("memory-breakdown-inflates-backward")
    apart = f", apart from {format_seconds(waited)} of waiting for a late rank" if waited else ""
    return [
        Finding(
            rule="communication-bound",
            severity=severity,
            title=f"{format_share(share)} of a step is communication between ranks"
            f"{largest}{cause.title}",
            summary=f"Collectives hold a step up for {format_seconds(seconds)} of "
            f"{format_seconds(facts.breakdown.seconds if facts.breakdown else 0.0)} "
            f"({facts.windows})"
            f"{apart}. {cause.sentence}" + (f" Low confidence: {doubt}." if doubt else ""),
            share=share,
            seconds_per_step=seconds,
            phase=str(table.index[0]) if len(table) else None,
            evidence=phase_evidence(table),
            advice=cause.advice,
            gain=None if doubt else cause.gain,
            confidence="low" if doubt else "high" if cause.known else "medium",
        )
    ]


def _waited(facts: Facts) -> float:
    """Seconds per step that `straggler-rank` accounts for."""
    late = straggler_rank(facts)
    return 0.0 if isinstance(late, str) else sum(f.seconds_per_step or 0.0 for f in late)


def no_overlap(facts: Facts) -> list[Finding] | str:
    """Communication and computation take turns although they could run together."""
    seconds, compute = facts.seconds_of("communication"), facts.seconds_of("compute")
    if seconds is None or compute is None:
        return NO_TIMERS
    share = facts.share(seconds) or 0.0
    if share < NO_OVERLAP_COMMUNICATION:
        return []
    measured = _measured_overlap(facts)
    advice = overlap_advice(facts)
    if measured is None and facts.layout.zero_stage is None:
        return "neither the ZeRO stage nor exposed communication is known"
    if (measured is not None and measured >= OVERLAP_LOW) or (measured is None and not advice):
        return []
    table = facts.phases_of("communication")
    reduction = table[table.index.isin(_REDUCTION)]
    hideable = min(float(reduction["seconds"].sum()) or seconds, compute)
    if (facts.share(hideable) or 0.0) < NO_OVERLAP_HIDEABLE:
        return []
    said = (
        f"Only {format_share(measured)} of the communication time is hidden behind compute."
        if measured is not None
        else f"The configuration asks for none: {advice[0].setting} is {advice[0].now}."
    )
    return [
        Finding(
            rule="no-overlap",
            severity=Severity.WARNING,
            title=f"Communication ({format_share(share)} of a step) does not overlap with compute",
            summary=f"{said} {format_seconds(seconds)} per step of exposed communication stand "
            f"against {format_seconds(compute)} of compute that could hide "
            f"{format_seconds(hideable)} of it at best ({facts.windows}). Medium "
            "confidence: how much of a reduction can hide depends on when its gradients are ready.",
            share=facts.share(hideable),
            seconds_per_step=hideable,
            phase=str(table.index[0]) if len(table) else None,
            evidence=phase_evidence(table),
            advice=advice,
            gain=promise(hideable),
            confidence="medium",
        )
    ]


def _measured_overlap(facts: Facts) -> float | None:
    """Hidden part of communication time, where both are recorded."""
    comm = trusted(facts.run.comm)
    comm = comm[comm["exposed_seconds"].notna()]
    total = float(comm["seconds"].sum())
    return 1 - float(comm["exposed_seconds"].sum()) / total if total else None
