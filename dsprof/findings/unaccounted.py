"""Time whose use the source does not tell. It is never called compute."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import pandas as pd

from dsprof.events import Class, Kind, Severity
from dsprof.findings.advice import change, record, shown
from dsprof.findings.ends import first_failure
from dsprof.findings.facts import (
    NO_COMMUNICATION,
    RANKS_UNTOLD,
    Facts,
    first_of,
    phase_evidence,
    whole,
)
from dsprof.findings.finding import Advice, Finding
from dsprof.findings.proofs import average_proof, by_the_clock, mark_proof
from dsprof.findings.thresholds import UNACCOUNTED_CRITICAL, UNACCOUNTED_WARNING, grade
from dsprof.grammar import TimerFlavour
from dsprof.run.versions import LAST, Version, parse
from dsprof.units import format_count, format_seconds, format_share

_RATES: Final = {"samples_per_second": "a rate", "samples_per_second_mean": "a mean rate"}
#: What is advised for steps_per_print: more often than that is not asked for.
_EVERY: Final = 10
_EVERY_PHASE = "times every phase of every rank"
#: What a recording has no phase for is code of the script.
_BETWEEN_PHASES: Final = (
    Advice(
        "py-spy record",
        "",
        "a minute of one rank",
        "shows which code of the script runs between the recorded phases",
    ),
)


def unaccounted_time(facts: Facts) -> list[Finding] | str:
    """Seconds that no timer explains. They are never called compute."""
    if facts.run.steps.empty:
        return _no_steps(facts)
    if facts.breakdown is None:
        return [_no_timers(facts)]
    if facts.hidden_communication is not None:
        mixed = _mixed(facts, facts.hidden_communication)
        return [*([mixed] if mixed else []), *_no_timer(facts)]
    return _no_timer(facts)


def _no_timer(facts: Facts) -> list[Finding]:
    """What lies outside all timers, and inside one but not in its parts.

    What memory_breakdown takes for itself is left to `host-sync`.
    """
    assert facts.breakdown is not None
    known = _unexplained(facts)
    inside = float(known["seconds"].sum())
    other = facts.seconds_of("other")
    if facts.hidden_communication is not None:  # the class holds what is mixed, too
        other = facts.outside_timers + inside
    if other is None:
        return []
    seconds = max(0.0, other - facts.collecting)
    inside = max(0.0, min(inside - facts.collecting, seconds))
    share = facts.share(seconds) or 0.0
    severity = grade(share, UNACCOUNTED_WARNING, UNACCOUNTED_CRITICAL)
    if severity is None:
        return []
    within = inside > seconds / 2
    parts = ", ".join(
        f"{name} {format_seconds(row['seconds'])}" for name, row in known.head(3).iterrows()
    )
    return [
        Finding(
            rule="unaccounted-time",
            severity=severity,
            title=f"{format_share(share)} of a step is "
            + (
                f"inside {known.index[0]}, but in no part of it that is timed"
                if within
                else "in no timer, by the time stamps of the lines"
                if by_the_clock(facts)
                else "explained by no timer"
            ),
            summary=f"{format_seconds(seconds)} of "
            f"{format_seconds(facts.breakdown.seconds)} per step are neither compute nor "
            f"communication that this source times ({facts.windows})."
            + (f" Of it, inside timers: {parts}." if inside and parts else "")
            + ("" if within else _suspects(facts))
            + " Medium confidence: what it is can only be guessed.",
            share=share,
            seconds_per_step=seconds,
            phase=first_of(known) if within else "",
            evidence=(phase_evidence(known) if within else ()) or average_proof(facts),
            advice=record(facts, _EVERY_PHASE) or _BETWEEN_PHASES,
            confidence="medium",
        )
    ]


def _no_timers(facts: Facts) -> Finding:
    seconds = facts.step_seconds
    line = facts.run.steps.iloc[-1]
    known = (
        f"A step takes {format_seconds(seconds)}, but nothing says on what."
        if seconds
        else _mean_of_training(facts)
        or f"Nor does this {_source(facts)} say how long a step takes."
    )
    return Finding(
        rule="unaccounted-time",
        severity=Severity.INFO,
        title=f"Where the time of a step goes is unknown: {_lacking(facts)}",
        summary=known + ("" if _spoilt(facts) else _for_timers(facts)[0]),
        evidence=average_proof(facts) if seconds else (mark_proof(facts, line),),
        advice=(*_ask_for_timers(facts), *record(facts, _EVERY_PHASE)),
    )


def _mean_of_training(facts: Facts) -> str:
    """The rate over all steps, where the last record of a training states one."""
    told = facts.run.told
    rates = told.loc[told["name"] == "train_steps_per_second", "value"].dropna()
    if rates.empty:
        return ""
    return (
        f"Over the whole training it states {rates.iloc[-1]:.3g} steps/s, but of no single step "
        "how long it takes."
    )


#: Defect of timers that leaves no step's to judge → why.
_DEFECTS: Final = {
    "window-unknown": "its timers sum over an unknown number of steps",
    "timers-contradict": "its timers contradict each other",
    "cut-head": "the log begins within the only step that it times",
    "cut-short": "its timer lines lost their end",
}


_PRINTS_TIMERS = (
    " With wall_clock_breakdown DeepSpeed prints forward, backward, reduction and optimizer times "
    "of each step."
)


def _spoilt(facts: Facts) -> str | None:
    """Why the timers that there are tell nothing; None if nothing says so."""
    met = set(facts.run.repairs["name"])
    return next((why for defect, why in _DEFECTS.items() if defect in met), None)


def _ask_for_timers(facts: Facts) -> tuple[Advice, ...]:
    if _spoilt(facts):
        return ()
    return _for_timers(facts)[1]


def _for_timers(facts: Facts) -> tuple[str, tuple[Advice, ...]]:
    """What would make the source print timers, as a sentence and as advice."""
    if facts.run.is_recording:
        return "", ()
    if facts.is_megatron_alone:
        why = "prints what Megatron's own timers measure"
        said = f" Megatron's --timing-log-level 2 {why}."
        return said, (Advice("--timing-log-level", "", "2", why),)
    return _PRINTS_TIMERS, change(facts, "wall_clock_breakdown", "true", "prints timers")


def _lacking(facts: Facts) -> str:
    """Why no timer of this log divides a step."""
    timed = facts.run.as_told
    timed = timed[(timed["kind"] == Kind.PHASE) & timed["seconds"].notna()]
    flavours = facts.run.grammar.timers.values()
    beside = [one.name for one in flavours if one.sums == "once" or _only_checkpoints(one)]
    of_steps = timed[~timed["timers"].isin(beside)]
    if timed.empty:
        return f"this {_source(facts)} has no timers"
    if of_steps.empty:
        return "its timers are of set-up and checkpoints, not of steps"
    if not of_steps["seconds"].gt(0).any():
        return "its timers of steps all read 0"
    return _spoilt(facts) or "no step can be told for its timer lines"


def _only_checkpoints(flavour: TimerFlavour) -> bool:
    return set(flavour.tree.values()) == {Class.CHECKPOINT}


def _no_steps(facts: Facts) -> list[Finding] | str:
    if first_failure(facts.run) is not None:
        return "the source shows no optimizer step, only how the run failed"
    if facts.run.is_recording:
        return [_NO_STEPS_RECORDED]
    said, timed = _said_of_speed(facts), _has_timers(facts)
    left = "only what is stated" if said else "nothing"
    return [
        Finding(
            rule="unaccounted-time",
            severity=Severity.INFO,
            title=f"This source shows no optimizer step: {left} can be said about speed",
            summary=said
            + ("It has timer lines, but none that closes a step whole. " if timed else "")
            + _why_none(facts)
            + ("." if timed else "; timers need wall_clock_breakdown."),
            advice=(
                *_print_steps(facts),
                *_log_level(facts),
                *(() if timed else change(facts, "wall_clock_breakdown", "true", "prints timers")),
            ),
        )
    ]


def _why_none(facts: Facts) -> str:
    """Why DeepSpeed printed no step, as far as its settings and version tell."""
    every = facts.setting("steps_per_print") or facts.run.config.get("steps_per_print")
    if isinstance(every, int | float):
        return f"DeepSpeed prints a step every {format_count(every)} (steps_per_print)"
    throughput = _throughput_every(facts)
    if throughput is not None:
        return f"Throughput is printed every {throughput:,} micro-steps, but no line numbers a step"
    if _is_known(facts, lambda _, last: last < (0, 15, 2)):
        return "DeepSpeed of this version prints every tenth step unless steps_per_print is set"
    return (
        "DeepSpeed 0.15.2 and later prints steps only with steps_per_print set, 0.17.6 and later "
        "only where its log level lets them through"
    )


def _print_steps(facts: Facts) -> tuple[Advice, ...]:
    if (_throughput_every(facts) or math.inf) <= _EVERY:
        return ()
    return change(facts, "steps_per_print", str(_EVERY), "prints steps")


def _throughput_every(facts: Facts) -> int | None:
    """How many micro-steps apart lines of the throughput stand: steps_per_print, since 0.3."""
    if not _is_known(facts, lambda first, _: first >= (0, 3, 0)):
        return None
    told = facts.run.told
    turns = told[(told["name"] == "micro_step").to_numpy(dtype=bool)]
    apart = turns.groupby(["segment", "source"])["value"].diff()
    return whole(apart[apart > 0].median())


def _is_known(facts: Facts, holds: Callable[[Version, Version], bool]) -> bool:
    """Whether the oldest and the newest DeepSpeed that it may be are known, and this holds."""
    spans = str(facts.run.meta.get("version_range", "")).partition(" (")[0]
    if not spans[:1].isdigit():
        return False
    newest = LAST if spans.endswith("later") else parse(spans.rpartition(" ")[2])
    return holds(parse(spans.partition(" ")[0]), newest)


_NO_STEPS_RECORDED: Final = Finding(
    rule="unaccounted-time",
    severity=Severity.INFO,
    title="This recording shows no optimizer step: nothing can be said about speed",
    summary="It was stopped before the first step ended, or the optimizer that steps is none that "
    "dsprof.attach found or was given.",
)


def _said_of_speed(facts: Facts) -> str:
    """The last rate that is stated of steps nobody numbers."""
    events = facts.run.told
    for name, words in _RATES.items():
        told = events.loc[events["name"] == name, "value"].dropna()
        if len(told):
            rate = format_count(told.iloc[-1])
            return f"It states {words} of {rate} samples/s, last of {len(told):,}. "
    if events.loc[events["name"] == "bar_elapsed", "seconds"].gt(0).any():
        return "A progress bar moves; whether a turn of it is an optimizer step is not said. "
    return ""


def _has_timers(facts: Facts) -> bool:
    timed = facts.run.as_told  # a repair leaves out what was cut short
    return bool(((timed["kind"] == Kind.PHASE) & timed["seconds"].gt(0)).any())


def _log_level(facts: Facts) -> tuple[Advice, ...]:
    """The setting exists since 0.19.3 only."""
    if not _is_known(facts, lambda first, _: first >= (0, 19, 3)):
        return ()
    return change(facts, "log_level", "info", "lets the lines through")


def _unexplained(facts: Facts) -> pd.DataFrame:
    """Timers, or what their parts leave of them, of no known class: not those known to be mixed.

    ZeRO-3's `step` is among them where the calls are logged: nothing says what it is beside
    the optimizer and the gathering.
    """
    table = facts.phases_of("other")
    if facts.hidden_communication is None:
        return table[~table["mixed"] | (table.index == "step")]
    return table.drop(_mixed_phases(facts).index, errors="ignore")


def _mixed_phases(facts: Facts) -> pd.DataFrame:
    """Timers that hold compute and communication together."""
    assert facts.breakdown is not None
    table = facts.breakdown.phases
    if facts.hidden_communication in (NO_COMMUNICATION, RANKS_UNTOLD):
        return table[table["mixed"] | (table["class"] == Class.COMPUTE)]
    return table[table["mixed"]]


def _mixed(facts: Facts, reason: str) -> Finding | None:
    table = _mixed_phases(facts)
    seconds = float(table["seconds"].sum())
    if not seconds:
        return None
    return Finding(
        rule="unaccounted-time",
        severity=Severity.INFO,
        title=f"{format_share(facts.share(seconds) or 0.0)} of a step {_together(reason)}: "
        f"this {_source(facts)} cannot tell how much of each" + _at_least(facts),
        summary=f"{', '.join(table.index[:3])} take {format_seconds(seconds)} per step "
        f"({facts.windows}). {reason[:1].upper()}{reason[1:]}: "
        "whether the run is bound by compute or communication is unknown."
        + ("" if facts.run.is_recording else _WOULD_TELL),
        phase=first_of(table),
        evidence=phase_evidence(table),
        advice=(*_comms_logger(facts), *record(facts, _EVERY_PHASE)),
    )


_WOULD_TELL: Final = (
    " The communication logger times every call, at the price of serialising it; a recording "
    "(dsprof attach) measures what is exposed."
)


def _source(facts: Facts) -> str:
    return "recording" if facts.run.is_recording else "log"


def _together(reason: str) -> str:
    if reason == NO_COMMUNICATION:
        return "is inside compute timers, and no timer shows the communication of several ranks"
    if reason == RANKS_UNTOLD:
        return (
            "is inside compute timers, which hold the communication, too, if there are several "
            "ranks"
        )
    return "is computation and communication together"


def _at_least(facts: Facts) -> str:
    share = facts.share(facts.least_communication)
    return "" if share is None else f"; beside it, at least {format_share(share)} is communication"


def _comms_logger(facts: Facts) -> tuple[Advice, ...]:
    if len(facts.run.comm):
        return ()
    why = "times each all_gather and reduce_scatter"
    return (
        Advice(
            "comms_logger.enabled",
            shown(facts, "comms_logger.enabled"),
            "true, for a few steps",
            why,
        ),
    )


_BETWEEN_STEPS: Final = (
    " Loading data, saving, evaluating, logging, a host that stalls, or a phase whose timer is "
    "missing: the log cannot say which."
)


def _suspects(facts: Facts) -> str:
    if facts.run.is_recording:
        return " What the script does between the recorded phases has no time of its own."
    if by_the_clock(facts):
        return _BETWEEN_STEPS
    if facts.is_megatron_alone:
        return ""
    if facts.is_pipeline:
        return " DeepSpeed's pipeline engine does not time gradient reduction: it may be in here."
    if facts.steps["seconds_from"].isin(["logged", "throughput"]).any():
        return (
            " DeepSpeed's timers run from forward to step: loading data, moving it to the GPU, "
            "logging and evaluation lie outside."
        )
    return ""
