"""How much of a step `straggler-rank` accounts for, so that no other rule counts it again."""

from __future__ import annotations

from collections.abc import Container, Iterable

from dsprof.analysis.ranks import Straggler
from dsprof.findings.facts import Facts
from dsprof.findings.ranks.extremes import spreads, waited_in_collectives
from dsprof.findings.ranks.late_in_part import LatePart, late_parts
from dsprof.findings.ranks.late_replica import late_replica, waited_beside
from dsprof.findings.ranks.late_stage import late_stage
from dsprof.findings.ranks.stragglers import straggler_rank


def late_seconds(facts: Facts, operation: str = "") -> float:
    """Seconds per step of waiting that `straggler-rank` accounts for, if it happens in `operation`.

    It is the mean over the timed ranks, like a step's communication: if ranks are compared, all
    that are not late wait.
    """
    found, late = straggler_rank(facts), facts.straggler
    if facts.is_pipeline:  # its stages wait in sends and receives, its replicas here
        return 0.0 if operation else waited_beside(facts)
    if isinstance(found, str) or not found:
        return 0.0
    if late is not None:
        return _in_the_mean(one for one in _told(facts) if operation in one.late.meeting)
    if spreads(facts) is not None:
        return waited_in_collectives(facts)
    return sum(one.seconds_per_step or 0.0 for one in found)


def late_at_calls(facts: Facts, names: Container[str]) -> float:
    """The same where it happens in calls of one of these names."""
    if facts.straggler is None or not late_seconds(facts):
        return 0.0
    return _in_the_mean(one for one in _told(facts) if one.late.meeting in names)


def _in_the_mean(parts: Iterable[LatePart]) -> float:
    return sum(one.seconds * (1 - len(one.late.group) / one.late.ranks) for one in parts)


def late_outside(facts: Facts) -> tuple[float, tuple[int, ...]]:
    """Seconds of the mean step that those of `straggler-rank` lose outside of all phases, and who
    they are.
    """
    stage, one, late = late_stage(facts), late_replica(facts), facts.straggler
    if one is not None and not one.latest.phase and facts.layout.world_size:
        return one.latest.place_delay * len(one.ranks) / facts.layout.world_size, one.ranks
    if stage is not None and facts.layout.world_size:
        return stage.more * len(stage.ranks) / facts.layout.world_size, stage.ranks
    if facts.unlike is not None and not late_seconds(facts):
        return _late_elsewhere(facts)
    if late is None or not facts.run.is_recording or not late_seconds(facts):
        return 0.0, ()
    lost = {
        one.late.group: one.share * len(one.late.group) / one.late.ranks * _lost(facts, one)
        for one in _told(facts)
    }
    return sum(lost.values()), tuple(sorted({rank for group in lost for rank in group}))


def _late_elsewhere(facts: Facts) -> tuple[float, tuple[int, ...]]:
    """The same of ranks for which others wait in the steps of another engine."""
    return max(
        (
            (part.late.place_delay * len(part.late.group) / part.late.ranks, part.late.group)
            for other in facts.run.judged
            if other.engine != facts.engine
            for part in _told(other)
            if not part.late.phase
        ),
        default=(0.0, ()),
    )


def _told(facts: Facts) -> list[LatePart]:
    """Those of whom there is a finding."""
    found = straggler_rank(facts)
    told = set() if isinstance(found, str) else {one.ranks for one in found}
    return [one for one in late_parts(facts) if one.late.group in told]


def _lost(facts: Facts, part: LatePart) -> float:
    """Seconds of each of its steps that they lose outside of all phases."""
    if not part.late.phase:
        return part.late.place_delay
    return 0.0 if part.when else _beside_phases(facts, part.late)


def _beside_phases(facts: Facts, late: Straggler) -> float:
    """Seconds per step that late ranks lose outside of all phases, beside what they lose in some:
    what is slow as a whole is so there, too.
    """
    if facts.rest is None:
        return 0.0
    each = facts.rest.mean()
    slow = each.index.isin(late.group)
    more = float(each[slow].mean() - each[~slow].median())
    return max(0.0, min(more, late.delay - late.place_delay))
