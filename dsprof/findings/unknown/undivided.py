"""Time that a source does not divide: compute and communication together, or whole steps."""

from __future__ import annotations

from typing import Final

import pandas as pd

from dsprof.events import Class, Severity
from dsprof.findings.advice import record, shown
from dsprof.findings.beside.generation import GENERATE
from dsprof.findings.evidence import phase_evidence
from dsprof.findings.facts import NO_COMMUNICATION, RANKS_UNTOLD, Facts, first_of
from dsprof.findings.finding import Advice, Finding
from dsprof.findings.over_time.spikes import without_spikes
from dsprof.findings.thresholds import UNACCOUNTED_WARNING
from dsprof.findings.unknown.untimed import (
    EVERY_PHASE,
    no_timers,
    only_calls,
    only_data,
    source_word,
)
from dsprof.run.steps.classes import UPDATES
from dsprof.run.steps.zero import INNER, PERHAPS_BUCKETS
from dsprof.units import format_seconds, format_share, listed

#: Megatron's timer of all micro-batches, and what it includes if its parts are not printed.
SCHEDULE: Final = "forward-backward"
_SCHEDULE: Final = f"{SCHEDULE} holds all micro-batches, and what ranks exchange during them"


def undivided_note(facts: Facts) -> Finding | None:
    """The note on a log that times one kind of activity, or whole steps, and nothing else."""
    assert facts.breakdown is not None
    if facts.breakdown.phases.empty:
        return only_calls(facts)
    if facts.breakdown.phases["class"].eq(Class.DATA).all():
        return only_data(facts)
    only = only_timer(facts)
    return no_timers(facts, f"its one timer, {only}, holds all of it") if only else None


def only_timer(facts: Facts) -> str | None:
    """The one timer of a log, of unknown class, if it holds whole steps: it tells nothing of them,
    as the clock of a loop around all that it does."""
    if facts.breakdown is None or facts.run.is_recording or len(facts.breakdown.phases) != 1:
        return None
    table = facts.phases_of("other")
    table = table[~table["mixed"]].drop([SCHEDULE, *UPDATES, *GENERATE], errors="ignore")
    whole = (facts.share(float(table["seconds"].sum())) or 0.0) > 1 - UNACCOUNTED_WARNING
    return str(table.index[0]) if whole else None


def undivided_share(facts: Facts) -> float:
    """The part of a step that may be communication, all or some of it, for all the source tells; 0
    if the source divides what it times."""
    facts = without_spikes(facts)
    seconds = float(mixed_phases(facts)["seconds"].sum()) if facts.breakdown else 0.0
    timed = facts.seconds_of("communication") or facts.least_communication or 0.0
    return (facts.share(seconds + timed) or 0.0) if seconds else 0.0


def mixed_note(facts: Facts) -> Finding | None:
    """The note on timers that hold compute and communication together."""
    reason = facts.hidden_communication or _SCHEDULE
    table = mixed_phases(facts)
    seconds = float(table["seconds"].sum())
    if not seconds:
        return None
    take = "takes" if len(table) == 1 else "take"
    return Finding(
        rule="unaccounted-time",
        severity=Severity.INFO,
        title=f"{_share(facts, seconds)} of a step {_together(facts, reason)}"
        f"{_mostly_in(facts, table)}: this {source_word(facts)} cannot tell how much of each"
        + _at_least(facts),
        summary=f"{named(list(table.index))} {take} {format_seconds(seconds)} per step "
        f"({facts.windows}). {_why(facts, reason)}{_also(facts.run.exchanged)}: "
        "whether the run is bound by compute or communication is unknown."
        + ("" if facts.run.is_recording else _would_tell(facts, table)),
        phase=first_of(table),
        evidence=phase_evidence(table),
        advice=(*_parts_of(facts, table), *_comms_logger(facts), *record(facts, EVERY_PHASE)),
    )


def _why(facts: Facts, reason: str) -> str:
    """The reason as a sentence begins; what little communication is timed is not passed over."""
    timed = float(facts.phases_of("communication")["seconds"].sum())
    if reason == RANKS_UNTOLD and timed:
        hardly = f"no timer shows more communication than {format_seconds(timed)}"
        reason = f"{hardly}, and the number of ranks is unknown"
    return f"{reason[:1].upper()}{reason[1:]}"


def _also(exchanged: str) -> str:
    return f"; forward and backward also hold {exchanged}" if exchanged else ""


def mixed_phases(facts: Facts) -> pd.DataFrame:
    """Timers that hold compute and communication together."""
    assert facts.breakdown is not None
    table, hidden = facts.breakdown.phases, facts.hidden_communication
    schedule = table.index == SCHEDULE
    schedule &= bool(schedule.any()) and _schedule_is_whole(facts)
    if hidden is None:
        return table[schedule]
    if hidden in (NO_COMMUNICATION, RANKS_UNTOLD):
        return table[table["mixed"] | (table["class"] == Class.COMPUTE) | schedule]
    inner = hidden == facts.run.reduces_inside_backward
    return table[(table.index == INNER if inner else table["mixed"]) | schedule]


def _schedule_is_whole(facts: Facts) -> bool:
    """Whether no timer divides the schedule: neither compute nor waiting is timed inside it."""
    phases = facts.phases
    inside = phases[phases["parent"].eq(SCHEDULE).to_numpy(bool, na_value=False)]
    return not (inside["mixed"] | inside["class"].isin([Class.COMPUTE, Class.WAIT])).any()


def named(timers: list[str]) -> str:
    """Timers in words; of many, all but the two largest are only counted."""
    if len(timers) > 3:
        timers = [*timers[:2], f"{len(timers) - 2} more timers"]
    return listed(timers)


def _would_tell(facts: Facts, table: pd.DataFrame) -> str:
    if facts.is_torch_alone or facts.is_megatron_alone:
        return " A recording (dsprof attach) measures what is exposed."
    tells = "The communication logger times every call, at the price of serialising it"
    if SCHEDULE in table.index and _are_maxima(facts):
        tells = "Megatron tells the parts of each rank with --timing-log-option all"
    elif SCHEDULE in table.index:
        tells = "Megatron's own timers of its parts are printed at --timing-log-level 2"
    return f" {tells}; a recording (dsprof attach) measures what is exposed."


def _are_maxima(facts: Facts) -> bool:
    """Whether each part is printed as its maximum, each from another rank."""
    return "maxima-of-parts" in set(facts.run.repairs["name"])


def _parts_of(facts: Facts, table: pd.DataFrame) -> tuple[Advice, ...]:
    if SCHEDULE not in table.index:
        return ()
    if _are_maxima(facts):
        why = "prints the timers of each rank, whose parts then belong together"
        return (Advice("--timing-log-option", "minmax", "all", why),)
    why = "prints forward, backward and what is sent between stages by themselves"
    return (Advice("--timing-log-level", "", "2", why),)


def _together(facts: Facts, reason: str) -> str:
    if reason == NO_COMMUNICATION:
        return "is inside compute timers, and no timer shows the communication of several ranks"
    if reason == RANKS_UNTOLD:
        return (
            "is inside compute timers, which hold the communication, too, if there are several "
            "ranks"
        )
    if reason == PERHAPS_BUCKETS and not facts.run.exchanged:
        return "is computation, and communication, too, if the ZeRO stage is 2"
    return "is computation and communication together"


def _mostly_in(facts: Facts, table: pd.DataFrame) -> str:
    """The timer that holds more than all others together, in words."""
    largest, seconds = table["seconds"].idxmax(), float(table["seconds"].max())
    if len(table) == 1 or 2 * seconds <= float(table["seconds"].sum()):
        return ""
    return f" ({_share(facts, seconds)} in {largest})"


def _at_least(facts: Facts) -> str:
    least = facts.least_communication
    return "" if least is None else f"; beside it, at least {_share(facts, least)} is communication"


def _share(facts: Facts, seconds: float) -> str:
    """Of the steps that `seconds` are the mean of: what has no cost is held against no spikes."""
    assert facts.breakdown is not None
    return format_share(seconds / facts.breakdown.seconds)


def _comms_logger(facts: Facts) -> tuple[Advice, ...]:
    if len(facts.run.comm) or facts.is_torch_alone:
        return ()
    key = "comms_logger.enabled"
    return (Advice(key, shown(facts, key), "true, for a few steps", "times each collective"),)
