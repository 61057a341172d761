"""Time whose use the source does not show. It is never called compute."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import pandas as pd

from dsprof.events import Class, Severity
from dsprof.findings.advice import record
from dsprof.findings.beside.evaluations import evaluating
from dsprof.findings.beside.generation import GENERATE, generates, unexplained_generation
from dsprof.findings.beside.rated import are_deepspeeds
from dsprof.findings.beside.saves import saving_in_mean
from dsprof.findings.evidence import phase_evidence
from dsprof.findings.facts import Facts, first_of, promise
from dsprof.findings.finding import Finding
from dsprof.findings.over_time.single_step import in_a_single_step
from dsprof.findings.over_time.spikes import without_spikes
from dsprof.findings.proofs import average_proof, by_the_clock
from dsprof.findings.ranks.accounted import late_outside
from dsprof.findings.resources.cpu_threads import more_threads
from dsprof.findings.seen.code_seen import mostly
from dsprof.findings.seen.places import BETWEEN_PHASES, Place, look_at, place_of
from dsprof.findings.thresholds import (
    UNACCOUNTED_CRITICAL,
    UNACCOUNTED_WARNING,
    WORTH_NAMING,
    grade,
)
from dsprof.findings.unknown.between_steps import UNTIL_STEP, between_steps, part_between
from dsprof.findings.unknown.stepless import no_steps
from dsprof.findings.unknown.undivided import mixed_note, mixed_phases, named, undivided_note
from dsprof.findings.unknown.untimed import (
    EVERY_PHASE,
    no_timers,
)
from dsprof.recording.table import EVALUATION
from dsprof.run.steps.classes import UPDATES
from dsprof.run.steps.zero import ENGINE_TIMERS
from dsprof.units import format_ranks, format_seconds, format_share

#: Share of the time in question below which a timer is not mentioned.
_NOTHING: Final = 0.005
#: Share of it on a few ranks from which on these are named.
_NEARLY: Final = 0.8
#: Share of it above which it is attributed to a late rank.
_MOST: Final = 0.5


def unaccounted_time(facts: Facts) -> list[Finding] | str:
    """Seconds that no timer explains. They are never called compute.

    Steps that stick out are left to `step-spikes`, which says when they occur.
    """
    if facts.run.steps.empty:
        return no_steps(facts)
    if facts.breakdown is None:
        between = between_steps(facts)
        return [*([between] if between else []), no_timers(facts)]
    if facts.no_basis is not None:
        return facts.no_basis
    if not facts.run.is_recording and (undivided := undivided_note(facts)):
        return [undivided]
    late, late_ones = late_outside(facts)
    facts = without_spikes(facts)
    mixed = mixed_note(facts)
    return [*([mixed] if mixed else []), *_no_timer(facts, late, late_ones)]


def _no_timer(facts: Facts, late: float, late_ones: tuple[int, ...]) -> list[Finding]:
    """Time outside all timers, and time inside a timer but not in its parts.

    Excluded are what memory_breakdown itself takes (`host-sync`), saves of known duration
    (`checkpoint-stall`) and generating (`generation-bound`). The `late` seconds that `late_ones`
    are late by belong to `straggler-rank`, which has the advice, and what a single one of few steps
    holds may never come again: if the rest is small, this is only a note.
    """
    known = _unexplained(facts)
    inside = float(known["seconds"].sum())
    other = facts.seconds_of("other")
    if facts.hidden_communication is not None or len(mixed_phases(facts)):
        # the class then includes mixed timers
        other = facts.outside_timers + inside + evaluating(facts) + unexplained_generation(facts)
    if other is None:
        return []
    named = evaluating(facts) + saving_in_mean(facts) + unexplained_generation(facts)
    seconds = max(0.0, other - facts.collecting - named)
    inside = max(0.0, min(inside - facts.collecting, seconds))
    share = facts.share(seconds) or 0.0
    if grade(share, UNACCOUNTED_WARNING, UNACCOUNTED_CRITICAL) is None:
        return []
    within = inside / seconds
    beside = within <= 1 - WORTH_NAMING
    late = min(late, seconds - inside)
    single = None if named else in_a_single_step(facts, seconds)
    judged = seconds - max(late, single.seconds if single else 0.0)
    rest = grade(facts.share(judged) or 0.0, UNACCOUNTED_WARNING, UNACCOUNTED_CRITICAL)
    seconds = _of_title(known, seconds, inside)
    if not beside:
        known = known.loc[_that_hold_it(known)]
    share = facts.share(seconds) or 0.0
    of_late_rank = late > _MOST * seconds
    place = place_of(facts, late_ones if of_late_rank else ()) if beside else None
    whose = None if of_late_rank or within >= WORTH_NAMING else _whose(facts)
    one = [whose.one] if whose else []
    seen = place.code if place else None
    passing, to_do = part_between(facts, seconds - inside) if beside else ("", ())
    parts = ", ".join(
        f"{name} {format_seconds(row['seconds'])}"
        for name, row in known[known["seconds"] > _NOTHING * seconds].head(3).iterrows()
    )
    return [
        Finding(
            rule="unaccounted-time",
            severity=rest or Severity.INFO,
            title=f"{format_share(share)} of a step is {_where(facts, known, within)}"
            + (_of_late_rank(late_ones, late / seconds) if of_late_rank else _lies(place, within))
            + (whose.title if whose else "")
            + (single.title(seconds) if single and not of_late_rank else ""),
            summary=f"{format_seconds(seconds)} of "
            f"{format_seconds(facts.average or 0.0)} per step are neither compute nor "
            f"communication that this source times ({facts.windows})."
            + (f" Of this, inside timers: {parts}." if within >= WORTH_NAMING and parts else "")
            + (_ON_HOST if within >= WORTH_NAMING and _updates_on_host(facts, known) else "")
            + (passing or _suspects(facts, place) if beside else "")
            + (whose.said if whose else "")
            + (single.said if single else "")
            + (
                " Medium confidence: a few looks a second show what runs."
                if seen
                else " Medium confidence: what it is can only be guessed."
            ),
            share=share,
            seconds_per_step=seconds,
            phase=first_of(known) if within > 0.5 else "",
            evidence=(phase_evidence(known) if within >= WORTH_NAMING else ())
            + ((place.proof if place else average_proof(facts)) if beside else ()),
            advice=()
            if of_late_rank
            else (more_threads(facts) if _updates_on_host(facts, known) else ())
            + to_do
            + record(facts, EVERY_PHASE)
            or ((place.advice(*one) if place else look_at(BETWEEN_PHASES, *one)),),
            gain=_gain(place, seconds - inside),
            confidence="medium",
        )
    ]


def _gain(place: Place | None, seconds: float) -> tuple[float, float] | None:
    """At best all of it at which the code that is named was seen, or may have run unseen."""
    if place is None or place.code is None:
        return None
    code = place.code
    return promise(place.share * seconds * (code.seen + code.unknown) / code.looks)


@dataclass(frozen=True, slots=True)
class _Whose:
    """On which ranks of a recording nearly all of it is, in words; and the one to look at."""

    title: str
    said: str
    one: str


def _whose(facts: Facts) -> _Whose | None:
    """None if most ranks have some of it, or it is not known by rank."""
    if facts.rest is None or facts.rest.shape[1] < 2:
        return None
    mean = facts.rest.mean().clip(lower=0.0).sort_values(ascending=False, kind="stable")
    parts = mean.cumsum() / mean.sum()
    many = int((parts < _NEARLY).sum()) + 1
    if 2 * many > len(mean):
        return None
    ranks, share = sorted(mean.index[:many]), format_share(float(parts.iloc[many - 1]))
    who, each = format_ranks(ranks), format_seconds(float(mean.iloc[:many].mean()))
    return _Whose(
        f", {share} on {who}",
        f" {share} of it is on {who}, {each} per step there: it costs what the others wait "
        "for it, which may be little.",
        f"rank {mean.index[0]}",
    )


def _lies(place: Place | None, within: float) -> str:
    """Where most of it lies that is not `within` timers, as a part of what the title counts."""
    if place is None:
        return ""
    beside = 1 - within if within >= WORTH_NAMING else 1.0
    much = replace(place, share=beside * place.share).much
    return f", {much} of that {place.words}{mostly(place.code)}"


def _of_late_rank(ranks: tuple[int, ...], part: float) -> str:
    much = "all" if part > 1 - _NOTHING else format_share(part)
    return f", {much} of that on {format_ranks(ranks)}, for which the others wait"


def _of_title(known: pd.DataFrame, seconds: float, inside: float) -> float:
    """The time that lies where the title says, without the little that lies elsewhere."""
    within = inside / seconds
    if within > 1 - WORTH_NAMING:
        return min(inside, float(known["seconds"][_that_hold_it(known)].sum()))
    return seconds - inside if within < WORTH_NAMING else seconds


def _where(facts: Facts, known: pd.DataFrame, within: float) -> str:
    """Where unexplained time lies, in words; `within` is the share of it inside timers."""
    divided = known["held"] > known["shown"]
    if within > 1 - WORTH_NAMING:
        timers = _that_hold_it(known)
        part = "in no part of " + ("it" if len(timers) == 1 else "them")
        rest = f"but {part} that is timed" if divided[timers].any() else "which no timer divides"
        return f"inside {named(timers)}, {rest}"
    if by_the_clock(facts):
        return "in no timer, by the time stamps of the lines"
    if within < WORTH_NAMING:
        return "explained by no timer"
    timer, its = (known.index[0], "its") if len(known) == 1 else ("timers", "their")
    beside = f" beside {its} parts" if divided.any() else ""
    return f"explained by no timer, {format_share(within)} of that inside {timer}{beside}"


def _that_hold_it(known: pd.DataFrame) -> list[str]:
    """The fewest timers that together hold nearly all of it, largest first."""
    so_far = known["seconds"].cumsum() / known["seconds"].sum()
    return list(known.index[: int((so_far < 1 - WORTH_NAMING).sum()) + 1])


def _unexplained(facts: Facts) -> pd.DataFrame:
    """Timers of no known class, with what their parts leave of them; without those known to be
    mixed.

    ZeRO-3's `step` is included if calls are logged: nothing shows what it does besides the
    optimizer and gathering. Of a recording, evaluations are left to their rule, and `other` is no
    timer: it is what phases left of steps whose spans are deleted.
    """
    table = facts.phases_of("other")
    if facts.hidden_communication is None:
        table = table[~table["mixed"] | table.index.isin(UPDATES)]
    told = [EVALUATION, Class.OTHER] if facts.run.is_recording else []
    told += GENERATE if unexplained_generation(facts) else ()
    return table.drop([*mixed_phases(facts).index, *told], errors="ignore")


#: What else is known of a step's timer.
_ON_HOST: Final = (
    " The optimizer is offloaded: its update, on the CPU, and copying the new parameters to the "
    "GPU are part of that."
)


def _updates_on_host(facts: Facts, known: pd.DataFrame) -> bool:
    return facts.is_offloaded and bool(known.index.isin(UPDATES).any())


_BETWEEN_STEPS: Final = (
    " Loading data, saving, evaluating, logging, a host that stalls, or a phase whose timer is "
    "missing: the log cannot say which."
)


#: Flavours of loops that also generate what their engines train on.
_TURNS: Final = ("hybrid", "rlhf", "openrlhf")
#: Flavours of DeepSpeed's own pipeline engine.
_PIPELINE_TIMERS: Final = ("pipeline", "pipeline-micro", "pipeline-p2p")


def _suspects(facts: Facts, place: Place | None) -> str:
    if facts.run.is_recording:
        said = " What the script does between the recorded phases has no time of its own."
        scored = " Functions that score what was generated lie there." if generates(facts) else ""
        return said + (place.hint if place else "") + scored
    if by_the_clock(facts):
        return _BETWEEN_STEPS
    if not facts.flavours.isdisjoint(_PIPELINE_TIMERS):
        return " DeepSpeed's pipeline engine does not time gradient reduction: it may be in here."
    return _outside_of_engines(facts) if not facts.flavours.isdisjoint(ENGINE_TIMERS) else ""


def _outside_of_engines(facts: Facts) -> str:
    """What DeepSpeed's engines do not time; of other timers this is not known."""
    if not facts.flavours.isdisjoint(_TURNS):
        return (
            " Timers see generating and the training of the engines: scoring what was generated, "
            "loading data and logging lie outside."
        )
    ways = facts.steps["seconds_from"]
    if ways.isin(["throughput", "rated"]).any() and are_deepspeeds(facts):
        return UNTIL_STEP
    if ways.isin(["logged", "throughput", "rated"]).any():
        moving = "" if facts.on_cpu else "moving it to the GPU, "
        return (
            f" DeepSpeed's timers run from forward to step: loading data, {moving}logging and "
            "evaluation lie outside."
        )
    return ""
