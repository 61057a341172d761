"""Ranks of a recorded pipeline that are late beside others of their stage."""

from __future__ import annotations

from dataclasses import astuple, dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from dsprof.analysis.checkpoints import apart_from_saves
from dsprof.analysis.ranks import Straggler, of_median_rank, straggler
from dsprof.events import Class
from dsprof.findings.facts import Facts, once, promise
from dsprof.findings.finding import Finding
from dsprof.findings.ranks.late_ranks import (
    code_of,
    hosts_of,
    is_steady,
    may_wait,
    node,
    own_code,
    proof_of,
    stands_out,
)
from dsprof.findings.ranks.stages import Work, ranks_of, seconds_of, work_of
from dsprof.findings.resources.models import other_model
from dsprof.findings.seen import code_seen
from dsprof.findings.seen.places import place_of
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
_Mask = npt.NDArray[np.bool_]
_WAITING: Final = "waiting"  # stands for all phases in which a rank waits for others


@dataclass(frozen=True, slots=True)
class LateReplica:
    """Ranks that are late beside others of their stage.

    Attributes:
        ranks: of one stage, or of several that are as late, as those of one node.
        stage: that of `latest`.
        latest: how the latest of them compare with the others of their stage.
        seconds: per step by which it is longer than if they were as quick as the others of their
            stage, at least. All others wait so long.
        within: seconds per step, mean over all ranks, by which they wait longer in sends and
            receives: stages of the same replica do.
        beside: the same in collectives: other replicas wait there, and all for a late update.
    """

    ranks: tuple[int, ...]
    stage: int
    latest: Straggler
    seconds: float
    within: float
    beside: float


def are_compared(facts: Facts) -> bool:
    """Whether every rank is recorded, and some do the same work as others."""
    whole = facts.rest is not None and facts.rest.shape[1] == facts.layout.world_size
    return facts.is_pipeline and _each(facts) > 1 and whole


@once
def late_replica(facts: Facts) -> LateReplica | None:
    """None if no rank stands out in its stage, or hardly anybody waits for it because others, as
    those of a slower stage, work as long.
    """
    found = _late_in_stages(facts) if are_compared(facts) else {}
    work = work_of(facts)
    if not found or work is None:
        return None
    stage = max(found, key=lambda one: found[one].delay)
    latest = found[stage]
    together = [one for one in found.values() if one.delay >= _ALIKE * latest.delay]
    ranks = tuple(sorted(rank for one in together for rank in one.group))
    slow = np.isin(np.arange(work.starts.size), ranks).reshape(work.starts.shape)
    usual = Work(*(_as_others(seconds, slow) for seconds in astuple(work)))
    cost = seconds_of(facts, work) - seconds_of(facts, usual)
    seconds = min(sum(one.delay for one in together), cost)
    if (facts.share(seconds) or 0.0) < STRAGGLER_WARNING:
        return None
    more = float(np.sum(astuple(work)) - np.sum(astuple(usual))) / slow.size
    quick = replace(usual, updates=work.updates)
    update = (seconds_of(facts, quick) - seconds_of(facts, usual)) / cost
    beside = seconds * float(np.where(slow.any(axis=0), update * ~slow, 1.0).mean())
    return LateReplica(ranks, stage, latest, seconds, max(0.0, seconds - more - beside), beside)


def waited_within(facts: Facts) -> float:
    """Seconds per step, mean over all ranks, that stages of a replica wait for its late one."""
    late = late_replica(facts)
    return late.within if late else 0.0


def waited_beside(facts: Facts) -> float:
    """Seconds per step, mean over all ranks, that the other replicas wait in collectives."""
    late = late_replica(facts)
    return late.beside if late else 0.0


def found_replica(facts: Facts) -> list[Finding]:
    """The finding about late ranks; none if there are none."""
    late = late_replica(facts)
    share = facts.share(late.seconds) or 0.0 if late else 0.0
    severity = grade(share, STRAGGLER_WARNING, STRAGGLER_CRITICAL)
    if late is None or severity is None:
        return []
    latest, other = late.latest, other_model(facts, late.ranks)
    place = None if latest.phase else place_of(facts, latest.group)
    code = code_of(facts, latest, place)
    shown = proof_of(facts, latest, ranks_of(late.stage, _each(facts)))
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
            f"where gradients are reduced.{_hidden(late)}{_RECKONED}"
            + (other.said(len(late.ranks)) if other else "")
            + (f" {code_seen.said(code)}" if code else ""),
            share=share,
            seconds_per_step=late.seconds,
            ranks=late.ranks,
            phase=latest.phase or None,
            steps=(latest.first, latest.last),
            evidence=(*shown, *code_seen.proof(code)) if shown or not place else place.proof,
            advice=(
                *((other.advice(format_ranks(late.ranks)),) if other else ()),
                *own_code(facts, latest, place),
                node(facts, _as_one(facts, late)),
            ),
            gain=promise(late.seconds),
            confidence="medium",
        )
    ]


_RECKONED: Final = (
    " Medium confidence: what that costs is reckoned from sums of each rank, not single moments."
)


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
    return f" {format_seconds(hidden)} of that cost nothing: others work meanwhile."


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
    stages = {one: ranks_of(one, _each(facts)) for one in range(facts.layout.stages or 0)}
    each = {one: where(alike, alike["rank"].isin(ranks)) for one, ranks in stages.items()}
    found = {one: straggler(rows, rest) for one, rows in each.items() if _each(facts) > 1}
    return {stage: late for stage, late in found.items() if late is not None}


def _as_others(seconds: Numbers, slow: _Mask) -> Numbers:
    """The same, of ranks that are as the others of their stage."""
    others = of_median_rank(np.where(slow, np.nan, seconds))
    return np.where(slow, others[:, None], seconds)


def _each(facts: Facts) -> int:
    """Ranks of a stage; 0 if that is unknown."""
    ranks, stages = facts.layout.world_size or 0, facts.layout.stages or 0
    return ranks // stages if stages > 1 and ranks % stages == 0 else 0
