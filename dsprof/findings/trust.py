"""What can be believed: numbers that are doubtful, and whether a run may be called healthy."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from dsprof.events import Severity
from dsprof.findings.advice import record
from dsprof.findings.evidence import phase_evidence, whole
from dsprof.findings.facts import NO_TIMERS, Facts
from dsprof.findings.failures.still import stillness
from dsprof.findings.finding import Evidence, Finding
from dsprof.findings.thresholds import (
    DOUBTED_STEPS,
    UNACCOUNTED_WARNING,
)
from dsprof.units import format_seconds, format_share

_NOTHING = "Nothing holds this run back"

#: Doubts that leave the time of a step and its parts alone.
_ASIDE = ("last-micro-throughput", "subgroup-bandwidth")

#: Doubts about what a source leaves out; the numbers it gives are right.
_SILENCES = (
    "log-level-hides-lines",
    "zero-stage-unknown",
    "pipeline-untimed-reduction",
    "micro-batches-alone",
    "last-micro-batch-alone",
)


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
            severity=Severity.INFO if _is_aside(facts, rows).all() else Severity.WARNING,
            title=f"Some numbers of this source are doubtful: {first}{more}",
            summary="".join(f"Also: {text}. " for text in rows["text"].iloc[1:])
            + "Rules that need them abstain or say so.",
            evidence=tuple(
                Evidence(str(row["source"]), whole(row["line"]), str(row["text"]))
                for _, row in rows.head(4).iterrows()
            ),
        )
    ]


def _is_aside(facts: Facts, doubts: pd.DataFrame) -> pd.Series[bool]:
    """Doubts that do not change what is said of the average step.

    A few steps that do not fit are none: DeepSpeed's rate of a step ends before its timer of
    `step` does, which holds the printing of that rate, too, and a slow disk shows in it.
    """
    few = doubts["rows"] < DOUBTED_STEPS * facts.run.steps["seconds"].notna().sum()
    return doubts["name"].isin(_ASIDE) | (doubts["name"].eq("phases-exceed-step") & few)


def healthy(
    engines: Sequence[Facts], others: Sequence[Finding], abstained: Sequence[str]
) -> list[Finding] | str:
    """Nothing found, by rules that had what they need. Asked last, of all engines at once."""
    if any(finding.severity is not Severity.INFO for finding in others):
        return []
    unknown = next(filter(None, map(_unknown, engines)), None)
    if unknown is not None:
        return unknown
    if any(finding.rule in {"unaccounted-time", "host-bound"} for finding in others):
        return "part of the step is unknown"
    return [_healthy(engines, abstained)]


def no_verdict(facts: Facts, reason: str) -> Finding:
    """What to say where no rule found anything and none can say that all is well."""
    return Finding(
        rule="unaccounted-time",
        severity=Severity.INFO,
        title=_untold(facts, reason),
        summary=f"The rules that could judge found nothing; the others had too little: {reason}.",
        advice=record(facts, "times every phase of every rank"),
    )


def _untold(facts: Facts, reason: str) -> str:
    if reason == facts.no_basis:
        maybe = facts.run.counted
        one = "only one has a time, which may be" if maybe else "the only one with a time is"
        return f"Too few steps to judge: {one} the first, a warm-up"
    if reason == facts.too_few:
        return f"Too few steps to judge: of those that are timed, {_busy(facts)}"
    return "Nothing was found, but whether this run is healthy is unknown"


def _unknown(facts: Facts) -> str | None:
    """Why this source cannot show a healthy run; None if it can."""
    if facts.breakdown is None:
        return NO_TIMERS
    if facts.no_basis is not None:
        return facts.no_basis
    if facts.seconds_of("compute") is None:
        return "compute is not timed"
    return facts.hidden_communication or facts.too_few or _exchanged(facts)


def _exchanged(facts: Facts) -> str | None:
    exchanged = facts.run.exchanged
    if not exchanged or facts.calls_are_logged:
        return None
    return f"no timer shows {exchanged} inside forward and backward"


def _healthy(engines: Sequence[Facts], abstained: Sequence[str]) -> Finding:
    silent = f" Not judged: {', '.join(abstained)}." if abstained else ""
    still = stillness(engines[0])
    said = f"{still.said}; before that, nothing held this run back" if still else _NOTHING
    return Finding(
        rule="healthy",
        severity=Severity.INFO,
        title=f"{said}: {'; '.join(map(_busy, engines))}",
        summary=f"{' '.join(map(_parts, engines))} All but {format_share(UNACCOUNTED_WARNING)} at "
        f"most is accounted for, and no other rule found anything to fix.{silent}",
        evidence=tuple(
            proof
            for facts in engines
            if facts.breakdown is not None
            for proof in phase_evidence(facts.breakdown.phases)
        ),
    )


def _busy(facts: Facts) -> str:
    """`compute is 85 % of a step, communication 10 %, waiting for a peer 1.0 %`."""
    of = "" if facts.engine is None else f" of engine {facts.engine}"
    compute = facts.share(facts.seconds_of("compute")) or 0.0
    others = {"communication": "communication", "wait": "waiting for a peer"}
    told = {name: facts.share(facts.seconds_of(kind)) for kind, name in others.items()}
    parts = (f", {name} {format_share(share)}" for name, share in told.items() if share)
    return f"compute is {format_share(compute)} of a step{of}{''.join(parts)}"


def _parts(facts: Facts) -> str:
    """What a step takes, class by class."""
    assert facts.breakdown is not None
    parts = ", ".join(
        f"{name} {format_share(seconds / facts.breakdown.seconds)}"
        for name, seconds in facts.breakdown.classes.items()
        if seconds
    )
    return f"A step takes {format_seconds(facts.breakdown.seconds)} ({facts.windows}): {parts}."
