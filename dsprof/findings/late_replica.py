"""Ranks of a recorded pipeline that are late beside others of their stage."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pandas as pd

from dsprof.analysis.checkpoints import apart_from_saves
from dsprof.analysis.ranks import Straggler, straggler
from dsprof.events import Class
from dsprof.findings.facts import Facts, once, promise
from dsprof.findings.finding import Finding
from dsprof.findings.late_ranks import (
    hosts_of,
    is_steady,
    may_wait,
    node,
    own_code,
    proof_of,
    stands_out,
)
from dsprof.findings.models import other_model
from dsprof.findings.places import place_of
from dsprof.findings.stages import by_rank
from dsprof.findings.thresholds import (
    STRAGGLER_CRITICAL,
    STRAGGLER_STEPS,
    STRAGGLER_WARNING,
    grade,
)
from dsprof.run.table import Numbers, where
from dsprof.units import format_ranks, format_seconds, format_share

_ALIKE: Final = 0.5  # of the longest delay: so late ranks of other stages are named with it
_WORTH_SAYING: Final = 0.15  # of a delay
_WAITING: Final = "waiting"  # stands for all phases in which a rank waits for others
_WORK: Final = (Class.COMPUTE, Class.DATA, Class.OPTIMIZER)


@dataclass(frozen=True, slots=True)
class LateReplica:
    """Ranks that are late beside others of their stage.

    Attributes:
        ranks: of one stage, or of several that are as late, as those of one node.
        stage: that of `latest`.
        latest: how the latest of them compare with the others of their stage.
        seconds: per step that all others wait for them, at least.
        within: the part of all ranks that wait for one as stages of the same replica do, in sends
            and receives.
        beside: the part that waits for it as other replicas do, where gradients are reduced.
    """

    ranks: tuple[int, ...]
    stage: int
    latest: Straggler
    seconds: float
    within: float
    beside: float


def are_compared(facts: Facts) -> bool:
    """Whether every rank is recorded, and some do the same work as others."""
    return _each(facts) > 1 and _work(facts) is not None


@once
def late_replica(facts: Facts) -> LateReplica | None:
    """None if no rank stands out in its stage, or nobody waits for it because others, as those of a
    slower stage, work as long.
    """
    work = _work(facts)
    found = {} if work is None else _late_in_stages(facts)
    if work is None or not found:
        return None
    stage = max(found, key=lambda one: found[one].delay)
    latest = found[stage]
    together = [one for one in found.values() if one.delay >= _ALIKE * latest.delay]
    ranks = tuple(sorted(rank for one in together for rank in one.group))
    slow = np.isin(np.arange(len(work)), ranks)
    beyond = float(work[slow].max() - work[~slow].max())
    replica = np.arange(len(work)) % _each(facts)
    within = np.isin(replica, replica[slow]) & ~slow
    seconds = min(latest.delay, beyond)
    if (facts.share(seconds) or 0.0) < STRAGGLER_WARNING:
        return None
    return LateReplica(
        ranks, stage, latest, seconds, float(within.mean()), float((~within & ~slow).mean())
    )


def waited_within(facts: Facts) -> float:
    """Seconds per step, mean over all ranks, that stages of a replica wait for its late one."""
    late = late_replica(facts)
    return late.seconds * late.within if late else 0.0


def waited_beside(facts: Facts) -> float:
    """Seconds per step, mean over all ranks, that the other replicas wait in collectives."""
    late = late_replica(facts)
    return late.seconds * late.beside if late else 0.0


def found_replica(facts: Facts) -> list[Finding]:
    """The finding about late ranks; none if there are none."""
    late = late_replica(facts)
    share = facts.share(late.seconds) or 0.0 if late else 0.0
    severity = grade(share, STRAGGLER_WARNING, STRAGGLER_CRITICAL)
    if late is None or severity is None:
        return []
    latest, other = late.latest, other_model(facts, late.ranks)
    place = None if latest.phase else place_of(facts, latest.group)
    one = len(latest.group) == 1
    much = late.latest.place_delay * (place.share if place else 1.0)
    return [
        Finding(
            rule="straggler-rank",
            severity=severity,
            title=f"The others wait for {_who(facts, late)}, {format_share(share)} of "
            + ("each step" if is_steady(latest) else "the time"),
            summary=f"The {_each(facts)} ranks of stage {late.stage} do the same work. "
            f"{latest.who.capitalize()} {'is' if one else 'are'} the last of them in "
            f"{format_share(latest.held)} of {latest.steps:,} steps and "
            f"{'arrives' if one else 'arrive'} {format_seconds(latest.delay)} per step after the "
            f"median of the others. {'It loses' if one else 'They lose'} most "
            f"{place.words if place else latest.place} ({format_seconds(much)} per step). Other "
            f"stages wait for {'it' if one else 'them'} in sends and receives, other replicas "
            f"where gradients are reduced.{_hidden(late)}"
            + (other.said(len(late.ranks)) if other else ""),
            share=share,
            seconds_per_step=late.seconds,
            ranks=late.ranks,
            phase=latest.phase or None,
            steps=(latest.first, latest.last),
            evidence=proof_of(facts, latest, _of_stage(facts, late.stage))
            or (place.proof if place else ()),
            advice=(
                *((other.advice(format_ranks(late.ranks)),) if other else ()),
                *own_code(facts, latest, place),
                node(facts, _as_one(facts, late)),
            ),
            gain=promise(late.seconds),
        )
    ]


def _who(facts: Facts, late: LateReplica) -> str:
    hosts = " and ".join(hosts_of(facts, _as_one(facts, late)))
    on = f" on {hosts}" if hosts else ""
    of = f" (stage {late.stage})" if late.ranks == late.latest.group else ""
    return f"{format_ranks(late.ranks)}{on}{of}"


def _as_one(facts: Facts, late: LateReplica) -> Straggler:
    """All late ranks, compared with all others. They meet in more than one phase."""
    world = facts.layout.world_size or late.latest.ranks
    return replace(late.latest, group=late.ranks, ranks=world, meeting="")


def _hidden(late: LateReplica) -> str:
    hidden = late.latest.delay - late.seconds
    if hidden < _WORTH_SAYING * late.latest.delay:
        return ""
    return f" {format_seconds(hidden)} of that cost nothing: others work as long."


def _late_in_stages(facts: Facts) -> dict[int, Straggler]:
    """By stage, who is late in it."""
    return {
        stage: late
        for stage, late in in_stages(facts, facts.compared, facts.rest).items()
        if late.steps >= STRAGGLER_STEPS and stands_out(late) and not may_wait(facts, late)
    }


def in_stages(
    facts: Facts, phases: pd.DataFrame, rest: pd.DataFrame | None
) -> dict[int, Straggler]:
    """By stage, the rank of these phases that is last, or are, compared with the others of it.

    Where they wait is not told apart: those of a late replica in sends and receives for the one
    that is late, the others in collectives for all of that replica.
    """
    alike = apart_from_saves(phases)
    meets = alike["class"].isin((Class.COMMUNICATION, Class.WAIT))
    alike = alike.assign(name=alike["name"].astype(object).mask(meets, _WAITING))
    stages = {one: _of_stage(facts, one) for one in range(facts.layout.stages or 0)}
    each = {one: where(alike, alike["rank"].isin(ranks)) for one, ranks in stages.items()}
    found = {one: straggler(rows, rest) for one, rows in each.items() if _each(facts) > 1}
    return {stage: late for stage, late in found.items() if late is not None}


def _work(facts: Facts) -> Numbers | None:
    """Seconds per step that each rank works, in order, with what no phase holds; None unless every
    rank is recorded, and a stage has several.
    """
    if not facts.is_pipeline or _each(facts) < 2 or facts.rest is None:
        return None
    if facts.rest.shape[1] != facts.layout.world_size:
        return None
    told = [one for class_ in _WORK if (one := by_rank(facts, class_)) is not None]
    beside = facts.rest.median().clip(lower=0.0).sort_index().to_numpy(float)
    return np.sum([*told, beside], axis=0) if told else None


def _each(facts: Facts) -> int:
    """Ranks of a stage; 0 if that is unknown."""
    ranks, stages = facts.layout.world_size or 0, facts.layout.stages or 0
    return ranks // stages if stages > 1 and ranks % stages == 0 else 0


def _of_stage(facts: Facts, stage: int) -> range:
    """Its ranks, which follow each other, as in DeepSpeed."""
    each = _each(facts)
    return range(stage * each, (stage + 1) * each)
