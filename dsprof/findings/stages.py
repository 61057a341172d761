"""Stages of a pipeline side by side, where every rank is recorded."""

from __future__ import annotations

import numpy as np

from dsprof.analysis.breakdown import main_phases
from dsprof.events import Class
from dsprof.findings.facts import Facts
from dsprof.run.table import Numbers


def slowest_stage(facts: Facts) -> tuple[int, tuple[int, ...], float] | None:
    """The stage that computes longest, its ranks, and by how much more than the median other.

    None unless every stage is recorded.
    """
    stages = by_stage(facts, Class.COMPUTE)
    if stages is None:
        return None
    computes = alike(stages)
    slow = int(computes.argmax())
    beyond = float(computes[slow] - np.median(np.delete(computes, slow)))
    return slow, ranks_of(slow, stages.shape[1]), beyond


def alike(stages: Numbers) -> Numbers:
    """Seconds of each stage [stages x ranks]: those of its median rank, of two the lesser. What a
    rank has beyond the others of its stage is told by `straggler-rank`.
    """
    return np.asarray(np.sort(stages, axis=1)[:, (stages.shape[1] - 1) // 2])


def late_input(facts: Facts) -> tuple[int, float] | None:
    """The stage whose input all stages wait for, and the seconds per step of that; None unless
    every stage is recorded, and one takes longer with its input than any other.
    """
    if (loads := _input_and_work(facts)) is None:
        return None
    data, work = loads
    slow = int(work.argmax())
    seconds = min(float(data[slow]), float(work[slow] - np.delete(work, slow).max()))
    return (slow, seconds) if seconds > data.mean() else None


def hidden_input(facts: Facts) -> float:
    """Seconds per step, mean over the stages, of input that costs nothing: a stage that works less
    than the slowest one would wait for it otherwise, but for that of its first micro-batch, which
    others wait for, too. 0 unless every stage is recorded.
    """
    if (loads := _input_and_work(facts)) is None:
        return 0.0
    data, work = loads
    later = 1 - 1 / (facts.layout.micro_batches or 1)
    return float(np.minimum(data * later, work.max() - work).mean())


def _input_and_work(facts: Facts) -> tuple[Numbers, Numbers] | None:
    """Seconds per step that each stage loads, and that it loads or computes."""
    data, computes = by_stage(facts, Class.DATA), by_stage(facts, Class.COMPUTE)
    if data is None or computes is None:
        return None
    return alike(data), alike(data + computes)


def costs_nothing(facts: Facts, late: int) -> float | None:
    """Seconds that a stage may begin a step later without any cost: until its first input comes,
    and what a stage before it works longer than it and all behind. None if no forward is timed.
    """
    forward, computes = by_stage(facts, Class.COMPUTE, "forward"), by_stage(facts, Class.COMPUTE)
    if forward is None or computes is None:
        return None
    loads = by_stage(facts, Class.DATA)
    data = np.zeros_like(computes) if loads is None else loads
    coming, work = ((own + data).mean(axis=1) for own in (forward, computes))
    longer = max(0.0, float(work[:late].max(initial=0.0) - work[late:].max()))
    first = 1 / (facts.layout.micro_batches or 1)  # of all micro-batches; the others follow it
    return first * float(coming[:late].sum()) + (1 - first) * longer


def ends_later(facts: Facts, stage: int) -> float:
    """Seconds for which stages before this one still run backward when it has done its last."""
    forward, computes = by_stage(facts, Class.COMPUTE, "forward"), by_stage(facts, Class.COMPUTE)
    if forward is None or computes is None:
        return 0.0
    backward = (computes - forward).mean(axis=1)
    return float(backward[:stage].sum()) / (facts.layout.micro_batches or 1)


def by_stage(facts: Facts, class_: Class, name: str = "") -> Numbers | None:
    """As `by_rank` [stages x ranks], where ranks of a stage follow each other, as in DeepSpeed.

    None if no rank has any, or the ranks are no stages.
    """
    stages = facts.layout.stages or 0
    own = by_rank(facts, class_, name) if stages > 1 else None
    return None if own is None or len(own) % stages else own.reshape(stages, -1)


def ranks_of(stage: int, each: int) -> tuple[int, ...]:
    """The ranks of a stage, of which every stage has `each`."""
    return tuple(range(stage * each, (stage + 1) * each))


def by_rank(facts: Facts, class_: Class, name: str = "") -> Numbers | None:
    """Seconds per step of a class, or of its phases of that name alone, of each rank in order; None
    unless every rank is recorded.
    """
    if not facts.layout.world_size:
        return None
    phases = main_phases(facts.steps, facts.run.phases)
    ranks = sorted(phases["rank"].dropna().unique())
    told = phases[(phases["class"] == class_) & (phases["name"].eq(name) if name else True)]
    own = told.groupby("rank")["self_seconds"].sum()
    if own.empty or len(ranks) != facts.layout.world_size:
        return None
    own = own.reindex(ranks, fill_value=0.0)  # a stage in the middle loads nothing
    return own.to_numpy(float) / max(1, phases["step"].nunique())
