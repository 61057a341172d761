"""Pipelines whose stages wait for each other: for the bubble, or for a slower stage."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from dsprof.analysis.cost import saved_by_even_split
from dsprof.analysis.schedule import seconds_of_turns
from dsprof.events import Class, Severity
from dsprof.findings.evidence import largest, phase_evidence, rank_evidence
from dsprof.findings.facts import Facts, first_of, once, promise
from dsprof.findings.finding import Advice, Evidence, Finding
from dsprof.findings.over_time.spikes import without_spikes
from dsprof.findings.pipeline.schedule import bubble_by_schedule
from dsprof.findings.pipeline.transfers import beyond_the_bubble
from dsprof.findings.pipeline.waiting import (
    for_neighbours,
    headline,
    ideal_bubble,
    in_collectives,
    sentences,
    sure,
    transfer_is_cheap,
    waited_for_late,
    waiting_in,
    who_waits,
)
from dsprof.findings.proofs import of_step
from dsprof.findings.ranks.stages import alike, by_stage, each_way, slowest_stage
from dsprof.findings.thresholds import (
    IMBALANCE_CRITICAL,
    IMBALANCE_WARNING,
    MICRO_BATCHES_PER_STAGE,
    PIPELINE_CRITICAL,
    PIPELINE_WARNING,
    WORTH_NAMING,
    grade,
)
from dsprof.units import format_seconds, format_share

_ONCE: Final = (
    "more than the bubble, because what is done once a step is shared by more samples, too"
)


@once
def pipeline_bubble(facts: Facts) -> list[Finding] | str:
    """A stage waits for its neighbours, for the bubble as far as its size is known.

    Gain: see `_gain`.
    """
    waiting = waiting_in(facts)
    if isinstance(waiting, str):
        implied = bubble_by_schedule(facts, _advice(facts))
        return [implied] if implied else waiting
    alone = for_neighbours(facts, waiting)
    total = alone + in_collectives(facts)
    ideal = ideal_bubble(facts)
    seconds = total if ideal is None else min(total, ideal)
    severity = _grade(facts, seconds, alone, PIPELINE_WARNING, PIPELINE_CRITICAL)
    if severity is None:
        return []
    cheap = transfer_is_cheap(waiting)
    gain = _gain(facts, seconds, ideal, _in_collectives(facts, seconds, alone))
    blame = _blame(seconds if ideal else None, total + waited_for_late(facts), cheap)
    return [
        Finding(
            rule="pipeline-bubble",
            severity=severity,
            title=f"{headline(facts, waiting)}{blame}",
            summary=" ".join(sentences(facts, waiting, cheap, ideal)),
            share=facts.share(seconds),
            seconds_per_step=seconds,
            phase=str(waiting.index[0]),
            evidence=phase_evidence(pd.concat([waiting, facts.phases_of("communication")]), 4),
            advice=_advice(facts),
            gain=gain,
            gain_why=_ONCE if gain[1] > seconds else "",
            confidence="high" if ideal is not None else sure(cheap),
        )
    ]


def named_in_collectives(facts: Facts) -> float:
    """Seconds per step of communication in which stages wait for the last one, as far as the bubble
    or a slower stage, which findings name, explains that."""
    waiting, found = waiting_in(facts), pipeline_bubble(facts)
    if isinstance(waiting, str) or isinstance(found, str):
        return 0.0
    bubble = sum(one.seconds_per_step or 0.0 for one in found)
    return _in_collectives(facts, bubble, for_neighbours(facts, waiting))


def _in_collectives(facts: Facts, bubble: float, alone: float) -> float:
    """What of the bubble and of the waiting for a slower stage is not waited `alone` for
    neighbours."""
    return min(max(0.0, bubble + _for_slowest(facts) - alone), in_collectives(facts))


def _for_slowest(facts: Facts) -> float:
    """What stages, in their mean, wait for one that computes longer than they do, if that is a
    finding."""
    seen, computes = slowest_stage(facts), by_stage(facts, Class.COMPUTE)
    if seen is None or computes is None or not _uneven(facts, *seen):
        return 0.0
    own = alike(computes)
    return float(own.max() - own.mean())


def pipeline_imbalance(facts: Facts) -> list[Finding] | str:
    """A stage waits longer than a balanced pipeline's bubble explains.

    Gain: what one slow stage of p does more than the others is done all the same, spread
    over all p: (p-1)/p of the waiting at best. Where every stage is recorded, see `_even_split`.
    """
    waiting = waiting_in(facts)
    if isinstance(waiting, str):
        return waiting
    seen = slowest_stage(facts)
    if seen is not None:
        return _uneven(facts, *seen) or beyond_the_bubble(without_spikes(facts))
    ideal = ideal_bubble(facts)
    if ideal is None:
        return (
            "the number of stages, of micro-batches or the compute time is unknown: "
            "waiting cannot be split into bubble and imbalance"
        )
    total = for_neighbours(facts, waiting)
    excess = total - ideal
    severity = _grade(facts, excess, total, IMBALANCE_WARNING, IMBALANCE_CRITICAL)
    if severity is None:
        return []
    cheap = transfer_is_cheap(waiting)
    cause = "other stages are slower" if cheap else "slower stages or slow transfers between them"
    who = who_waits(facts, waiting)
    wait = "wait for each other" if who == "stages" else "waits for other stages"
    return [
        Finding(
            rule="pipeline-imbalance",
            severity=severity,
            title=f"{who[0].upper()}{who[1:]} {wait} for {format_share(facts.share(total) or 0.0)} "
            f"of a step, {format_share(excess / total)} of that beyond the bubble: {cause}",
            summary=" ".join(sentences(facts, waiting, cheap, ideal))
            + " Medium confidence: only one stage is seen.",
            share=facts.share(excess),
            seconds_per_step=excess,
            phase=str(waiting.index[0]),
            evidence=phase_evidence(waiting),
            advice=(_SPLIT,),
            gain=promise(excess * (1 - 1 / (facts.layout.stages or 2))),
            confidence="medium",
        )
    ]


def _grade(
    facts: Facts, part: float, total: float, warning: float, critical: float
) -> Severity | None:
    """That of a part of the waiting; the larger part answers for all of it, where no part is
    long enough by itself."""
    alone = grade(facts.share(part) or 0.0, warning, critical)
    if alone is not None or 2 * part < total:
        return alone
    return grade(facts.share(total) or 0.0, PIPELINE_WARNING, PIPELINE_CRITICAL)


_SPLIT: Final = Advice(
    "PipelineModule(partition_method=...)",
    "",
    "a split by measured time",
    "the slowest stage sets the pace of all; embedding and loss head weigh more than their "
    "parameter count says",
)


def _uneven(facts: Facts, stage: int, ranks: tuple[int, ...], excess: float) -> list[Finding] | str:
    """What every stage was recorded of: no waiting has to be explained."""
    share = facts.share(excess) or 0.0
    severity = grade(share, IMBALANCE_WARNING, IMBALANCE_CRITICAL)
    if severity is None:
        return []
    gain, advice, besides = _cure(facts)
    return [
        Finding(
            rule="pipeline-imbalance",
            severity=severity if gain else Severity.INFO,
            title=f"Stage {stage} computes {format_seconds(excess)} a step more than the others, "
            f"{format_share(share)} of the step",
            summary=f"All {facts.layout.stages or 2} stages are recorded: what stage {stage} "
            f"computes beyond the median of the others, all of them wait for ({facts.windows})."
            + besides,
            share=share,
            seconds_per_step=excess,
            ranks=ranks,
            phase=first_of(facts.phases_of("compute")),
            evidence=_beside_others(facts, ranks),
            advice=advice,
            gain=promise(gain) if gain else None,
        )
    ]


def _beside_others(facts: Facts, ranks: tuple[int, ...]) -> tuple[Evidence, ...]:
    """The phase of a stage that exceeds the others' most in its last step, and theirs."""
    rows = facts.phases
    rows = rows[(rows["class"] == Class.COMPUTE) & rows["self_seconds"].notna()]
    last = of_step(rows, rows[rows["rank"].isin(ranks)].iloc[-1])
    mine = last["rank"].isin(ranks)
    own, others = last[mine], last[~mine]
    theirs = own["name"].map(others.groupby("name")["self_seconds"].max()).astype(float)
    worst = largest(own.assign(beyond=own["self_seconds"] - theirs.fillna(0.0)), "beyond")
    beside = others[others["name"] == worst["name"]].nlargest(1, "self_seconds")
    return tuple(map(rank_evidence, (worst, *(row for _, row in beside.iterrows()))))


def _cure(facts: Facts) -> tuple[float, tuple[Advice, ...], str]:
    """What an even split saves of a step, together with what else that needs, and what is said of
    it. With few micro-batches it may save nothing by itself; that more of them do is told by
    `pipeline-bubble`, if that is a finding.
    """
    if gain := _even_split(facts):
        return gain, (_SPLIT,), ""
    many = facts.layout.micro_batches or 1
    few, why = (
        ("one micro-batch", "its turn through all stages takes as long")
        if many == 1
        else (f"{many} micro-batches", "to fill and drain even stages takes as long as it saves")
    )
    said = f" With {few} a step an even split saves nothing: {why}"
    gain = _even_split(facts, _enough(facts.layout.stages, many))
    if (
        grade(facts.share(ideal_bubble(facts)) or 0.0, PIPELINE_WARNING, PIPELINE_CRITICAL)
        or not gain
    ):
        return 0.0, (), f"{said}."
    more, _ = _advice(facts)
    return gain, (_SPLIT, more), f"{said}; together with more micro-batches it saves time."


def _even_split(facts: Facts, many: int | None = None) -> float:
    """What a split by measured time saves of a step at best, with so `many` micro-batches instead,
    of the same size, if that is told: then of as many samples.

    Of interleaved stages, see `saved_by_even_split`; else by the schedule, in which one micro-batch
    still takes a turn through all stages, and a slow first stage runs ahead meanwhile.
    """
    computes, both = by_stage(facts, Class.COMPUTE), each_way(facts)
    assert computes is not None
    micro_batches, chunks = facts.layout.micro_batches or len(computes), facts.layout.chunks or 1
    if both is None or chunks > 1:
        return saved_by_even_split(micro_batches, alike(computes).tolist(), chunks)
    times = (many or micro_batches) / micro_batches
    even = [np.full_like(seconds, times * seconds.mean()) for seconds in both]
    instead = seconds_of_turns(many or micro_batches, *even) / times
    saved = seconds_of_turns(micro_batches, *both) - instead
    return max(0.0, round(saved, 9))  # sums in another order


def _blame(bubble: float | None, total: float, cheap: bool | None) -> str:
    if bubble is not None and bubble >= (1 - WORTH_NAMING) * total:
        return ": a pipeline bubble, not the network; raise the number of micro-batches"
    if bubble is not None:
        return (
            f"; {format_share(bubble / total)} of the waiting is the pipeline's bubble: "
            "raise the number of micro-batches"
        )
    if cheap:
        return (
            ": a pipeline bubble or slower later stages, not the network's bandwidth; "
            "raise the number of micro-batches"
        )
    return ": a pipeline bubble, slower stages or slow transfers between them"


def _advice(facts: Facts) -> tuple[Advice, ...]:
    stages, micro_batches = facts.layout.stages, facts.layout.micro_batches
    enough = _enough(stages, micro_batches)
    to = f"{enough}" if enough else "twice as many, if it is the bubble"
    more = Advice(
        "gradient_accumulation_steps",
        str(micro_batches or ""),
        to,
        "it is the number of micro-batches in the pipeline; the bubble is (p-1)/(m+p-1) of the "
        "time (mind the larger batch; smaller micro-batches keep it, if they are as efficient)",
    )
    fewer = Advice(
        "number of pipeline stages",
        str(stages or ""),
        "fewer",
        "each stage less saves a micro-batch time of bubble; ZeRO-1 may free the memory for it",
    )
    return more, fewer


def _enough(stages: int | None, micro_batches: int | None) -> int | None:
    """Micro-batches that make the bubble small, at least twice as many; None: unknown."""
    if not stages:
        return None
    return max(MICRO_BATCHES_PER_STAGE * stages, 2 * (micro_batches or 0))


def _gain(
    facts: Facts, seconds: float, ideal: float | None, collective: float
) -> tuple[float, float]:
    """What more micro-batches of the same size save per sample, see `_enough`.

    The bubble is (p-1)/m of a stage's compute: m' micro-batches leave m/m' of it, and at best
    as much of what else is done once a step (reduction, update). Of an unknown shape: twice as
    many leave half, or gain nothing where the wait is no bubble.
    """
    micro_batches = facts.layout.micro_batches
    enough = _enough(facts.layout.stages, micro_batches)
    if ideal is None or not enough or not micro_batches:
        return 0.0, seconds / 2
    once = (facts.seconds_of("communication", "optimizer") or 0.0) - collective
    less = 1 - micro_batches / enough
    return less * min(ideal, seconds), less * (min(ideal, seconds) + once)
