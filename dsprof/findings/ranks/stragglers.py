"""Ranks that make the others wait."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from dsprof.analysis.collectives import Waiting, waiting
from dsprof.analysis.ranks import Straggler
from dsprof.analysis.whatif import no_straggler
from dsprof.events import Severity
from dsprof.findings.advice import WHO_IS_LATE, record
from dsprof.findings.evidence import row_evidence
from dsprof.findings.facts import COLLECTING, Facts, once, promise
from dsprof.findings.finding import Advice, Finding
from dsprof.findings.ranks.backwards import more_backwards
from dsprof.findings.ranks.contention import short_of_cpu
from dsprof.findings.ranks.extremes import (
    OTHER_WORK,
    few_steps,
    waits_for_some_rank,
)
from dsprof.findings.ranks.garbage import late_by_garbage
from dsprof.findings.ranks.late_in_part import LatePart, late_parts
from dsprof.findings.ranks.late_ranks import (
    code_of,
    hosts_of,
    is_steady,
    may_wait,
    meet_every,
    node,
    own_code,
    proof_of,
)
from dsprof.findings.ranks.late_replica import are_compared, found_replica
from dsprof.findings.ranks.late_stage import found_late
from dsprof.findings.resources.models import other_model
from dsprof.findings.seen import code_seen
from dsprof.findings.seen.places import Place, place_of
from dsprof.findings.thresholds import (
    STRAGGLER_CRITICAL,
    STRAGGLER_STEPS,
    STRAGGLER_WARNING,
    WAITING_EXPLAINS,
    grade,
)
from dsprof.findings.versions import is_known
from dsprof.run.table import STEP, plain, runs
from dsprof.units import format_bytes, format_seconds, format_share

_WORTH_SAYING: Final = 0.15  # of a delay; less is what ranks differ by anyway

#: The rank on which memory_breakdown collects garbage before printing.
COLLECTS: Final = 0


@once
def straggler_rank(facts: Facts) -> list[Finding] | str:
    """One rank, or a group of ranks, is usually the last one where the others wait.

    Gain: at best all of the delay, if it becomes as fast as the last one of the others.
    """
    if facts.is_pipeline:
        found = [*found_replica(facts), *found_late(facts)]
        return found or ([] if are_compared(facts) else OTHER_WORK)
    late = facts.straggler
    if late is None:
        unnamed = waits_for_some_rank(facts)
        return _from_table(facts) if unnamed is None else unnamed
    why_not = _why_not(facts, late)
    if why_not:
        return why_not
    return [one for part in late_parts(facts) if (one := _found(facts, part)) is not None]


def _found(facts: Facts, part: LatePart) -> Finding | None:
    """The finding about those who are late in a part of the steps, or in all of them."""
    late = part.late
    share = facts.share_of_waiting(part.seconds, late.group) or 0.0
    severity = grade(share, STRAGGLER_WARNING, STRAGGLER_CRITICAL)
    if severity is None:
        return None
    said = _words(facts, late)
    cause = more_backwards(facts, late) or late_by_garbage(facts, late) or short_of_cpu(facts, late)
    place = None if late.phase else place_of(facts, late.group)
    garbage, other = _collects_garbage(facts, late), other_model(facts, late.group)
    code = None if cause else code_of(facts, late, place)
    every = meet_every(facts)
    when = part.when or (f"every {every:,} steps, where ranks meet" if every else "")
    of = "each step" if is_steady(late) and not when else "the time"
    title = f"{said.wait} for {said.where}, {format_share(share)} of {of}"
    title += cause.title if cause else ""
    title += f": {late.who} {said.are} mostly in {code.name}" if code else ""
    return Finding(
        rule="straggler-rank",
        severity=severity,
        title=_capital(f"{when}, {title}" if when else title) + (_GARBAGE if garbage else ""),
        summary=f"{said.are_last} in {format_share(late.held)} of "
        f"{late.steps:,} steps{' in which ranks meet' if late.by_meetings else ''}"
        f"{f', {late.first:,} to {late.last:,},' if part.when else ''} and {said.arrive} "
        f"{format_seconds(late.delay)} per step after {said.median}. "
        f"{said.lose} {_mostly(late, place)}"
        + (f"; {said.wait} for {said.them} in {late.meeting}." if late.meeting else ".")
        + (other.said(len(late.group)) if other else "")
        + _other_work(late)
        + (f" {cause.said}" if cause else "")
        + (f" {code_seen.said(code)}" if code else "")
        + (f" What it is late by in {every:,} steps, they wait in one." if every else ""),
        share=share,
        seconds_per_step=part.seconds,
        ranks=late.group,
        phase=late.phase or None,
        steps=(late.first, late.last),
        evidence=(
            *proof_of(facts, late),
            *(cause.proof if cause else ()),
            *code_seen.proof(code),
        ),
        advice=garbage
        or (
            *((other.advice(late.who),) if other else ()),
            *(cause.advice if cause else (*own_code(facts, late, place), node(facts, late))),
        ),
        gain=promise(part.seconds) if when else _gain(facts, late),
        what_if=f"{late.who} were not late" if facts.replay and not when else "",
    )


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


_GARBAGE: Final = ": memory_breakdown collects garbage there"


def _collects_garbage(facts: Facts, late: Straggler) -> tuple[Advice, ...]:
    """What to switch off, if it is a recorded rank on which `memory_breakdown` collects Python's
    garbage before it prints, in each phase.
    """
    if late.group != (COLLECTS,) or not facts.run.config.get("memory_breakdown"):
        return ()
    why = "before it prints, rank 0 collects Python's garbage, and the others wait for it"
    return (Advice("memory_breakdown", "true", "false, once the diagnosis is made", why),)


def _other_work(late: Straggler) -> str:
    """What the others' own delays change: they hide a part of it, or hold it up elsewhere."""
    hidden, back = late.place_delay - late.delay, ""
    if late.awaits:
        back = (
            f" In {late.awaits_in} it is the other way round, {format_seconds(late.awaits)} per "
            "step."
        )
    if hidden < _WORTH_SAYING * late.delay:
        return back
    return (
        f" {format_seconds(hidden)} of that are not in its delay: the others work longer "
        f"elsewhere.{back}"
    )


def _mostly(late: Straggler, place: Place | None) -> str:
    """Where late ranks lose most of the delay, and how much of it."""
    there = late.place_delay * (place.share if place else 1.0)
    if place and 2 * there > late.delay:
        return f"most {place.words} ({format_seconds(there)} per step, outside of what is timed)"
    return f"most {late.place} ({format_seconds(late.place_delay)} per step)"


@dataclass(frozen=True, slots=True)
class _Words:
    """The parts of sentences about who is late that depend on how many they are."""

    where: str
    wait: str
    median: str
    are: str
    are_last: str
    arrive: str
    lose: str
    them: str


def _words(facts: Facts, late: Straggler) -> _Words:
    hosts = " and ".join(hosts_of(facts, late))
    where = late.who + (f" on {hosts}" if hosts else "")
    if len(late.group) > 1:
        last = f"They are the last {len(late.group):,} of {late.ranks:,} ranks"
        last = f"No other rank is on {hosts}. {last}" if hosts else last
        median = "the median one of the others"
        return _Words(where, "the others wait", median, "are", last, "arrive", "They lose", "them")
    wait, median = "the others wait", "the median rank"
    (rank,) = late.group
    if facts.layout.world_size == 2 and rank in {0, 1}:
        median = f"rank {1 - rank}"
        wait = f"{median} waits"
    last = f"It is the last of {late.ranks} ranks"
    return _Words(where, wait, median, "is", last, "arrives", "It loses", "it")


def _why_not(facts: Facts, late: Straggler) -> str | None:
    """Reasons against naming the rank that comes last."""
    if COLLECTING in facts.doubts and late.group == (COLLECTS,):
        return f"rank {COLLECTS} is late because of its own logging: {facts.doubts[COLLECTING]}"
    if late.steps < STRAGGLER_STEPS:
        return few_steps(late.steps, STRAGGLER_STEPS)
    return may_wait(facts, late)


def _gain(facts: Facts, late: Straggler) -> tuple[float, float]:
    """The gain from replaying the steps with the rank as fast as the others."""
    if facts.replay is None or facts.meetings is None:
        return promise(late.delay)
    table, ranks = facts.replay
    slow = np.searchsorted(ranks, late.group).tolist()
    gain = no_straggler(table, facts.meetings, slow, timed=bool(late.phase))
    return gain.low, gain.high


def _from_table(facts: Facts) -> list[Finding] | str:
    """Use DeepSpeed's straggler table, in which one rank prints how long it waited for others."""
    told = stated_wait(facts)
    if told is None:
        if _ranks_meet(facts):
            return []  # ranks were compared, and none stands out
        table = "no" if waiting(facts.run.told) is None else "no trustworthy"
        return f"timers of fewer than two ranks, and {table} straggler table of the comms logger"
    seconds = facts.seconds_of("communication")
    lost = None if seconds is None else told.share * seconds
    share = facts.share(lost)
    severity: Severity | None = Severity.INFO  # what it costs is not known
    if share is not None:
        severity = grade(share, STRAGGLER_WARNING, STRAGGLER_CRITICAL)
    if severity is None or told.share < WAITING_EXPLAINS:
        return []
    row = told.row
    printer = 0 if pd.isna(row["rank"]) else int(row["rank"])
    late = (1 - printer,) if facts.run.meta.get("world_size") == 2 else ()
    who = f"rank {late[0]}" if late else "a slower rank"
    least = "" if is_known(facts, lambda first, _: first >= _IN_ORDER) else "at least "
    sums = not is_known(facts, lambda _, last: last < _SUMS)
    part = f"{least}{format_share(told.share)}"
    of = f"{part} of its communication"
    if share is not None:
        of = f"{least}{format_share(share)} of each step"
    return [
        Finding(
            rule="straggler-rank",
            severity=severity,
            title=f"Rank {printer} waits for {who}, {of}",
            summary=_of_communication(facts, seconds)
            + f"{part} is waiting until {who} comes: not bandwidth. DeepSpeed's straggler table "
            f"says so of {format_seconds(told.seconds)} of rank {printer}'s calls so far."
            + (_OUT_OF_ORDER if least else "")
            + ("" if lost else _UNPRICED.format(_what_is_unknown(facts)))
            + ("" if late else _WHO_IS_UNKNOWN + ("." if sums else ", hence medium confidence."))
            + (_OF_SUMS if sums else ""),
            share=share,
            seconds_per_step=lost,
            ranks=late,
            phase=str(row["text"]),
            evidence=(
                row_evidence(
                    row,
                    f"{row['text']} of {format_bytes(row['bytes'])}: "
                    f"{format_seconds(row['seconds'])} of waiting in {int(row['count'])} calls",
                ),
            ),
            advice=record(facts, WHO_IS_LATE),
            gain=None if lost is None else promise(lost),
            confidence="low" if sums else "high" if late else "medium",
        )
    ]


_UNPRICED: Final = " How {} is unknown, and so is what this costs a step."
_WHO_IS_UNKNOWN: Final = " It does not say which rank is late"
#: The first DeepSpeed whose table adds up totals. Where the log tells that, nothing is taken of it.
_SUMS: Final = (0, 18, 3)
_OF_SUMS: Final = (
    " From 0.18.3 on the table adds up totals: unless an older version printed it, the share is "
    "wrong, hence low confidence."
)
#: The first DeepSpeed known to compare the same calls (its pull request 8199). Earlier ones let
#: each rank sort its calls by duration first, which can only reduce the wait.
_IN_ORDER: Final = (0, 19, 8)
_OUT_OF_ORDER: Final = (
    " It may be more: before 0.19.8 the table compares the ranks' calls sorted by their duration, "
    "not call with call."
)


def _what_is_unknown(facts: Facts) -> str:
    """What a price would need, where no timer tells what of a step is communication."""
    return "much of a step is communication" if facts.step_seconds else "long a step takes"


def _of_communication(facts: Facts, seconds: float | None) -> str:
    if seconds is None:
        return "Of its communication so far "
    share = format_share(facts.share(seconds) or 0.0)
    return f"Of {format_seconds(seconds)} of communication per step ({share} of the step) "


def _ranks_meet(facts: Facts) -> bool:
    """Whether some step is timed by several ranks."""
    columns = [*STEP, "rank"]
    visits = facts.run.phases[columns]
    visits = visits.iloc[runs(*(plain(visits[name]) for name in columns))].drop_duplicates()
    return bool(visits.duplicated([*STEP]).any())


def stated_wait(facts: Facts) -> Waiting | None:
    """The straggler table's result; None if the latencies that it is based on cannot be trusted."""
    if any(name.startswith("cumulative-comm") for name in facts.doubts):
        return None
    return waiting(facts.run.told)
