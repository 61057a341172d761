"""Communication that could run beside computation, and does not."""

from __future__ import annotations

import re
from typing import Final

import pandas as pd

from dsprof.analysis.collectives import (
    SMALL,
    during_steps,
    operations,
    trusted,
    waiting_share,
)
from dsprof.events import Severity
from dsprof.findings.communication.traffic import (
    REDUCTION,
    beyond_gradients,
    overlap_advice,
    overlap_is_off,
    reduction_seconds,
)
from dsprof.findings.communication.uneven import input_seconds
from dsprof.findings.evidence import phase_evidence
from dsprof.findings.facts import COLLECTING, Facts, promise
from dsprof.findings.finding import Advice, Finding
from dsprof.findings.ranks.accounted import late_seconds
from dsprof.findings.thresholds import (
    NO_OVERLAP_COMMUNICATION,
    NO_OVERLAP_HIDEABLE,
    NO_OVERLAP_REDUCTION,
    OVERLAP_LOW,
    WAITING_WORTH_NAMING,
)
from dsprof.run.table import numbers, where
from dsprof.units import format_bytes, format_seconds, format_share

_REDUCES = re.compile("reduce", re.ASCII)
_FORWARD, _BACKWARD = "forward", "backward"
_BUCKETS: Final = 4  #: how many to advise: all but the last may hide behind backward
_ROUNDING: Final = 0.01  #: of one call per step


def no_overlap(facts: Facts) -> list[Finding] | str:
    """Communication and computation take turns although they could run together.

    Gain: at best the shorter of the reduction and the compute it could hide behind.
    """
    seconds, compute = facts.seconds_of("communication"), facts.seconds_of("compute")
    is_alone = facts.layout.world_size == 1
    if seconds is None or compute is None or is_alone:
        untimed = "communication and compute are not both timed"
        return "a single rank reduces with no other" if is_alone else untimed
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
    late = _waited(facts, facts.held_up) if facts.exposure_is_known else 0.0  # which nothing hides
    exposed = max(seconds - late, 0.0)
    share = format_share(facts.share(exposed) or 0.0)
    apart = f", apart from {format_seconds(late)} of waiting for each other," if late else ""
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
    next layer waits for, and not gradients; nor are what the script sends itself and is larger than
    these.
    """
    if not facts.exposure_is_known:
        return None
    calls = facts.held_up
    calls = where(calls, operations(calls, _REDUCES) & (numbers(calls["bytes"]) >= SMALL))
    activations = calls["group"][calls["phase"].astype("str").str.startswith(_FORWARD)].unique()
    gradients = ~calls["group"].isin(activations)
    gradients &= calls["phase"].notna() | ~calls["op"].isin(beyond_gradients(facts))
    calls = where(calls, gradients.to_numpy(bool))
    seconds = float(calls["seconds"].sum()) * (facts.per_step or 0.0)
    return max(seconds - _waited(facts, calls), 0.0)


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


def _waited(facts: Facts, calls: pd.DataFrame) -> float:
    """Seconds per step of waiting in these calls for a rank that is late, or for one whose input
    is, or else for whichever comes last, if that is a part worth naming: jitter is not.
    """
    known = late_seconds(facts) or input_seconds(facts)
    share = waiting_share(calls)
    if share < WAITING_WORTH_NAMING:
        return known
    return max(known, share * float(calls["seconds"].sum()) * (facts.per_step or 0.0))


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
