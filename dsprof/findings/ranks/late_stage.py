"""The stage of a recorded pipeline that the others wait for because it is late between steps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from dsprof.analysis.breakdown import pipeline_phases
from dsprof.events import Class
from dsprof.findings.evidence import phase_evidence
from dsprof.findings.facts import Facts, first_of, once, promise
from dsprof.findings.finding import Finding
from dsprof.findings.ranks.stages import Work, by_stage, ranks_of, seconds_of, work_of
from dsprof.findings.seen.places import Place, place_of
from dsprof.findings.seen.unseen import calls_unseen
from dsprof.findings.thresholds import STRAGGLER_CRITICAL, STRAGGLER_WARNING, grade
from dsprof.run.table import Numbers
from dsprof.units import format_ranks, format_seconds, format_share

_STEADY: Final = 0.75  # part of what it is in the median step, from which on it is so in each
_WORTH_SAYING: Final = 0.1  # of what a stage is longer between steps


@dataclass(frozen=True, slots=True)
class LateStage:
    """A stage that begins its first micro-batch later than its input would come.

    Attributes:
        seconds: per step that this costs, at least.
        more: seconds per step that it takes longer than any other outside of all phases, in the
            median step.
        often: the mean of that as a part of it: less than 1 where it is not late in all steps.
        place: where most of that lies, between two steps.
    """

    stage: int
    ranks: tuple[int, ...]
    seconds: float
    more: float
    often: float
    place: Place

    @property
    def is_steady(self) -> bool:
        """Whether it is late in about all steps."""
        return self.often >= _STEADY


@once
def late_stage(facts: Facts) -> LateStage | None:
    """None unless every stage is recorded, and it is known when and how long one is late.

    What a stage does between two steps costs what it takes longer than any other, if that is before
    its first micro-batch: all that the others do in a step follows from that of stage 0. Of a later
    stage, what its input takes to come to it costs nothing, nor what a stage before it works longer
    than all behind. In any case it costs no more than each of the others waits.
    """
    work, waits = work_of(facts), by_stage(facts, Class.WAIT)
    if work is None or waits is None or facts.engine is not None or calls_unseen(facts):
        return None  # the turns of another engine are outside of all phases of this one, too
    late = int(work.starts.min(axis=1).argmax())
    more = _beyond(work.starts, late)
    most = min(more, _beyond(work.starts + work.updates, late))
    if _below(facts, _cost(facts, work, late, most)):
        return None
    ranks = ranks_of(late, waits.shape[1])
    place = place_of(facts, ranks)
    if place is None or not place.between_steps:
        return None
    waited = float(np.delete(waits, late, axis=0).min())
    often = _often(facts, late, more)
    seconds = min(_cost(facts, work, late, min(place.share * more, most)) * often, waited)
    return None if _below(facts, seconds) else LateStage(late, ranks, seconds, more, often, place)


def _often(facts: Facts, late: int, more: float) -> float:
    """What a stage takes longer outside of all phases in the mean, as a part of the median; 1 at
    most, because a mean holds what only some steps have to do."""
    assert facts.rest is not None  # `work_of` has looked
    rest = facts.rest.mean().clip(lower=0.0).sort_index().to_numpy(float)
    mean = _beyond(rest.reshape(facts.layout.stages or 1, -1), late)
    return min(1.0, max(0.0, mean / more))


def _cost(facts: Facts, work: Work, late: int, seconds: float) -> float:
    """By how much a step is quicker if that stage begins it earlier by some seconds."""
    starts = work.starts.copy()
    starts[late] -= seconds
    return seconds_of(facts, work) - seconds_of(facts, replace(work, starts=starts))


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
    if late.more * late.often - late.seconds > _WORTH_SAYING * late.more:
        free = (
            " The rest costs nothing: its first input comes no earlier, or others work meanwhile."
        )
    return [
        Finding(
            rule="straggler-rank",
            severity=severity,
            title=f"The others wait for stage {late.stage} ({who}) at the beginning of "
            + (f"each step, {format_share(share)} of it" if late.is_steady else _some(share)),
            summary=f"All {facts.layout.stages} stages are recorded. Outside of all phases, stage "
            f"{late.stage} takes {format_seconds(late.more)} more than any other in a median step, "
            f"{_in_the_mean(late)}{late.place.much} of that {late.place.words}. It begins "
            f"its first micro-batch later by that, and {format_seconds(late.seconds)} per step the "
            f"others wait for it.{free} "
            "What the script does between the recorded phases has no time of its own. Medium "
            "confidence: the wait is reckoned from sums of each stage, not from single moments.",
            share=share,
            seconds_per_step=late.seconds,
            ranks=late.ranks,
            phase=first_of(waiting),
            evidence=(*late.place.proof, *phase_evidence(waiting, 1)),
            advice=(late.place.advice(f"rank {late.ranks[0]}"),),
            gain=promise(late.seconds),
            confidence="medium",
        )
    ]


def _some(share: float) -> str:
    return f"steps, {format_share(share)} of the time"


def _in_the_mean(late: LateStage) -> str:
    if late.is_steady:
        return ""
    return f"{format_seconds(late.often * late.more)} in the mean of all steps, "


def _beyond(seconds: Numbers, stage: int) -> float:
    """What all ranks of a stage have beyond every rank of the others [stages x ranks]."""
    return float(seconds[stage].min() - np.delete(seconds, stage, axis=0).max())


def _share(facts: Facts, seconds: float) -> float:
    return facts.share(seconds) or 0.0


def _below(facts: Facts, seconds: float) -> bool:
    return _share(facts, seconds) < STRAGGLER_WARNING
