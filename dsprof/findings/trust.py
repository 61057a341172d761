"""What can be believed: tools that slow the run they measure, doubtful numbers, good news."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd

from dsprof.events import Kind, Severity
from dsprof.findings.advice import record
from dsprof.findings.facts import (
    COLLECTING,
    NO_TIMERS,
    Facts,
    phase_evidence,
    promise,
    row_evidence,
    whole,
)
from dsprof.findings.finding import Advice, Evidence, Finding
from dsprof.findings.thresholds import (
    FEW_STEPS,
    UNACCOUNTED_CRITICAL,
    UNACCOUNTED_WARNING,
    grade,
)
from dsprof.units import format_seconds, format_share


class Sync(NamedTuple):
    """A setting that makes the host wait for the GPU."""

    path: str
    severity: Severity
    why: str


_SYNCS = (
    Sync(
        "comms_logger.enabled",
        Severity.WARNING,
        "it waits for the GPU after every communication call, so nothing overlaps any more",
    ),
    Sync(
        "memory_breakdown",
        Severity.WARNING,
        "it collects Python's garbage on rank 0 inside the backward timers, every step",
    ),
    Sync("flops_profiler.enabled", Severity.INFO, "it hooks every module at its profile step"),
    Sync(
        "wall_clock_breakdown",
        Severity.INFO,
        "its timers wait for the GPU when they are read, and before 0.6.2 at each start and stop",
    ),
)


def host_sync(facts: Facts) -> list[Finding] | str:
    """Diagnostics that are switched on make the host wait for the GPU.

    Only one of them leaves a price in a log, `memory_breakdown` (see `Facts.collecting`).
    Gain: at best all of that.
    """
    on = [sync for sync in _SYNCS if facts.setting(sync.path) is True]
    seen = _printed(facts)
    if not facts.has_config and not seen:
        return "the configuration is not in the source"
    on += [sync for sync in _SYNCS if sync.path in seen and sync not in on]
    if not on:
        return []
    costly = [sync for sync in on if sync.severity is Severity.WARNING]
    seconds = facts.collecting or None
    share = facts.share(seconds)
    names = ", ".join(sync.path for sync in costly or on)
    title = f"Diagnostics that slow the run they measure are on: {names}"
    if share is not None:
        title = f"Up to {format_share(share)} of a step is what memory_breakdown itself takes"
    elif not costly:
        title = f"Diagnostics are on: {names}"
    return [
        Finding(
            rule="host-sync",
            severity=_weight(share, costly),
            title=title,
            summary=(_PRICE.format(format_seconds(seconds)) if seconds else "")
            + " ".join(f"{sync.path}: {sync.why}." for sync in on)
            + ("" if seconds else _NO_PRICE),
            share=share,
            seconds_per_step=seconds,
            phase="backward" if seconds else None,
            evidence=(_collected(facts) if seconds else ())
            + (tuple(seen.values()) or _config_line(facts)),
            advice=tuple(
                Advice(sync.path, "true", "false, once the diagnosis is made", sync.why)
                for sync in sorted(on, key=lambda sync: sync.path != "memory_breakdown")
            ),
            gain=promise(seconds) if seconds else None,
            confidence="medium",
        )
    ]


_PRICE = (
    "{} per step lie between the timers, or in backward beside its computation and its reduction: "
    "that is where memory_breakdown works. The reduction is longer too, since the other ranks "
    "wait. Medium confidence: measure a run without it before anything else. "
)
_NO_PRICE = " Medium confidence: what that costs is not in the log; measure a run without."


def _weight(share: float | None, costly: list[Sync]) -> Severity:
    if share is not None:
        return grade(share, UNACCOUNTED_WARNING, UNACCOUNTED_CRITICAL) or Severity.WARNING
    return Severity.WARNING if costly else Severity.INFO


def _collected(facts: Facts) -> tuple[Evidence, ...]:
    table = facts.phases_of("other")
    inside = phase_evidence(table[table.index == "backward"], 1)
    if not facts.outside_timers:
        return inside
    said = f"between the timers: {format_seconds(facts.outside_timers)} per step"
    return (*inside, row_evidence(facts.steps.iloc[-1], said))


#: Doubts that leave the time of a step and its parts alone.
_ASIDE = ("last-micro-throughput", "subgroup-bandwidth")

#: Doubts about what a source leaves out; the numbers it gives are right.
_SILENCES = ("log-level-hides-lines", "zero-stage-unknown", "pipeline-untimed-reduction")


def untrustworthy_timers(facts: Facts) -> list[Finding] | str:
    """Numbers of the source that are known to be wrong and could not be repaired."""
    repairs = facts.run.repairs
    doubts = repairs[(repairs["kind"] == "doubt") & ~repairs["name"].isin(_SILENCES)]
    if doubts.empty:
        return []
    rows = doubts.drop_duplicates("name")
    first = str(rows["text"].iloc[0])
    more = f" (and {len(rows) - 1} more)" if len(rows) > 1 else ""
    return [
        Finding(
            rule="untrustworthy-timers",
            severity=Severity.INFO if rows["name"].isin(_ASIDE).all() else Severity.WARNING,
            title=f"Some numbers of this source are doubtful: {first}{more}",
            summary=" ".join(f"{text}." for text in rows["text"])
            + " Rules that need them abstain or say so.",
            evidence=tuple(
                Evidence(str(row["source"]), whole(row["line"]), str(row["text"]))
                for _, row in rows.head(4).iterrows()
            ),
        )
    ]


def healthy(
    facts: Facts, others: Sequence[Finding], abstained: Sequence[str]
) -> list[Finding] | str:
    """Nothing found, by rules that had what they need. Asked last."""
    if any(finding.severity is not Severity.INFO for finding in others):
        return []
    unknown = _unknown(facts)
    if unknown is not None:
        return unknown
    if any(finding.rule == "unaccounted-time" for finding in others):
        return "part of the step is unknown"
    return [_healthy(facts, abstained)]


def no_verdict(reason: str) -> Finding:
    """What to say where no rule found anything and none can say that all is well."""
    return Finding(
        rule="unaccounted-time",
        severity=Severity.INFO,
        title="Nothing was found, but whether this run is healthy is unknown",
        summary=f"The rules that could judge found nothing; the others had too little: {reason}.",
        advice=(record("times every phase of every rank"),),
    )


def _unknown(facts: Facts) -> str | None:
    """Why this source cannot show a healthy run; None if it can."""
    if facts.breakdown is None:
        return NO_TIMERS
    if facts.seconds_of("compute") is None:
        return "compute is not timed"
    return facts.hidden_communication


def _healthy(facts: Facts, abstained: Sequence[str]) -> Finding:
    assert facts.breakdown is not None
    compute = facts.seconds_of("compute") or 0.0
    moving = facts.seconds_of("communication", "wait")
    share = facts.share(compute) or 0.0
    parts = [
        f"{name} {format_share(seconds / facts.breakdown.seconds)}"
        for name, seconds in facts.breakdown.classes.items()
        if seconds
    ]
    said = (
        f", communication {format_share(facts.share(moving) or 0.0)}" if moving is not None else ""
    )
    few = len(facts.steps) < FEW_STEPS
    silent = f" Not judged: {', '.join(abstained)}." if abstained else ""
    return Finding(
        rule="healthy",
        severity=Severity.INFO,
        title=f"Nothing holds this run back: compute is {format_share(share)} of a step{said}",
        summary=f"A step takes {format_seconds(facts.breakdown.seconds)} ({facts.windows}): "
        f"{', '.join(parts)}. All but {format_share(UNACCOUNTED_WARNING)} at most is accounted "
        f"for, and no other rule found anything to mend.{silent}"
        + (" Medium confidence: few steps." if few else ""),
        evidence=phase_evidence(facts.breakdown.phases),
        confidence="medium" if few else "high",
    )


def _printed(facts: Facts) -> dict[str, Evidence]:
    """Settings that the source's own lines give away."""
    found = {}
    comm = facts.run.events
    comm = comm[(comm["kind"] == Kind.COMM) & comm["pattern"].notna()]
    if len(comm):
        found["comms_logger.enabled"] = row_evidence(
            comm.iloc[0], f"{comm.iloc[0]['name']} is logged"
        )
    memory = facts.run.memory
    rows = facts.run.repairs
    rows = rows[rows["name"] == COLLECTING]
    if len(rows):
        found["memory_breakdown"] = row_evidence(rows.iloc[0], "memory lines inside backward")
    engine = memory[
        memory["text"].astype(str).str.contains("Engine (?:before|after) ") & memory["step"].notna()
    ]
    if len(engine):
        found["memory_breakdown"] = row_evidence(engine.iloc[0], str(engine.iloc[0]["text"]))
    return found


def _config_line(facts: Facts) -> tuple[Evidence, ...]:
    events: pd.DataFrame = facts.run.events
    rows = events[(events["kind"] == Kind.CONFIG) & (events["name"] == "ds_config")]
    return tuple(row_evidence(row, "DeepSpeed configuration") for _, row in rows.tail(1).iterrows())
