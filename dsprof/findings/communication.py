"""Collectives: how much of a step they hold up, and why, against what they must cost."""

from __future__ import annotations

from dsprof.analysis.collectives import trusted
from dsprof.analysis.cost import least_seconds, zero_traffic
from dsprof.analysis.ranks import Straggler
from dsprof.events import Severity
from dsprof.findings.facts import (
    NO_TIMERS,
    Facts,
    phase_evidence,
    promise,
)
from dsprof.findings.finding import Advice, Finding
from dsprof.findings.thresholds import (
    COMMUNICATION_CRITICAL,
    COMMUNICATION_WARNING,
    FAR_FROM_MODEL,
    NEAR_MODEL,
    NO_OVERLAP_COMMUNICATION,
    OVERLAP_LOW,
    grade,
)
from dsprof.units import format_bandwidth, format_bytes, format_seconds, format_share

_REDUCTION = ("backward_allreduce", "reduce_grads", "reduce_tied_grads")


def communication_bound(facts: Facts) -> list[Finding] | str:
    """Collectives that nothing hides take a large part of the step."""
    seconds = facts.seconds_of("communication")
    if seconds is None:
        return NO_TIMERS if facts.breakdown is None else "no timer of this run times collectives"
    share = facts.share(seconds) or 0.0
    severity = grade(share, COMMUNICATION_WARNING, COMMUNICATION_CRITICAL)
    if severity is None:
        return []
    table = facts.phases_of("communication")
    largest = f", most of it {table.index[0]}" if len(table) > 1 else ""
    cause, advice, gain, sure = _cause(facts, seconds)
    return [
        Finding(
            rule="communication-bound",
            severity=severity,
            title=f"{format_share(share)} of a step is communication between GPUs{largest}{cause[0]}",
            summary=f"Collectives hold a step up for {format_seconds(seconds)} of "
            f"{format_seconds(facts.breakdown.seconds if facts.breakdown else 0.0)} "
            f"({facts.windows}). {cause[1]}",
            share=share,
            seconds_per_step=seconds,
            phase=str(table.index[0]) if len(table) else None,
            evidence=phase_evidence(table),
            advice=advice,
            gain=gain,
            confidence="high" if sure else "medium",
        )
    ]


def _cause(
    facts: Facts, seconds: float
) -> tuple[tuple[str, str], tuple[Advice, ...], tuple[float, float] | None, bool]:
    """Why collectives take that long: (title, sentence), advice, gain, whether it is known."""
    late = facts.straggler
    if late is not None and late.delay >= seconds / 2:
        return _late_peer(late), (), promise(min(late.delay, seconds)), True
    traffic = zero_traffic(facts.layout)
    least = least_seconds(traffic, facts.layout)
    if traffic is None or least is None:
        missing = (
            "the number of parameters or the layout" if traffic is None else "the link's speed"
        )
        sentence = (
            "Bandwidth, many small messages and waiting for a slower peer cannot be told apart: "
            f"{missing} is unknown (--link 100Gb states the speed of a node's link), "
            "hence medium confidence about the cure."
        )
        return ("", sentence), _less_traffic(facts), None, False
    fact = (
        f"{format_bytes(traffic.total)} must cross each node's link per step, at least "
        f"{format_seconds(least)} at {format_bandwidth(facts.layout.link_bytes_per_second or 0)}"
    )
    if seconds <= NEAR_MODEL * least:
        hidden = facts.seconds_of("compute") or 0.0
        title = ": as much as the link's bandwidth asks for"
        sentence = f"{fact}: the link is used about as well as it can be. Move less, or hide it."
        return (title, sentence), _less_traffic(facts), promise(min(seconds / 2, hidden)), True
    if seconds < FAR_FROM_MODEL * least:
        sentence = f"{fact}: {seconds / least:.1f} times that is neither ideal nor alarming."
        return ("", sentence), _less_traffic(facts), promise(seconds - least), True
    sentence = (
        f"{fact}: it takes {seconds / least:.0f} times as long. That is not bandwidth but waiting "
        "for a slower peer, latency of many small messages, or a link below its speed; a "
        "recording of every rank (dsprof attach) tells which, hence medium confidence."
    )
    title = f", {seconds / least:.0f} times what the link needs"
    return (title, sentence), _look_closer(facts), promise(seconds - least), False


def _late_peer(late: Straggler) -> tuple[str, str]:
    return (
        f": the others wait for rank {late.rank}",
        f"Rank {late.rank} arrives {format_seconds(late.delay)} per step after the median rank, "
        "which explains at least half of it; see straggler-rank.",
    )


def _less_traffic(facts: Facts) -> tuple[Advice, ...]:
    accumulation = facts.layout.micro_batches
    advice = []
    if facts.layout.zero_stage in (None, 0, 1):
        advice.append(
            Advice(
                "gradient_accumulation_steps",
                str(accumulation or ""),
                str(2 * accumulation) if accumulation else "twice as many",
                "gradients are reduced once per step: twice the micro-batches halve the "
                "communication per sample (mind the larger batch)",
            )
        )
    advice += _overlap_advice(facts)
    if facts.layout.element_bytes == 4:
        advice.append(
            Advice("bf16.enabled", "false", "true", "half the bytes for gradients and parameters")
        )
    return tuple(advice)


def _look_closer(facts: Facts) -> tuple[Advice, ...]:
    return (
        Advice(
            "NCCL_DEBUG",
            "",
            "INFO",
            "says which network and which path each pair of ranks uses",
        ),
        *_overlap_advice(facts),
    )


def _overlap_advice(facts: Facts) -> tuple[Advice, ...]:
    """What makes the reduction run beside backward, where it does not yet."""
    stage = facts.layout.zero_stage
    overlap = facts.setting("zero_optimization.overlap_comm")
    if stage == 0:
        return (
            Advice(
                "zero_optimization.stage",
                "0",
                "1 with overlap_comm true",
                "stage 0 reduces only after backward has ended; ZeRO reduces buckets during it",
            ),
        )
    if stage in (1, 2) and overlap is not True and facts.has_config:
        return (
            Advice(
                "zero_optimization.overlap_comm",
                "false" if overlap is False else "unset (false)",
                "true",
                "buckets of gradients are reduced while backward still computes",
            ),
        )
    return ()


def no_overlap(facts: Facts) -> list[Finding] | str:
    """Communication and computation take turns although they could run together."""
    seconds, compute = facts.seconds_of("communication"), facts.seconds_of("compute")
    if seconds is None or compute is None:
        return NO_TIMERS
    share = facts.share(seconds) or 0.0
    if share < NO_OVERLAP_COMMUNICATION:
        return []
    measured = _measured_overlap(facts)
    advice = _overlap_advice(facts)
    if measured is None and facts.layout.zero_stage is None:
        return "neither the ZeRO stage nor exposed communication is known"
    if (measured is not None and measured >= OVERLAP_LOW) or (measured is None and not advice):
        return []
    table = facts.phases_of("communication")
    reduction = table[table.index.isin(_REDUCTION)]
    hideable = min(float(reduction["seconds"].sum()) or seconds, compute)
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
            f"{format_seconds(hideable)} of it at best ({facts.windows}).",
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
