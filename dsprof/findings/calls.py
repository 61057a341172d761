"""Single communication calls: slow paths, small messages, ZeRO-3's parameter gathers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd

from dsprof.analysis.collectives import (
    INTO_LISTS,
    LARGE,
    SMALL,
    apart_from_gathers,
    gathers,
    per_operation,
    trusted,
    waiting_share,
)
from dsprof.events import Severity
from dsprof.findings.advice import change, nccl_debug
from dsprof.findings.evidence import largest, row_evidence
from dsprof.findings.facts import NO_COMM, Facts, once
from dsprof.findings.finding import Advice, Evidence, Finding
from dsprof.findings.ranks import late_seconds
from dsprof.findings.thresholds import (
    AROUND_CALLS,
    COMMUNICATION_CRITICAL,
    GAIN_LOW,
    GATHER_STALL_CRITICAL,
    GATHER_STALL_WARNING,
    LINK_CALLS,
    PREFETCH_BROKEN,
    PREFETCH_BROKEN_LEAST,
    SLOW_LINK_CRITICAL,
    SLOW_LINK_WARNING,
    SMALL_MESSAGES_CALLS,
    SMALL_MESSAGES_SECONDS,
    SMALL_MESSAGES_SHARE,
    grade,
)
from dsprof.run.table import numbers, where
from dsprof.units import format_bandwidth, format_bytes, format_count, format_seconds, format_share

_AROUND = "more than the calls take, because what prepares each of them is saved as well"


def slow_link(facts: Facts) -> list[Finding] | str:
    """Even the fastest large transfers stay far below the link's speed.

    Judges the fastest tenth: a collective's time includes waiting for the last rank, and the
    fastest calls waited least.
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
                row_evidence(row, f"{call_words(row)}: {format_bandwidth(row['busbw'])}")
                for _, row in shown.iterrows()
            ),
            advice=(
                *nccl_debug(facts, "shows NET/Socket or NET/IB and GPUDirect (GDRDMA)"),
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


@once
def small_messages(facts: Facts) -> list[Finding] | str:
    """Communication time goes into messages too small to use the link.

    ZeRO-3's gathers are left to `zero3-gather-stall`, because there it matters when they are made.
    What ranks wait for each other in these calls is no latency: fewer calls wait as long.
    Gain: at best all of their time, merged into a few calls, if a bucket can be enlarged; in a
    recording at least that, and at best also the time to prepare the calls.
    """
    comm, factor = facts.held_up, facts.per_step
    if comm.empty:
        return NO_COMM
    if factor is None or facts.step_seconds is None:
        return "the calls cannot be compared with steps: no step has a time"
    if facts.layout.zero_stage == 3 and facts.exposure_is_known:
        comm = apart_from_gathers(comm)
        if comm.empty:
            return []
    table = per_operation(comm)
    waited = max(late_seconds(facts) / factor, _waited(facts, comm))
    total = float(table["seconds"].sum()) - waited
    small = max(0.0, float(table["small_seconds"].sum()) - waited)
    seconds = min(small * factor, _most(facts))
    share = facts.share(seconds) or 0.0
    if share > 1:
        return "the calls take longer than a step: they overlap, or do not belong to these steps"
    calls = float(table["small_count"].sum()) * factor
    few = calls < SMALL_MESSAGES_CALLS or share < SMALL_MESSAGES_SHARE
    if few or small < SMALL_MESSAGES_SECONDS * total:
        return []
    worst = str(table["small_seconds"].idxmax())
    advice = _bucket_advice(facts, worst)
    return [
        Finding(
            rule="small-messages",
            severity=_small_severity(facts, share),
            title=f"{format_share(small / (total + waited))} of communication time goes into "
            f"messages under {format_bytes(SMALL)}: latency, not bandwidth",
            summary=_small_words(
                calls,
                seconds,
                worst,
                advice,
                waited=min(waited, float(table["small_seconds"].sum())) * factor,
                summed=bool(comm["total"].any()),
                sure=facts.exposure_is_known,
            ),
            share=share,
            seconds_per_step=seconds,
            phase=worst,
            evidence=_small_evidence(comm, worst),
            advice=advice,
            gain=_fewer(facts, seconds) if advice else None,
            gain_why=_beyond(facts, seconds) if advice else "",
            confidence="high" if facts.exposure_is_known else "medium",
        )
    ]


def _waited(facts: Facts, comm: pd.DataFrame) -> float:
    """Seconds, of all small calls, in which ranks of a recording wait for the one that comes last,
    whichever that is.
    """
    if not facts.exposure_is_known:
        return 0.0
    small = where(comm, numbers(comm["bytes"]) < SMALL)
    return waiting_share(small) * float(small["seconds"].sum())


def _most(facts: Facts) -> float:
    """Seconds per step that calls can hold it up at most: a recording's own communication. Where
    ranks end unequally many steps, the mean call of a step is not that of all steps.
    """
    known = facts.seconds_of("communication") if facts.exposure_is_known else None
    return math.inf if known is None else max(0.0, known - late_seconds(facts))


def _fewer(facts: Facts, seconds: float) -> tuple[float, float]:
    """What is saved if many calls become few, in seconds per step."""
    low = 1.0 if facts.exposure_is_known else GAIN_LOW
    return low * seconds, _altogether(facts, seconds)


def _altogether(facts: Facts, seconds: float) -> float:
    """What calls cost including the work around them, at most half of what is computed (of the rest
    of the step if that is unknown), because the model computes, too. The times of a logger are
    already complete.
    """
    if not facts.exposure_is_known or facts.step_seconds is None:
        return seconds
    computed = facts.seconds_of("compute", "optimizer")
    rest = facts.step_seconds - seconds if computed is None else computed
    return seconds + min((AROUND_CALLS - 1) * seconds, rest / 2)


def _beyond(facts: Facts, seconds: float) -> str:
    """Why more than that can be saved; "" if it cannot."""
    return _AROUND if _altogether(facts, seconds) > seconds else ""


def _small_severity(facts: Facts, share: float) -> Severity:
    """A recording's time is known to hold up the step; that of logged calls might overlap without
    the logger, so it is a warning at most.
    """
    known = grade(share, SMALL_MESSAGES_SHARE, COMMUNICATION_CRITICAL)
    return known if known and facts.exposure_is_known else Severity.WARNING


def small_seconds(facts: Facts) -> float:
    """Seconds per step that `small-messages` accounts for, if they are measured as exposed."""
    return _exposed_seconds(facts, small_messages)


def stall_seconds(facts: Facts) -> float:
    """The same for `zero3-gather-stall`."""
    return _exposed_seconds(facts, zero3_gather_stall)


def _exposed_seconds(facts: Facts, rule: Callable[[Facts], Sequence[Finding] | str]) -> float:
    found = rule(facts) if facts.exposure_is_known else ""
    return 0.0 if isinstance(found, str) else sum(one.seconds_per_step or 0.0 for one in found)


def _small_words(
    calls: float,
    seconds: float,
    worst: str,
    advice: tuple[Advice, ...],
    *,
    waited: float,
    summed: bool,
    sure: bool,
) -> str:
    many, most = format_count(round(calls)), "at most " if summed else ""
    serial = "timed one by one, they cannot overlap with compute as they might without the logger"
    said = [
        f"About {many} such calls per step take {most}{format_seconds(seconds)}, mostly {worst}.",
        f"Beside that the ranks wait {format_seconds(waited)} for each other in them, which fewer "
        "calls do not change."
        if waited
        else "",
        "Their table also counts calls during set-up." if summed else "",
        "Small messages cost start-up latency, whatever the link's speed.",
        "" if advice else "No bucket size causes them: the messages themselves are small.",
        "" if sure else f"Medium confidence: {serial}.",
    ]
    return " ".join(filter(None, said))


def _small_evidence(comm: pd.DataFrame, operation: str) -> tuple[Evidence, ...]:
    rows = comm[(comm["op"] == operation) & (comm["bytes"] < SMALL)]
    row = largest(rows, "seconds")
    return (row_evidence(row, call_words(row)),)


def _bucket_advice(facts: Facts, operation: str) -> tuple[Advice, ...]:
    """Larger buckets for `operation`, if a bucket size governs it and is below DeepSpeed's default.

    None governs what a recorded job gathers into lists.
    """
    if facts.exposure_is_known and operation == INTO_LISTS:
        return ()
    if facts.is_torch_alone:
        return _of_torch(facts, operation)
    keys = {"reduce_bucket_size": ("5e8", "fewer and larger messages")}
    if "gather" in operation and facts.layout.zero_stage == 3:
        keys = {
            "stage3_param_persistence_threshold": ("1e6", "small ones stay gathered"),
            "stage3_prefetch_bucket_size": ("5e8", "more is gathered in one call"),
        }
    elif "gather" in operation:
        keys = {"allgather_bucket_size": ("5e8", "fewer and larger messages")}
    elif "reduce" not in operation:
        return ()
    return tuple(one for key, (to, why) in keys.items() for one in _zero(facts, key, to, why))


def _of_torch(facts: Facts, operation: str) -> tuple[Advice, ...]:
    """The same for FSDP2 and DDP: one gathers and scatters, the other reduces in backward.

    Other models have no data-parallel size. The calls of tensor parallelism are in no bucket.
    """
    if facts.run.is_recording and facts.layout.data_parallel is None:
        return ()
    if "gather" in operation or "scatter" in operation:
        return (Advice("fully_shard", "", "on larger modules", "fewer and larger messages"),)
    if operation == "all_reduce" and _is_of_backward(facts, operation):
        why = "fewer and larger messages, where DDP sends them"
        return (Advice("DistributedDataParallel(bucket_cap_mb=...)", "", "larger", why),)
    return ()


def _is_of_backward(facts: Facts, operation: str) -> bool:
    """Whether most of what its small calls hold up is backward, and not a trainer's own
    reductions.
    """
    calls = facts.held_up
    calls = calls[(calls["op"] == operation) & (calls["bytes"] < SMALL)]
    inside = calls["phase"].astype(str).str.startswith("backward")
    return 2 * float(calls["seconds"][inside].sum()) > float(calls["seconds"].sum())


def _zero(facts: Facts, key: str, to: str, why: str) -> tuple[Advice, ...]:
    return change(facts, f"zero_optimization.{key}", to, why, least=True)


@once
def zero3_gather_stall(facts: Facts) -> list[Finding] | str:
    """ZeRO-3 stops to fetch parameters that should have been prefetched.

    Gain: at best all of the exposed waiting and the preparation of the calls; none if only an upper
    bound is known.
    """
    stage = facts.layout.zero_stage
    is_untold = stage is None and not facts.run.is_recording  # a recording has an engine's stage
    if facts.is_torch_alone or not (stage == 3 or is_untold):
        return "not a ZeRO-3 run"
    if facts.layout.world_size == 1:
        return "a single rank gathers from no other"
    broken = facts.run.problems[facts.run.problems["kind"] == "prefetch-broken"]
    stall, exact = _gather_seconds(facts)
    often = _often(facts, len(broken))
    if stall is None and not often:
        return (
            "parameter gathers are inside forward and backward and no line times them "
            '("comms_logger": {"enabled": true} or dsprof attach shows them)'
        )
    share = facts.share(stall) or 0.0
    severity = grade(share, GATHER_STALL_WARNING, GATHER_STALL_CRITICAL)
    if severity is None and not often:
        return []
    return [_gather_finding(facts, stall, exact, severity or Severity.WARNING, broken)]


def _often(facts: Facts, times: int) -> bool:
    """Whether the order of modules changes in enough steps for a finding.

    A few invalidations are normal, however few steps there are: in the first steps, an evaluation,
    an unusual batch.
    """
    known = facts.run.steps["step"]
    steps = int(known.max() - known.min()) + 1 if len(known) else 1
    return times >= max(PREFETCH_BROKEN_LEAST, PREFETCH_BROKEN * steps)


def _gather_seconds(facts: Facts) -> tuple[float | None, bool]:
    """Seconds per step of gathers, and whether all of that is exposed."""
    if facts.breakdown is not None:
        fetch = facts.breakdown.phases
        fetch = fetch[fetch.index.str.endswith("fetch_wait")]
        if len(fetch):
            return float(fetch["seconds"].sum()), True
    comm, factor = gathers(facts.held_up), facts.per_step
    if comm.empty or factor is None or facts.layout.zero_stage != 3:
        return None, False
    seconds = float(comm["seconds"].sum()) * factor
    if facts.exposure_is_known:
        return max(0.0, seconds - late_seconds(facts, "gather")), True
    return seconds, False


def _gather_finding(
    facts: Facts, stall: float | None, exact: bool, severity: Severity, broken: pd.DataFrame
) -> Finding:
    share = facts.share(stall)
    times = f"{len(broken):,} times" if len(broken) > 1 else "once"
    title, said = f"ZeRO-3 lost its trace of modules {times}: it then prefetches no parameters", ""
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
            f"The trace of parameter uses was invalidated {times}: other modules ran than before, "
            "or in another order. Until it is recorded again, parameters are fetched late. "
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
            *_zero(facts, "stage3_prefetch_bucket_size", "5e8", "fetches further ahead"),
            *_zero(facts, "stage3_max_live_parameters", "2e9", "keeps fetched ones longer"),
            Advice(
                "zero_optimization.stage", "3", "2", "if parameters fit: nothing is gathered twice"
            ),
        ),
        gain=(GAIN_LOW * stall, _altogether(facts, stall)) if stall is not None and exact else None,
        gain_why=_beyond(facts, stall) if stall is not None and exact else "",
        confidence="high" if exact else "low" if stall is not None else "medium",
    )


def _gather_evidence(facts: Facts) -> tuple[Evidence, ...]:
    comm = gathers(facts.held_up)
    longest = comm.sort_values("seconds").tail(2)
    return tuple(row_evidence(row, call_words(row)) for _, row in longest.iterrows())


def call_words(row: pd.Series[Any]) -> str:
    """A call in words: `40 times all_reduce of 4.00 KiB in 196 ms, 4.89 ms each`."""
    count, seconds = max(1.0, float(row["count"])), float(row["seconds"])
    said = f"{row['op']} of {format_bytes(row['bytes'])} in {format_seconds(seconds)}"
    if count == 1:
        return said
    return f"{int(count):,} times {said}, {format_seconds(seconds / count)} each"
