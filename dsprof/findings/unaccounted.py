"""Time whose use the source does not tell. It is never called compute."""

from __future__ import annotations

import pandas as pd

from dsprof.events import Kind, Severity
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
    if facts.hidden_communication is not None:
        mixed = _mixed(facts, facts.hidden_communication)
        return [finding for finding in (mixed, *_no_timer(facts)) if finding]
    return _no_timer(facts)


def _no_timer(facts: Facts) -> list[Finding]:
    assert facts.breakdown is not None
    known = facts.phases_of("other")
    seconds = facts.seconds_of("other")
    if facts.hidden_communication is not None:
        known = known.drop(_mixed_phases(facts).index, errors="ignore")
        seconds = _untimed(facts) + float(known["seconds"].sum())
    if seconds is None:
        return []
    share = facts.share(seconds) or 0.0
    severity = grade(share, UNACCOUNTED_WARNING, UNACCOUNTED_CRITICAL)
    if severity is None:
        return []
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
        title=f"Where the time of a step goes is unknown: {_lacking(facts)}",
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


def _lacking(facts: Facts) -> str:
    timed = facts.run.events
    timed = timed[(timed["kind"] == Kind.PHASE) & timed["seconds"].gt(0)]
    if timed.empty:
        return "this log has no timers"
    return "no step can be told for its timer lines"


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


def _untimed(facts: Facts) -> float:
    """Seconds of a step outside all timers."""
    assert facts.breakdown is not None
    return max(0.0, facts.breakdown.seconds - float(facts.breakdown.phases["seconds"].sum()))


def _mixed_phases(facts: Facts) -> pd.DataFrame:
    """Timers that hold compute and communication together."""
    assert facts.breakdown is not None
    table = facts.breakdown.phases
    gathers = table.index.isin(_MIXED) if facts.layout.zero_stage == 3 else False
    return table[gathers | (table["class"] == "compute")]


def _mixed(facts: Facts, reason: str) -> Finding | None:
    table = _mixed_phases(facts)
    seconds = float(table["seconds"].sum())
    if not seconds:
        return None
    share = facts.share(seconds) or 0.0
    names = ", ".join(table.index[:3])
    return Finding(
        rule="unaccounted-time",
        severity=Severity.INFO,
        title=f"{format_share(share)} of a step is computation and communication together: "
        "this log cannot tell how much of each",
        summary=f"{names} take {format_seconds(seconds)} per step ({facts.windows}), and {reason}: "
        "whether the run is bound by compute or communication is unknown. The communication "
        "logger times every call, at the price of serialising it; a recording (dsprof attach) "
        "measures what is exposed.",
        share=share,
        seconds_per_step=seconds,
        phase=first_of(table),
        evidence=phase_evidence(table),
        advice=(*_comms_logger(facts), _record()),
    )


def _comms_logger(facts: Facts) -> tuple[Advice, ...]:
    if len(facts.run.comm):
        return ()
    now = _shown(facts, "comms_logger.enabled")
    why = "times each all_gather and reduce_scatter"
    return (Advice("comms_logger.enabled", now, "true, for a few steps", why),)


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
