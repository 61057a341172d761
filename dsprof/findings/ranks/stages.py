"""Stages of a pipeline side by side, where every rank is recorded."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dsprof.analysis.schedule import last_backwards
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


def each_way(facts: Facts) -> tuple[Numbers, Numbers] | None:
    """Seconds per step that each stage computes forward, and backward; None unless every stage is
    recorded.
    """
    forward, computes = by_stage(facts, Class.COMPUTE, "forward"), by_stage(facts, Class.COMPUTE)
    if forward is None or computes is None:
        return None
    return alike(forward), alike(computes - forward)


def late_input(facts: Facts) -> tuple[int, float] | None:
    """The stage whose input all stages wait for, and the seconds per step of that; None unless
    every stage is recorded, and one takes longer with its input than any other.
    """
    if (loads := _input_and_work(facts)) is None:
        return None
    data, work = loads
    slow = int(work.argmax())
    seconds = min(float(data[slow]), float(work[slow] - np.delete(work, slow).max()))
    seconds = min(seconds, _cost_of_input(facts, slow, float(data[slow])))
    return (slow, seconds) if seconds > data.mean() else None


def _cost_of_input(facts: Facts, stage: int, seconds: float) -> float:
    """What it costs that a stage loads so long: a first one runs forward ahead meanwhile. All of it
    where the schedule is another one, or unknown.
    """
    work = work_of(facts)
    if work is None or (facts.layout.chunks or 1) > 1:
        return seconds
    forwards = work.forwards.copy()
    forwards[stage] -= seconds
    return seconds_of(facts, work) - seconds_of(facts, replace(work, forwards=forwards))


def cost_of_inputs(facts: Facts) -> float | None:
    """Seconds per step by which one would be quicker if no stage had to load; None unless every
    stage is recorded and the schedule is known.
    """
    work, loads = work_of(facts), by_stage(facts, Class.DATA)
    if work is None or loads is None or (facts.layout.chunks or 1) > 1:
        return None
    ready = replace(work, forwards=work.forwards - loads)
    return seconds_of(facts, work) - seconds_of(facts, ready)


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


@dataclass(frozen=True, slots=True)
class Work:
    """What each rank of a pipeline does in a step, in seconds [stages x ranks of each].

    Attributes:
        starts: before its first micro-batch, outside of all phases, in the median step.
        forwards: of all its forwards and their input.
        backwards: what else it computes.
        updates: in the optimizer.
    """

    starts: Numbers
    forwards: Numbers
    backwards: Numbers
    updates: Numbers


def work_of(facts: Facts) -> Work | None:
    """None unless every rank is recorded, and it is known how many micro-batches a step has."""
    forward, computes = by_stage(facts, Class.COMPUTE, "forward"), by_stage(facts, Class.COMPUTE)
    if forward is None or computes is None or not facts.layout.micro_batches:
        return None
    if facts.rest is None or facts.rest.shape[1] != computes.size:
        return None
    rest = facts.rest.median().clip(lower=0.0).sort_index().to_numpy(float)
    loads, updates = by_stage(facts, Class.DATA), by_stage(facts, Class.OPTIMIZER)
    none = np.zeros_like(computes)
    return Work(
        starts=rest.reshape(computes.shape),
        forwards=forward + (none if loads is None else loads),
        backwards=computes - forward,
        updates=none if updates is None else updates,
    )


def seconds_of(facts: Facts, work: Work) -> float:
    """Seconds of a step in which ranks do this: all micro-batches, and the update behind them.

    The ranks of a stage reduce their gradients before, and all ranks meet there if they do so
    inside the optimizer, as to clip them.
    """
    micro_batches = facts.layout.micro_batches or 1
    done = last_backwards(
        micro_batches, work.starts, work.forwards / micro_batches, work.backwards / micro_batches
    )
    reduced = done.max(axis=None if _meet_to_update(facts) else 1, keepdims=True)
    return float((reduced + work.updates).max())


def _meet_to_update(facts: Facts) -> bool:
    """Whether ranks wait for each other inside the optimizer."""
    phases = facts.run.phases
    updates = set(phases["name"][phases["class"] == Class.OPTIMIZER].unique())
    meets = phases["class"] == Class.COMMUNICATION
    return bool(updates & set(phases["parent"][meets].dropna().unique()))


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
    phases = facts.phases
    ranks = sorted(phases["rank"].dropna().unique())
    told = phases[(phases["class"] == class_) & (phases["name"].eq(name) if name else True)]
    own = told.groupby("rank")["self_seconds"].sum()
    if own.empty or len(ranks) != facts.layout.world_size:
        return None
    own = own.reindex(ranks, fill_value=0.0)  # a stage in the middle loads nothing
    return own.to_numpy(float) / max(1, phases["step"].nunique())
