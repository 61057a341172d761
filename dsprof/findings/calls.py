"""Single communication calls: slow paths, small messages, ZeRO-3's parameter gathers."""

from __future__ import annotations

from typing import Any

import pandas as pd

from dsprof.analysis.collectives import LARGE, SMALL, gathers, per_operation, per_step, trusted
from dsprof.events import Severity
from dsprof.findings.facts import NO_COMM, Facts, largest, promise, row_evidence
from dsprof.findings.finding import Advice, Evidence, Finding
from dsprof.findings.thresholds import (
    GATHER_STALL_CRITICAL,
    GATHER_STALL_WARNING,
    LINK_CALLS,
    SLOW_LINK_CRITICAL,
    SLOW_LINK_WARNING,
    SMALL_MESSAGES_CALLS,
    SMALL_MESSAGES_SECONDS,
    SMALL_MESSAGES_SHARE,
    grade,
)
from dsprof.units import format_bandwidth, format_bytes, format_count, format_seconds, format_share


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
    shown = large.sort_values("busbw").tail(3)
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
                row_evidence(row, f"{_call(row)}: {format_bandwidth(row['busbw'])}")
                for _, row in shown.iterrows()
            ),
            advice=(
                Advice(
                    "NCCL_DEBUG", "", "INFO", "shows NET/Socket or NET/IB and GPUDirect (GDRDMA)"
                ),
                Advice(
                    "NCCL_IB_HCA, NCCL_SOCKET_IFNAME",
                    "",
                    "the fast adapters",
                    "NCCL may pick a slow one",
                ),
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
    calls = float(table["small_count"].sum()) * factor
    few = calls < SMALL_MESSAGES_CALLS or share < SMALL_MESSAGES_SHARE
    if few or small < SMALL_MESSAGES_SECONDS * total:
        return []
    worst = str(table["small_seconds"].idxmax())
    rows = comm[(comm["op"].astype(str) == worst) & (comm["bytes"] < SMALL)]
    shown = largest(rows, "seconds")
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
            evidence=(row_evidence(shown, _call(shown)),),
            advice=_bucket_advice(facts, worst),
            gain=promise(seconds),
            confidence="medium",
        )
    ]


def _bucket_advice(facts: Facts, operation: str) -> tuple[Advice, ...]:
    if "gather" in operation and facts.layout.zero_stage == 3:
        return (
            _zero(facts, "stage3_param_persistence_threshold", "1e6", "small ones stay gathered"),
            _zero(facts, "stage3_prefetch_bucket_size", "5e8", "more is gathered in one call"),
        )
    key = "allgather_bucket_size" if "gather" in operation else "reduce_bucket_size"
    return (_zero(facts, key, "5e8", "fewer and larger messages"),)


def _zero(facts: Facts, key: str, to: str, why: str) -> Advice:
    path = f"zero_optimization.{key}"
    now = facts.setting(path)
    return Advice(path, "" if now is None else str(now), to, why)


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
            "another order than before, and each such step fetches late. "
            + ("Medium confidence: what that costs is not in the log." if stall is None else "")
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
            _zero(facts, "stage3_prefetch_bucket_size", "5e8", "fetches further ahead"),
            _zero(facts, "stage3_max_live_parameters", "1e9 or more", "keeps fetched ones longer"),
            Advice(
                "zero_optimization.stage", "3", "2", "if parameters fit: nothing is gathered twice"
            ),
        ),
        gain=promise(stall) if stall is not None and exact else None,
        confidence="high" if exact else "low" if stall is not None else "medium",
    )


def _gather_evidence(facts: Facts) -> tuple[Evidence, ...]:
    comm = gathers(trusted(facts.run.comm))
    longest = comm.sort_values("seconds").tail(2)
    return tuple(row_evidence(row, _call(row)) for _, row in longest.iterrows())


def _call(row: pd.Series[Any]) -> str:
    count = max(1.0, float(row["count"]))
    each = format_seconds(float(row["seconds"]) / count)
    many = f"{int(count):,} times " if count > 1 else ""
    return f"{many}{row['op']} of {format_bytes(row['bytes'])} in {each}"
