"""Stages of a pipeline side by side, where every rank is recorded."""

from __future__ import annotations

import numpy as np

from dsprof.analysis.breakdown import main_phases
from dsprof.events import Class
from dsprof.findings.facts import Facts, once
from dsprof.run.table import Numbers


def slowest_stage(facts: Facts) -> tuple[int, tuple[int, ...], float] | None:
    """The stage that computes longest, its ranks, and by how much more than the median other.

    None unless every stage is recorded. Ranks of a stage follow each other, as in DeepSpeed.
    """
    own, stages = by_rank(facts, Class.COMPUTE), facts.layout.stages or 0
    if own is None or stages < 2 or len(own) % stages:
        return None
    of_stages = own.reshape(stages, -1).mean(axis=1)
    slow, each = int(of_stages.argmax()), len(own) // stages
    more = float(of_stages[slow] - np.median(np.delete(of_stages, slow)))
    return slow, tuple(range(slow * each, (slow + 1) * each)), more


def by_rank(facts: Facts, class_: Class) -> Numbers | None:
    """Seconds per step of a class, of each rank in order; None unless every rank is recorded."""
    if not facts.layout.world_size:
        return None
    phases = main_phases(facts.steps, facts.run.phases)
    own = phases[phases["class"] == class_].groupby("rank")["self_seconds"].sum()
    if len(own) != facts.layout.world_size:
        return None
    return own.sort_index().to_numpy(float) / max(1, phases["step"].nunique())


@once
def in_collectives(facts: Facts) -> float:
    """Seconds per step that stages wait for each other in collectives: the mean of what they are
    held up there beyond the one that is held up least.

    The last stage is the first to have done its last micro-batch, and waits where gradients are
    reduced.
    """
    blocked = by_rank(facts, Class.COMMUNICATION)
    return 0.0 if blocked is None else float(blocked.mean() - blocked.min())
