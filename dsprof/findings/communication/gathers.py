"""ZeRO-3's parameter gathers."""

from __future__ import annotations

import pandas as pd

from dsprof.analysis.collectives import gathers, waiting_share
from dsprof.events import Severity
from dsprof.findings.advice import switched_off
from dsprof.findings.beside.evaluations import of_training
from dsprof.findings.beside.saves import steps_made
from dsprof.findings.communication.calls import (
    altogether,
    beyond,
    call_words,
    exposed_seconds,
    of_zero,
)
from dsprof.findings.evidence import row_evidence
from dsprof.findings.facts import Facts, once
from dsprof.findings.failures.traces import LEAVES, lost
from dsprof.findings.finding import Advice, Evidence, Finding
from dsprof.findings.ranks.accounted import late_seconds
from dsprof.findings.thresholds import (
    GAIN_LOW,
    GATHER_STALL_CRITICAL,
    GATHER_STALL_WARNING,
    PREFETCH_BROKEN,
    PREFETCH_BROKEN_LEAST,
    grade,
)
from dsprof.units import format_seconds, format_share


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
    broken = lost(facts.run)
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
    return [_gather_finding(facts, stall, exact, severity, broken)]


def stall_seconds(facts: Facts) -> float:
    """The same for `zero3-gather-stall`."""
    return exposed_seconds(facts, zero3_gather_stall)


def _often(facts: Facts, times: int) -> bool:
    """Whether the order of modules changes in enough steps for a finding.

    A few invalidations are normal, however few steps there are: in the first steps, an evaluation,
    an unusual batch.
    """
    return times >= PREFETCH_BROKEN_LEAST and times >= PREFETCH_BROKEN * steps_made(facts)


def _gather_seconds(facts: Facts) -> tuple[float | None, bool]:
    """Seconds per step of gathers, and whether all of that is exposed."""
    if facts.breakdown is not None:
        fetch = facts.breakdown.phases
        fetch = fetch[fetch.index.str.endswith("fetch_wait")]
        if len(fetch):
            return float(fetch["seconds"].sum()), True
    comm, factor = gathers(of_training(facts, facts.held_up)), facts.per_step
    if comm.empty or factor is None or facts.layout.zero_stage != 3:
        return None, False
    seconds = float(comm["seconds"].sum()) * factor
    if facts.exposure_is_known:
        return max(0.0, seconds - _waited(facts, comm, seconds)), True
    return seconds, False


def _waited(facts: Facts, comm: pd.DataFrame, seconds: float) -> float:
    """The part of `seconds` per step of recorded gathers in which ranks wait for one that comes
    late, now and then or always: to fetch further ahead shortens nothing of it.
    """
    return max(late_seconds(facts, "gather"), waiting_share(comm) * seconds)


def _gather_finding(
    facts: Facts, stall: float | None, exact: bool, severity: Severity | None, broken: pd.DataFrame
) -> Finding:
    share = facts.share(stall)
    times = f"{len(broken):,} times" if len(broken) > 1 else "once"
    title, said = f"ZeRO-3 lost its trace of modules {times}: it then prefetches no parameters", ""
    if severity is not None:
        title = f"{format_share(share or 0.0)} of a step is spent gathering ZeRO-3 parameters"
    if stall is not None and share is not None:
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
        severity=severity if severity and exact else Severity.WARNING,
        title=title,
        summary=said.strip(),
        share=share,
        seconds_per_step=stall,
        phase="all_gather" if stall is not None else None,
        evidence=tuple(row_evidence(row, str(row["text"])) for _, row in broken.head(3).iterrows())
        + _gather_evidence(facts),
        advice=(
            *((LEAVES,) if len(broken) else ()),
            *switched_off(facts),
            *(_fetching(facts) if stall is not None else ()),  # none is fetched ahead at all
            Advice(
                "zero_optimization.stage", "3", "2", "if parameters fit: nothing is gathered twice"
            ),
        ),
        gain=(GAIN_LOW * stall, altogether(facts, stall)) if stall is not None and exact else None,
        gain_why=beyond(facts, stall) if stall is not None and exact else "",
        confidence="high" if exact else "low" if stall is not None else "medium",
    )


def _fetching(facts: Facts) -> tuple[Advice, ...]:
    """To fetch earlier and keep longer; where that holds the whole model already, to gather less
    often."""
    further = (
        *of_zero(facts, "stage3_prefetch_bucket_size", "5e8", "fetches further ahead"),
        *of_zero(facts, "stage3_max_live_parameters", "2e9", "keeps fetched ones longer"),
    )
    kept = "stage3_param_persistence_threshold"
    return further or of_zero(facts, kept, "1e6", "those up to that size stay gathered")


def _gather_evidence(facts: Facts) -> tuple[Evidence, ...]:
    comm = gathers(facts.held_up)
    longest = comm.sort_values("seconds").tail(2)
    return tuple(row_evidence(row, call_words(row)) for _, row in longest.iterrows())
