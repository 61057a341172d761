"""Time whose use the source does not tell. It is never called compute."""

from __future__ import annotations

import pandas as pd

from dsprof.events import Severity
from dsprof.findings.facts import Facts, first_of, phase_evidence, row_evidence, whole
from dsprof.findings.failures import first_failure
from dsprof.findings.finding import Advice, Evidence, Finding
from dsprof.findings.thresholds import UNACCOUNTED_CRITICAL, UNACCOUNTED_WARNING, grade
from dsprof.units import format_seconds, format_share

#: Timers that under ZeRO-3 hold gathers too: step gathers persistent parameters at its end.
_MIXED = ("forward", "backward", "backward_inner", "step")


def unaccounted_time(facts: Facts) -> list[Finding] | str:
    """Seconds that no timer explains. They are never called compute."""
    if facts.run.steps.empty:
        return _no_steps(facts)
    if facts.breakdown is None:
        return [_no_timers(facts)]
    if facts.layout.zero_stage == 3 and facts.seconds_of("compute") is None:
        return [_mixed(facts)]
    seconds = facts.seconds_of("other")
    share = facts.share(seconds)
    severity = grade(share or 0.0, UNACCOUNTED_WARNING, UNACCOUNTED_CRITICAL)
    if seconds is None or share is None or severity is None:
        return []
    known = facts.phases_of("other")
    parts = ", ".join(
        f"{name} {format_seconds(row['seconds'])}" for name, row in known.head(3).iterrows()
    )
    return [
        Finding(
            rule="unaccounted-time",
            severity=severity,
            title=f"{format_share(share)} of a step is explained by no timer",
            summary=f"{format_seconds(seconds)} of "
            f"{format_seconds(facts.breakdown.seconds)} per step are neither compute nor "
            f"communication that this source times ({facts.windows})."
            + (f" Partly inside: {parts}." if parts else "")
            + _suspects(facts)
            + " Medium confidence: what it is can only be guessed.",
            share=share,
            seconds_per_step=seconds,
            phase=first_of(known),
            evidence=phase_evidence(known) or _step_line(facts),
            advice=(_record(),),
            confidence="medium",
        )
    ]


def _no_timers(facts: Facts) -> Finding:
    seconds = facts.step_seconds
    line = facts.run.steps.iloc[-1]
    known = f"A step takes {format_seconds(seconds)}, but nothing" if seconds else "Nothing"
    return Finding(
        rule="unaccounted-time",
        severity=Severity.INFO,
        title="Where the time of a step goes is unknown: this log has no timers",
        summary=f"{known} says on what. With wall_clock_breakdown DeepSpeed prints forward, "
        "backward, reduction and optimizer times of each step.",
        share=1.0 if seconds else None,
        seconds_per_step=seconds,
        evidence=(row_evidence(line, f"step {line['step']}"),),
        advice=(
            Advice(
                "wall_clock_breakdown",
                _shown(facts, "wall_clock_breakdown"),
                "true",
                "prints timers",
            ),
            _record(),
        ),
    )


def _no_steps(facts: Facts) -> list[Finding] | str:
    if first_failure(facts.run.problems) is not None:
        return "the source shows no optimizer step, only how the run failed"
    return [
        Finding(
            rule="unaccounted-time",
            severity=Severity.INFO,
            title="This source shows no optimizer step: nothing can be said about speed",
            summary="DeepSpeed 0.15.2 and later prints steps only with steps_per_print set, 0.17.6 "
            'and later only with log_level "info"; timers need wall_clock_breakdown.',
            advice=(
                Advice("steps_per_print", _shown(facts, "steps_per_print"), "10", "prints steps"),
                Advice("log_level", _shown(facts, "log_level"), "info", "lets the lines through"),
                Advice(
                    "wall_clock_breakdown",
                    _shown(facts, "wall_clock_breakdown"),
                    "true",
                    "prints timers",
                ),
            ),
        )
    ]


def _mixed(facts: Facts) -> Finding:
    table = facts.breakdown.phases if facts.breakdown else pd.DataFrame()
    table = table[table.index.isin(_MIXED)]
    seconds = float(table["seconds"].sum())
    share = facts.share(seconds) or 0.0
    return Finding(
        rule="unaccounted-time",
        severity=Severity.INFO,
        title=f"{format_share(share)} of a step is computation and ZeRO-3 communication, "
        "and this log cannot tell how much of each",
        summary=f"ZeRO-3 gathers parameters inside forward, backward and step "
        f"({format_seconds(seconds)} per step, {facts.windows}), and DeepSpeed's timers do not "
        "separate the two: whether the run is bound by compute or communication is unknown. The "
        "communication logger times every gather, at the price of serialising it; a recording "
        "(dsprof attach) measures what is exposed.",
        share=share,
        seconds_per_step=seconds,
        phase=first_of(table),
        evidence=phase_evidence(table),
        advice=(
            Advice(
                "comms_logger.enabled",
                _shown(facts, "comms_logger.enabled"),
                "true, for a few steps",
                "times each all_gather and reduce_scatter",
            ),
            _record(),
        ),
    )


def _suspects(facts: Facts) -> str:
    doubt = facts.doubts.get("memory-breakdown-inflates-backward")
    if doubt:
        return f" Very likely because {doubt}."
    if facts.steps["seconds_from"].isin(["logged", "throughput"]).all() and not facts.is_pipeline:
        return (
            " DeepSpeed's timers run from forward to step: loading data, moving it to the GPU, "
            "logging and evaluation lie outside."
        )
    if facts.is_pipeline:
        return " DeepSpeed's pipeline engine does not time gradient reduction: it is in here."
    return ""


def _shown(facts: Facts, path: str) -> str:
    value = facts.setting(path)
    if value is None:
        return "unset" if facts.has_config else ""
    return str(value).lower()


def _record() -> Advice:
    return Advice("dsprof attach", "", "one recorded restart", "times every phase of every rank")


def _step_line(facts: Facts) -> tuple[Evidence, ...]:
    row = facts.steps.iloc[-1]
    text = f"step {whole(row['step'])}: {format_seconds(row['seconds'])}"
    return (row_evidence(row, text),)
