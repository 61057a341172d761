"""Collectives: how much of a step they hold up, and why, against what they must cost."""

from __future__ import annotations

from typing import Any

import pandas as pd

from dsprof.analysis.collectives import LARGE, SMALL, gathers, per_operation, per_step, trusted
from dsprof.analysis.cost import least_seconds, zero_traffic
from dsprof.analysis.ranks import Straggler
from dsprof.events import Severity
from dsprof.findings.facts import (
    NO_COMM,
    NO_TIMERS,
    Facts,
    phase_evidence,
    promise,
    row_evidence,
)
from dsprof.findings.finding import Advice, Finding
from dsprof.findings.thresholds import (
    COMMUNICATION_CRITICAL,
    COMMUNICATION_WARNING,
    FAR_FROM_MODEL,
    GATHER_STALL_CRITICAL,
    GATHER_STALL_WARNING,
    LINK_CALLS,
    NEAR_MODEL,
    NO_OVERLAP_COMMUNICATION,
    OVERLAP_LOW,
    SLOW_LINK_CRITICAL,
    SLOW_LINK_WARNING,
    SMALL_MESSAGES_SECONDS,
    SMALL_MESSAGES_SHARE,
    grade,
)
from dsprof.units import format_bandwidth, format_bytes, format_count, format_seconds, format_share

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
        missing = "the number of parameters or the layout" if traffic is None else "the link's speed"
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
        f"which explains {'most' if late.delay else 'none'} of it; see straggler-rank.",
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


def slow_link(facts: Facts) -> list[Finding] | str:
    """Even the best large transfers stay far below the link's speed.

    The best decile, because a collective's time contains waiting for the last
    rank: the best calls waited least.
    """
    link = facts.layout.link_bytes_per_second
    comm = trusted(facts.run.comm)
    large = comm[(comm["bytes"] >= LARGE) & comm["busbw"].gt(0)]
    if len(large) < LINK_CALLS:
        return (
            f"fewer than {LINK_CALLS} trustworthy communication lines of "
            f"{format_bytes(LARGE)} or more"
        )
    if not link:
        return "the link's speed is unknown (--link 100Gb states it)"
    best = float(large["busbw"].quantile(0.9))
    severity = grade(-best / link, -SLOW_LINK_WARNING, -SLOW_LINK_CRITICAL)
    if severity is None:
        return []
    shown = large.loc[large["busbw"].sort_values().index[-3:]]
    return [
        Finding(
            rule="slow-link",
            severity=severity,
            title=f"Large transfers reach {format_bandwidth(best)} of the link's "
            f"{format_bandwidth(link)}",
            summary=f"The fastest tenth of {len(large):,} calls of {format_bytes(LARGE)} and more "
            f"has a bus bandwidth of {format_bandwidth(best)}, {format_share(best / link)} of the "
            "link. Waiting for a late rank slows the median, not the fastest: the path itself is "
            "slow (medium confidence: the link's speed is what was stated).",
            phase=str(large["op"].astype(str).mode().iloc[0]),
            evidence=tuple(
                row_evidence(
                    row,
                    f"{row['op']} of {format_bytes(row['bytes'])} in "
                    f"{format_seconds(row['seconds'])}: {format_bandwidth(row['busbw'])}",
                )
                for _, row in shown.iterrows()
            ),
            advice=(
                Advice("NCCL_DEBUG", "", "INFO", "shows NET/Socket or NET/IB and GPUDirect (GDRDMA)"),
                Advice("NCCL_IB_HCA, NCCL_SOCKET_IFNAME", "", "the fast adapters", "NCCL may pick a slow one"),
            ),
            confidence="medium",
        )
    ]


def small_messages(facts: Facts) -> list[Finding] | str:
    """Communication time goes into messages too small to use the link."""
    comm = trusted(facts.run.comm)
    if comm.empty:
        return NO_COMM
    factor = per_step(comm, facts.run.steps)
    if factor is None:
        return "the calls cannot be set against steps: no step has a time"
    table = per_operation(comm)
    total, small = float(table["seconds"].sum()), float(table["small_seconds"].sum())
    seconds = small * factor
    share = facts.share(seconds) or 0.0
    if small < SMALL_MESSAGES_SECONDS * total or share < SMALL_MESSAGES_SHARE:
        return []
    calls = float(table["small_count"].sum()) * factor
    worst = str(table["small_seconds"].idxmax())
    rows = comm[(comm["op"].astype(str) == worst) & (comm["bytes"] < SMALL)]
    shown = rows.loc[rows["seconds"].sort_values().index[-1]]
    return [
        Finding(
            rule="small-messages",
            severity=Severity.WARNING,
            title=f"{format_share(small / total)} of communication time goes into messages under "
            f"{format_bytes(SMALL)}: latency, not bandwidth",
            summary=f"About {format_count(round(calls))} such calls per step take "
            f"{format_seconds(seconds)}, mostly {worst}. Small messages cost their start, whatever "
            "the link's speed; merging them costs nothing (medium confidence: timed one by one, "
            "they cannot hide behind compute as they might without the log).",
            share=share,
            seconds_per_step=seconds,
            phase=worst,
            evidence=(
                row_evidence(
                    shown,
                    f"{worst} of {format_bytes(shown['bytes'])} in {format_seconds(shown['seconds'])}",
                ),
            ),
            advice=_bucket_advice(facts, worst),
            gain=promise(seconds),
            confidence="medium",
        )
    ]


def _bucket_advice(facts: Facts, operation: str) -> tuple[Advice, ...]:
    def now(key: str) -> str:
        value = facts.setting(f"zero_optimization.{key}")
        return "" if value is None else str(value)

    if "gather" in operation and facts.layout.zero_stage == 3:
        return (
            _advice_for("stage3_param_persistence_threshold", now, "1e6", "small parameters stay"),
            _advice_for("stage3_prefetch_bucket_size", now, "5e8", "more is gathered in one call"),
        )
    key = "allgather_bucket_size" if "gather" in operation else "reduce_bucket_size"
    return (_advice_for(key, now, "5e8", "fewer and larger messages"),)


def _advice_for(key: str, now: Any, to: str, why: str) -> Advice:
    return Advice(f"zero_optimization.{key}", now(key), to, why)


def zero3_gather_stall(facts: Facts) -> list[Finding] | str:
    """ZeRO-3 stops to fetch parameters that should have been prefetched."""
    if facts.layout.zero_stage not in (None, 3):
        return "not a ZeRO-3 run"
    broken = facts.run.problems[facts.run.problems["kind"] == "prefetch-broken"]
    stall, exact = _gather_seconds(facts)
    if stall is None and broken.empty:
        return (
            "parameter gathers are inside forward and backward and no line times them "
            '("comms_logger": {"enabled": true} or dsprof attach shows them)'
        )
    share = facts.share(stall) or 0.0
    severity = grade(share, GATHER_STALL_WARNING, GATHER_STALL_CRITICAL)
    if severity is None and broken.empty:
        return []
    return [_gather_finding(facts, stall, exact, severity or Severity.WARNING, broken)]


def _gather_seconds(facts: Facts) -> tuple[float | None, bool]:
    """Seconds per step spent on gathers, and whether all of them are exposed."""
    if facts.breakdown is not None:
        fetch = facts.breakdown.phases
        fetch = fetch[fetch.index.str.endswith("fetch_wait")]
        if len(fetch):
            return float(fetch["seconds"].sum()), True
    comm = gathers(trusted(facts.run.comm))
    factor = per_step(comm, facts.run.steps)
    if comm.empty or factor is None or facts.layout.zero_stage != 3:
        return None, False
    exposed = comm["exposed_seconds"].dropna()
    if len(exposed):
        return float(exposed.sum()) * factor, True
    return float(comm["seconds"].sum()) * factor, False


def _gather_finding(
    facts: Facts, stall: float | None, exact: bool, severity: Severity, broken: pd.DataFrame
) -> Finding:
    share = facts.share(stall)
    title, said = "ZeRO-3's parameter prefetch is broken", ""
    if stall is not None and share is not None:
        title = f"{format_share(share)} of a step is spent gathering ZeRO-3 parameters"
        said = f"Gathering takes {format_seconds(stall)} per step. "
        if not exact:
            said += (
                "The communication logger waits for every call, so without it part of this hides "
                "behind compute: an upper bound, hence low confidence. "
            )
    if len(broken):
        said += (
            f"The trace of parameter uses was invalidated {len(broken):,} times: modules run in "
            "another order than before, and each such step fetches late."
        )
    return Finding(
        rule="zero3-gather-stall",
        severity=severity if exact or stall is None else Severity.WARNING,
        title=title,
        summary=said.strip(),
        share=share,
        seconds_per_step=stall,
        phase="all_gather" if stall is not None else None,
        evidence=tuple(row_evidence(row, str(row["text"])) for _, row in broken.head(3).iterrows())
        + _gather_evidence(facts),
        advice=(
            *_bucket_advice_of_gathers(facts),
            Advice(
                "zero_optimization.stage", "3", "2", "if parameters fit: nothing is gathered twice"
            ),
        ),
        gain=promise(stall) if stall is not None and exact else None,
        confidence="high" if exact else "low" if stall is not None else "medium",
    )


def _gather_evidence(facts: Facts) -> tuple[Any, ...]:
    comm = gathers(trusted(facts.run.comm))
    longest = comm.loc[comm["seconds"].sort_values().index[-2:]]
    return tuple(
        row_evidence(
            row, f"{row['op']} of {format_bytes(row['bytes'])}: {format_seconds(row['seconds'])}"
        )
        for _, row in longest.iterrows()
    )


def _bucket_advice_of_gathers(facts: Facts) -> tuple[Advice, ...]:
    def now(key: str) -> str:
        value = facts.setting(f"zero_optimization.{key}")
        return "" if value is None else str(value)

    return (
        _advice_for("stage3_prefetch_bucket_size", now, "5e8", "fetches further ahead"),
        _advice_for("stage3_max_live_parameters", now, "1e9 or more", "keeps fetched ones longer"),
    )
