"""Ranks that collect Python's garbage while the others wait for them."""

from __future__ import annotations

from typing import Final

from dsprof.analysis.garbage import Collecting, collecting
from dsprof.analysis.ranks import Straggler
from dsprof.events import Severity
from dsprof.findings.evidence import row_evidence
from dsprof.findings.facts import Facts, once, promise
from dsprof.findings.finding import Advice, Evidence, Finding
from dsprof.findings.ranks.backwards import Cause
from dsprof.findings.ranks.stopped import (
    how_many,
    is_sampled,
    judged_launches,
    longer_than_others,
)
from dsprof.findings.thresholds import (
    GARBAGE_CRITICAL,
    GARBAGE_WARNING,
    grade,
)
from dsprof.units import format_count, format_seconds, format_share

#: Full collections a step, of more of which a script calls for them itself: Python makes one when
#: there are a quarter more objects than at the last one.
_CALLED: Final = 0.5
_AHEAD: Final = "Whether the GPU waits meanwhile is unknown: the host may be ahead of it."
_FREEZE: Final = Advice(
    "gc.freeze()",
    "",
    "called once training has begun",
    "what exists by then (models, data, compiled code) is never searched again",
)


@once
def garbage_collection(facts: Facts) -> list[Finding] | str:
    """Python's garbage collector stops a process, and whoever waits for its rank.

    On a GPU this is a note: the host may be ahead. Gain: at best what the rank that collects
    longest spends.
    """
    found = collecting_ranks(facts)
    if not found:
        return "no count of how long garbage is collected: only recordings have it"
    worst = found[0]
    severity = grade(worst.share, GARBAGE_WARNING, GARBAGE_CRITICAL)
    if severity is None:
        return []
    seconds = None
    if facts.on_cpu and len(facts.run.judged) == 1 and facts.average:
        seconds = worst.share * facts.average
    who = tuple(sorted(one.rank for one in found if one.share >= GARBAGE_WARNING))
    return [
        Finding(
            rule="garbage-collection",
            severity=severity if facts.on_cpu else Severity.INFO,
            title=_title(worst, who, len(found)),
            summary=f"On rank {worst.rank} it took {format_seconds(worst.seconds)} of "
            f"{format_seconds(worst.of)}{_often(facts, worst)}; no other code of its Python runs "
            "meanwhile." + _of_all(found) + ("" if facts.on_cpu else f" {_AHEAD}"),
            share=worst.share,
            seconds_per_step=seconds,
            ranks=who,
            evidence=(_proof(worst),),
            advice=_advice(facts, worst, len(found)),
            gain=promise(seconds) if seconds else None,
            confidence="high" if facts.on_cpu else "low",
        )
    ]


def late_by_garbage(facts: Facts, late: Straggler) -> Cause | None:
    """Late ranks that collect garbage longer than the others, if that is most of the delay."""
    found = collecting_ranks(facts)
    longer = longer_than_others(facts, late, found)
    if longer is None:
        return None
    worst = next(one for one in found if one.rank in late.group)
    collect = "collects" if len(late.group) == 1 else "collect"
    said = (
        f"{late.who[:1].upper()}{late.who[1:]} {collect} garbage for {format_seconds(longer.own)} "
        f"per step, the others for {format_seconds(longer.others)} at most."
    )
    title = f": {late.who} {collect} garbage" if facts.on_cpu else ""  # a host may be ahead
    return Cause(said, _advice(facts, worst, len(found)), title, (_proof(worst),))


@once
def collecting_ranks(facts: Facts) -> list[Collecting]:
    """Of each rank of the launches that are judged, who collects longest first."""
    return list(filter(is_sampled, collecting(facts.run.told, judged_launches(facts))))


def _title(worst: Collecting, who: tuple[int, ...], of: int) -> str:
    time = f"{format_share(worst.share)} of the time"
    if len(who) == 1:
        return f"Rank {worst.rank} collects Python's garbage, {time}"
    return f"{how_many(who, of)} ranks collect Python's garbage, rank {worst.rank} for {time}"


def _calls(facts: Facts, worst: Collecting) -> float:
    """Full collections a step."""
    steps = worst.of / facts.average if facts.average else 0.0
    return worst.full / steps if steps else 0.0


def _often(facts: Facts, worst: Collecting) -> str:
    if not worst.full:
        return ""
    calls = _calls(facts, worst)
    many = f", in {format_count(worst.full)} full collections"
    return f"{many}, {_about(calls)}" if calls > _CALLED else many


def _about(calls: float) -> str:
    return f"about {format_count(max(round(calls), 1))} a step"


def _of_all(found: list[Collecting]) -> str:
    total = sum(one.share for one in found)
    if not 1.5 * found[0].share < total <= 1:  # of more, some collect at the same time
        return ""
    return (
        " Ranks that do not collect at the same time wait for each other: all of theirs together "
        f"is {format_share(total)} of the time."
    )


def _proof(worst: Collecting) -> Evidence:
    spent = format_seconds(float(worst.row["seconds"]))
    return row_evidence(worst.row, f"rank {worst.rank} has collected garbage for {spent} so far")


def _advice(facts: Facts, worst: Collecting, ranks: int) -> tuple[Advice, ...]:
    if _calls(facts, worst) > _CALLED:
        often = _about(_calls(facts, worst))
        why = "each call searches all objects of the process for cycles"
        return (Advice("gc.collect()", often, "seldom, or not at all", why), _FREEZE)
    if ranks < 2:
        return (_FREEZE,)
    if facts.is_megatron_alone:
        together = Advice("--manual-gc", "", "with --manual-gc-interval", _TOGETHER)
    else:
        setting = "gc.disable(), and gc.collect() at every so many steps"
        together = Advice(setting, "", "by all ranks at the same ones", _TOGETHER)
    return (together, _FREEZE)


_TOGETHER: Final = "else each rank collects when it likes, and the others wait for it every time"
