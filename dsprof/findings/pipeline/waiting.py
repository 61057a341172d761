"""What a stage of a pipeline waits for: how long, and how that is said."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from dsprof.analysis.breakdown import pipeline_phases
from dsprof.analysis.cost import bubble_seconds, bubble_share, uneven_bubble
from dsprof.analysis.schedule import seconds_of_turns
from dsprof.events import Class
from dsprof.findings.facts import NO_TIMERS, Facts, once
from dsprof.findings.finding import Confidence
from dsprof.findings.ranks.late_replica import late_replica, waited_beside, waited_within
from dsprof.findings.ranks.late_stage import late_stage, waited_for_late_stage
from dsprof.findings.ranks.stages import alike, by_rank, by_stage, each_way
from dsprof.findings.thresholds import TRANSFER_CHEAP, WORTH_NAMING
from dsprof.findings.unknown.untimed import source_word
from dsprof.units import format_ranks, format_seconds, format_share, listed

NO_PIPELINE: Final = "no pipeline timers in this run"


def waiting_in(facts: Facts) -> pd.DataFrame | str:
    """The phases in which a stage waits for its neighbours, longest first; or why none is known."""
    if facts.breakdown is None:
        return NO_TIMERS
    waiting = pipeline_phases(facts.phases_of("wait"))
    return waiting if len(waiting) else NO_PIPELINE


def for_neighbours(facts: Facts, waiting: pd.DataFrame) -> float:
    """Seconds per step that stages wait in these phases, without what they wait there for one that
    is late between steps, or for a late rank: that is told by `straggler-rank`.
    """
    return max(0.0, float(waiting["seconds"].sum()) - waited_for_late(facts))


def waited_for_late(facts: Facts) -> float:
    """Seconds per step, mean over all ranks, that stages wait in sends and receives for who is
    named as late.
    """
    return sum(late_ones(facts).values())


def late_ones(facts: Facts) -> dict[str, float]:
    """Who is named as late, and what of the waiting in sends and receives is for them."""
    ranks, stage = late_replica(facts), late_stage(facts)
    return {
        **({format_ranks(ranks.ranks): waited_within(facts)} if ranks else {}),
        **({f"stage {stage.stage}": waited_for_late_stage(facts)} if stage else {}),
    }


@once
def in_collectives(facts: Facts) -> float:
    """Seconds per step that stages wait for each other in collectives: the mean of what they are
    held up there beyond the one that is held up least, and beyond what replicas wait for a late
    rank: that is told by `straggler-rank`.

    The last stage is the first to have done its last micro-batch, and waits where gradients are
    reduced.
    """
    blocked = by_rank(facts, Class.COMMUNICATION)
    if blocked is None:
        return 0.0
    return max(0.0, float(blocked.mean() - blocked.min()) - waited_beside(facts))


def transfer_is_cheap(waiting: pd.DataFrame) -> bool | None:
    """Stage 0 sends activations as large as the gradients it gets: sending shows the transfer.

    None where a stage does not show both directions alone.
    """
    sent, received = _seconds(waiting, "send"), _seconds(waiting, "recv")
    if not _is_first_stage(waiting) or not sent:
        return None
    return sent <= TRANSFER_CHEAP * received


def ideal_bubble(facts: Facts) -> float | None:
    """Seconds of waiting that filling and draining the pipeline causes, of stages as uneven as they
    are recorded, else of a balanced one; None if its shape is unknown.
    """
    balanced, micro_batches = _balanced_bubble(facts), facts.layout.micro_batches
    computes, both = by_stage(facts, Class.COMPUTE), each_way(facts)
    if balanced is None or computes is None or not micro_batches:
        return balanced
    if both is None or (facts.layout.chunks or 1) > 1:
        return uneven_bubble(micro_batches, alike(computes).tolist(), facts.layout.chunks or 1)
    return seconds_of_turns(micro_batches, *both) - float(np.sum(both, axis=0).max())


def _balanced_bubble(facts: Facts) -> float | None:
    stages, micro_batches = facts.layout.stages, facts.layout.micro_batches
    compute = facts.seconds_of("compute")
    if not stages or stages < 2 or not micro_batches or not compute or facts.layout.zero_bubble:
        return None
    return bubble_seconds(stages, micro_batches, compute, facts.layout.chunks or 1)


def sure(cheap: bool | None) -> Confidence:
    """How sure a verdict is where the bubble is unknown. `cheap`: see `transfer_is_cheap`."""
    return "medium" if cheap else "low"


def headline(facts: Facts, waiting: pd.DataFrame) -> str:
    """How much of a step moves data, and how much of that is the longest waiting."""
    moving = _moving(facts, waiting)
    what, share = _parts(facts, waiting)[0]
    return (
        f"{format_share(facts.share(moving) or 0.0)} of a step is communication, and "
        f"{format_share(share)} of that is {who_waits(facts, waiting)} {what}"
    )


def sentences(
    facts: Facts, waiting: pd.DataFrame, cheap: bool | None, ideal: float | None
) -> list[str]:
    """What is known of the waiting: its longest phase, its parts, collectives beside it, transfer,
    bubble.

    Args:
        cheap: see `transfer_is_cheap`.
        ideal: see `ideal_bubble`.
    """
    late = in_collectives(facts)
    total = for_neighbours(facts, waiting) + late
    longest = (
        f"{waiting.index[0]} takes {format_seconds(waiting['seconds'].iloc[0])} of a step of "
        f"{format_seconds(facts.breakdown.seconds if facts.breakdown else 0.0)} "
        f"({facts.windows})."
    )
    found = [longest, *_divided(facts, waiting)]
    found += [_collectives(facts, waiting, late), *_for_late(facts)]
    if cheap:
        found.append(
            "Sending the activations, which are as large as the gradients that come back, takes "
            f"{format_seconds(_seconds(waiting, 'send'))}: the transfer is not what it waits for."
        )
    if ideal is None:
        found += _unknown_shape(facts, total, cheap)
    else:
        found.append(_known_shape(facts, total, ideal))
    return found


def _seconds(waiting: pd.DataFrame, word: str) -> float:
    return float(waiting["seconds"][waiting.index.str.contains(word)].sum())


def _is_first_stage(waiting: pd.DataFrame) -> bool:
    names = waiting.index
    return bool(names.str.contains("recv_grad|backward.recv").any()) and not bool(
        names.str.contains("recv_input|forward.recv").any()
    )


def who_waits(facts: Facts, waiting: pd.DataFrame) -> str:
    """Who waits: the only stage that is seen, or all of them."""
    if _is_first_stage(waiting):
        return "stage 0"
    return "the stage that prints" if by_rank(facts, Class.COMPUTE) is None else "stages"


#: What point-to-point timers wait for, and the words in their names.
_FOR: Final = {
    "waiting for gradients": "recv_grad|backward.recv",
    "waiting for activations": "recv_input|recv_activation|forward.recv",
    "sending results on": "",  # all others
}


def _moving(facts: Facts, waiting: pd.DataFrame) -> float:
    return float(waiting["seconds"].sum()) + (facts.seconds_of("communication") or 0.0)


def _divided(facts: Facts, waiting: pd.DataFrame) -> list[str]:
    """What the communication is, where more than one part of it is worth naming."""
    parts = [f"{format_share(share)} is {what}" for what, share in _parts(facts, waiting)]
    moving = format_seconds(_moving(facts, waiting))
    return [f"Of {moving} of communication, {listed(parts)}."] if len(parts) > 1 else []


def _parts(facts: Facts, waiting: pd.DataFrame) -> list[tuple[str, float]]:
    """What is waited for, with its share of the communication: the largest part, and what else is
    no small one."""
    whole = _moving(facts, waiting)
    left, parts = waiting, {"waiting in collectives for the last one": in_collectives(facts)}
    for what, words in _FOR.items():
        mine = left.index.str.contains(words)
        parts[what] = float(left["seconds"][mine].sum())
        left = left[~mine]
    said = sorted(parts.items(), key=lambda part: -part[1])
    most, *others = [(what, part / whole) for what, part in said]
    return [most, *(part for part in others if part[1] >= WORTH_NAMING)]


def _collectives(facts: Facts, waiting: pd.DataFrame, late: float) -> str:
    table = facts.phases_of("communication")
    if table.empty and facts.layout.data_parallel == 1:
        return "With one replica there are no gradients to reduce."
    if table.empty:
        return "Gradient reduction is not timed by this source."
    all_of_it = float(table["seconds"].sum())
    if 2 * late > all_of_it:
        return (
            f"Collectives take {format_seconds(all_of_it)}, of which "
            f"{format_seconds(late)} is waiting for the stage that comes last."
        )
    only = "only " if 2 * all_of_it < float(waiting["seconds"].sum()) else ""
    return (
        f"Collectives (gradient reduction, parameter gathering) take {only}"
        f"{format_seconds(all_of_it)}."
    )


def _for_late(facts: Facts) -> list[str]:
    stage = late_stage(facts)
    where = f", which is late {stage.place.words}" if stage else ""
    return [
        f"{format_seconds(seconds)} of the waiting are for {who}"
        f"{where if who.startswith('stage') else ''}: they are not counted here."
        for who, seconds in late_ones(facts).items()
    ]


_LONGER: Final = 1.005  #: of what both are told as, in three digits


def _known_shape(facts: Facts, seconds: float, ideal: float) -> str:
    stages, micro_batches = facts.layout.stages or 1, facts.layout.micro_batches or 1
    chunks = facts.layout.chunks or 1
    interleaved = f", interleaved in {chunks} chunks each," if chunks > 1 else ""
    of_it = (
        f"{format_seconds(ideal)} of the wait here is that bubble, "
        f"{format_seconds(seconds - ideal)} is not"
        if seconds > _LONGER * ideal
        else f"the wait here, {format_seconds(seconds)}, is no longer than that bubble"
    )
    uneven = ideal < (1 - WORTH_NAMING) * (_balanced_bubble(facts) or 0.0)
    as_they_are = "the slowest one of these leaves less to fill and drain, and " if uneven else ""
    return (
        f"{stages} stages and {micro_batches} micro-batch{'es' * (micro_batches > 1)}{interleaved} "
        f"idle {format_share(bubble_share(stages, micro_batches, chunks))} of their time even when "
        f"balanced, (p-1)/({'v' if chunks > 1 else ''}m+p-1): {as_they_are}{of_it}."
    )


def _unknown_shape(facts: Facts, seconds: float, cheap: bool | None) -> list[str]:
    compute = facts.seconds_of("compute")
    silent = (
        f"{_lacking(facts)}, so bubble and slower later stages cannot be told apart, hence "
        f"{sure(cheap)} confidence."
    )
    found = [silent]
    if compute:
        ratio = seconds / compute
        digits = 1 if ratio >= 1 else 2  # times m: 0.24 of 16 is one stage more than 0.2
        found.append(f"If the stages are balanced, p - 1 = {ratio:.{digits}f} m explains the wait.")
    samples = facts.layout.samples or _samples(facts)
    if samples and not facts.layout.micro_batches:
        found.append(
            f"A step has about {samples} samples, so at most {samples} micro-batches fill the "
            "pipeline."
        )
    return found


def _lacking(facts: Facts) -> str:
    """What the size of the bubble would need, and the source does not tell."""
    told = {"stages p": facts.layout.stages, "micro-batches m": facts.layout.micro_batches}
    missing = " and ".join(name for name, number in told.items() if not number)
    if missing:
        return f"The number of {missing} is not in this {source_word(facts)}"
    if facts.layout.zero_bubble:
        return "The schedule fills part of the bubble with gradients of weights"
    return "No timer shows what a stage computes"


def _samples(facts: Facts) -> int | None:
    """Samples of one step: rate times duration."""
    rate = facts.steps["samples_per_second"] * facts.steps["seconds"]
    rate = rate[rate.gt(0)]
    return round(float(rate.median())) if len(rate) else None
