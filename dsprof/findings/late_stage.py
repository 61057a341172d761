"""The stage of a recorded pipeline that the others wait for because it is late between steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from dsprof.analysis.breakdown import pipeline_phases
from dsprof.events import Class
from dsprof.findings.evidence import phase_evidence
from dsprof.findings.facts import Facts, first_of, once, promise
from dsprof.findings.finding import Finding
from dsprof.findings.places import Place, look_at, place_of
from dsprof.findings.stages import by_stage, costs_nothing, ranks_of
from dsprof.findings.thresholds import STRAGGLER_CRITICAL, STRAGGLER_WARNING, grade
from dsprof.findings.unseen import calls_unseen
from dsprof.run.table import Numbers
from dsprof.units import format_ranks, format_seconds, format_share

_WORTH_SAYING: Final = 0.1  # of what a stage is longer between steps


@dataclass(frozen=True, slots=True)
class LateStage:
    """A stage that begins its first micro-batch later than its input would come.

    Attributes:
        seconds: per step that this costs, at least.
        more: seconds per step that it takes longer than any other outside of all phases.
        place: where most of that lies, between two steps.
    """

    stage: int
    ranks: tuple[int, ...]
    seconds: float
    more: float
    place: Place


@once
def late_stage(facts: Facts) -> LateStage | None:
    """None unless every stage is recorded, and it is known when and how long one is late.

    What a stage does between two steps costs what it takes longer than any other, if that is before
    its first micro-batch: all that the others do in a step follows from that of stage 0. Of a later
    stage, what its input takes to come to it costs nothing, nor what a stage before it works longer
    than all behind. In any case it costs no more than each of the others waits.
    """
    by_rank, waits = _rest(facts), by_stage(facts, Class.WAIT)
    if by_rank is None or waits is None or calls_unseen(facts):
        return None
    rest = by_rank.reshape(waits.shape)
    late = int(rest.min(axis=1).argmax())
    update = by_stage(facts, Class.OPTIMIZER)
    more, free = _beyond(rest, late), costs_nothing(facts, late)
    most = more if update is None else min(more, _beyond(rest + update, late))
    if free is None or _below(facts, most - free):
        return None
    ranks = ranks_of(late, waits.shape[1])
    place = place_of(facts, ranks)
    if place is None or not place.between_steps:
        return None
    waited = float(np.delete(waits, late, axis=0).min())
    seconds = min(min(place.share * more, most) - free, waited)
    return None if _below(facts, seconds) else LateStage(late, ranks, seconds, more, place)


def waited_for_late_stage(facts: Facts) -> float:
    """Seconds per step that stages wait for a late one, mean over all ranks."""
    late = late_stage(facts)
    if late is None or not facts.layout.world_size:
        return 0.0
    return late.seconds * (1 - len(late.ranks) / facts.layout.world_size)


def found_late(facts: Facts) -> list[Finding]:
    """The finding about a late stage; none if there is none.

    Gain: at best all of it, if the stage is no longer between steps than the others.
    """
    late = late_stage(facts)
    severity = (
        grade(_share(facts, late.seconds), STRAGGLER_WARNING, STRAGGLER_CRITICAL) if late else None
    )
    if late is None or severity is None:
        return []
    who, share = format_ranks(late.ranks), _share(facts, late.seconds)
    waiting = pipeline_phases(facts.phases_of("wait"))
    free = ""
    if late.more - late.seconds > _WORTH_SAYING * late.more:
        free = (
            " The rest costs nothing: its first input comes no earlier, or others work meanwhile."
        )
    return [
        Finding(
            rule="straggler-rank",
            severity=severity,
            title=f"The others wait for stage {late.stage} ({who}) at the beginning of each step, "
            f"{format_share(share)} of it",
            summary=f"All {facts.layout.stages} stages are recorded. Outside of all phases, stage "
            f"{late.stage} takes {format_seconds(late.more)} more than any other in a median step, "
            f"{late.place.much} of that {late.place.words}. It begins its first micro-batch later "
            f"by that, and {format_seconds(late.seconds)} per step the others wait for it.{free} "
            "What the script does between the recorded phases has no time of its own. Medium "
            "confidence: the wait is reckoned from sums of each stage, not from single moments.",
            share=share,
            seconds_per_step=late.seconds,
            ranks=late.ranks,
            phase=first_of(waiting),
            evidence=(*late.place.proof, *phase_evidence(waiting, 1)),
            advice=(look_at(late.place.words, f"rank {late.ranks[0]}"),),
            gain=promise(late.seconds),
            confidence="medium",
        )
    ]


def _rest(facts: Facts) -> Numbers | None:
    """Seconds of each rank outside of all phases in the median step: what a few steps have is left
    to `step-spikes`. None unless every rank is recorded.
    """
    if facts.rest is None or facts.rest.shape[1] != facts.layout.world_size:
        return None
    if facts.engine is not None:  # the turns of another one are outside of its phases, too
        return None
    return facts.rest.median().clip(lower=0.0).sort_index().to_numpy(float)


def _beyond(seconds: Numbers, stage: int) -> float:
    """What all ranks of a stage have beyond every rank of the others [stages x ranks]."""
    return float(seconds[stage].min() - np.delete(seconds, stage, axis=0).max())


def _share(facts: Facts, seconds: float) -> float:
    return facts.share(seconds) or 0.0


def _below(facts: Facts, seconds: float) -> bool:
    return _share(facts, seconds) < STRAGGLER_WARNING
