"""Why collectives take as long as they do: bandwidth, latency, or a slower peer.

Waiting for a rank that is proven late belongs to `straggler-rank`, not here. For the rest, the
first cause that the source proves is taken: in a recording, ranks that work unequally long;
reduction compared with gathering of as many bytes; the cost model with a stated link. If none
applies, the cause stays unknown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dsprof.analysis.collectives import LARGE, trusted
from dsprof.analysis.cost import least_seconds, zero_traffic
from dsprof.analysis.layout import Layout
from dsprof.findings.advice import WHO_IS_LATE, change, nccl_debug, record
from dsprof.findings.communication.accumulation import (
    once_an_update,
    reductions_of_a_step,
    said_of_each_time,
    too_often,
)
from dsprof.findings.communication.calls import beside_phases
from dsprof.findings.communication.traffic import (
    SLOW_NETWORK,
    bucket_bytes,
    fewer_calls,
    larger_buckets,
    less_traffic,
    logged_traffic,
    most_sent,
    overlap_advice,
    overlap_is_off,
    saved_by_less_traffic,
)
from dsprof.findings.communication.uneven import BUFFERS, uneven_work
from dsprof.findings.facts import Facts, promise
from dsprof.findings.finding import Advice
from dsprof.findings.thresholds import (
    AROUND_CALLS,
    FAR_FROM_MODEL,
    GAIN_LOW,
    NEAR_MODEL,
    REDUCE_PER_GATHER,
    WAITING_EXPLAINS,
    WAITING_WORTH_NAMING,
)
from dsprof.findings.unknown.untimed import source_word
from dsprof.units import format_bandwidth, format_bytes, format_seconds, format_share

_ZERO: Final = "zero_optimization"


@dataclass(frozen=True, slots=True)
class Cause:
    """How the text of a finding about communication continues."""

    sentence: str
    title: str = ""
    advice: tuple[Advice, ...] = ()
    gain: tuple[float, float] | None = None
    known: bool = True


def cause_of(facts: Facts, seconds: float) -> Cause:
    """The cause of `seconds` of exposed collectives per step."""
    for cause in (
        _alone, _uneven_work, _each_time, _of_the_script, _slower_than_gathering, _against_model,
    ):  # fmt: skip
        found = cause(facts, seconds)
        if found is not None:
            return found
    return _unknown(facts, seconds)


def _unknown(facts: Facts, seconds: float) -> Cause:
    """None of the causes accounts for it; how much of it is uneven work may still be known."""
    part, few = _uneven_part(facts, seconds), _few_bytes(facts, seconds)
    advice = (
        _without_buffers(facts)
        or larger_buckets(facts) + (fewer_calls(facts) if few else less_traffic(facts))
        or record(facts, "separates waiting from transfer")
    )
    transfer = "the start-up of calls" if few else f"bandwidth, {_copies(facts)}many small messages"
    peer = "more of such waiting" if part else "waiting for a slower peer"
    missing = "" if few else f": {_missing(facts)}"
    rest = f"{transfer} and {peer} cannot be told apart{missing}, hence medium confidence in the "
    if part is None:
        return Cause(f"{few}{rest[0].upper()}{rest[1:]}advice.", advice=advice, known=False)
    return Cause(
        f"{part.sentence} {few}In the rest, {rest}advice.",
        title=part.title,
        advice=(*advice, *part.advice),
        known=False,
    )


def _few_bytes(facts: Facts, seconds: float) -> str:
    """Why it is no bandwidth, where a recording's calls send too little for that."""
    sent = most_sent(facts)
    if sent is None or sent / SLOW_NETWORK > WAITING_WORTH_NAMING * seconds:
        return ""
    return (
        f"They send {format_bytes(sent)} per step at most, {format_seconds(sent / SLOW_NETWORK)} "
        "even at 1 Gbit/s: that is not bandwidth. "
    )


def _without_buffers(facts: Facts) -> tuple[Advice, ...]:
    """Advice if most of it is DDP's broadcast in each forward, which accumulation does
    not reduce.
    """
    table = facts.phases_of("communication")["seconds"]
    if table.get(BUFFERS, 0.0) < WAITING_EXPLAINS * float(table.sum()):
        return ()
    why = (
        "otherwise each forward waits for rank 0's buffers, such as the statistics of a BatchNorm; "
        "newer PyTorch calls it forward_sync_buffers"
    )
    return (Advice("DistributedDataParallel(broadcast_buffers=...)", "", "False", why),)


def _copies(facts: Facts) -> str:
    """What else the reduction timer includes with an offloaded optimizer."""
    return "copies of gradients to the host, " if facts.is_offloaded else ""


def _missing(facts: Facts) -> str:
    """What the cost model would need to know."""
    if facts.layout.data_parallel == 1:
        return "with one replica no gradients are reduced, and no cost model covers the rest"
    if facts.layout.nodes == 1:
        return "all ranks are on one host, and the speed of its internal links is unknown"
    untold = " and ".join(_untold(facts.layout))
    if untold and logged_traffic(facts) is None:
        return f"this {source_word(facts)} lacks {untold}"
    return "the link's speed is unknown (--link 100Gb states that of a node)"


def _untold(layout: Layout) -> list[str]:
    """What `zero_traffic` needs and the source lacks."""
    repeats = (layout.zero_stage or 0) > 1
    needed = {
        "the number of parameters": layout.parameters,
        "the number format (fp16, bf16 or fp32)": layout.element_bytes,
        "the ZeRO stage": layout.zero_stage,
        "the stages of a pipeline": layout.stages,
        "the data-parallel size": layout.data_parallel,
        "the micro-batches of a step": layout.micro_batches if repeats else 1,
    }
    return [what for what, known in needed.items() if known is None]


def _alone(facts: Facts, _: float) -> Cause | None:
    """No gain: what of it goes without ZeRO was never measured."""
    if facts.layout.world_size != 1:
        return None
    offloads = facts.is_offloaded or facts.setting(f"{_ZERO}.offload_param")
    why = "one rank has no other to share states with; without offloading ZeRO only adds calls"
    unneeded = facts.layout.zero_stage and facts.has_config and not offloads
    return Cause(
        "No other rank takes part: that is what making the calls costs, and what they copy.",
        advice=change(facts, f"{_ZERO}.stage", "0", why) if unneeded else (),
    )


def _uneven_work(facts: Facts, seconds: float) -> Cause | None:
    """Ranks that work unequally long, often in turns."""
    return _uneven_part(facts, seconds, at_least=WAITING_EXPLAINS)


def _uneven_part(
    facts: Facts, seconds: float, *, at_least: float = WAITING_WORTH_NAMING
) -> Cause | None:
    """Uneven work, if it is that part of `seconds`.

    No gain: how far the work can be evened out is not in the recording.
    """
    found = uneven_work(facts, seconds)
    if found is None or found.seconds < at_least * seconds:
        return None
    where = (
        f" Most of what the rank that comes last does longer is {found.phase}."
        if found.phase
        else ""
    )
    why = "all ranks wait for the longest batch, the slowest read or the busiest host of a step"
    return Cause(
        "Where ranks meet, the one that comes last is held up least, and the mean rank "
        f"{format_seconds(found.seconds)} per step longer. At least that much is waiting for "
        f"whichever takes longer: its work is more, or its host is busier.{where}",
        title=f", at least {format_share(found.seconds / seconds)} of it because they take "
        "unequally long",
        advice=(Advice(f"the ranks' work in {found.phase or 'a step'}", "", "even it out", why),),
    )


def _each_time(facts: Facts, seconds: float) -> Cause | None:
    """Gradients are reduced in every backward of a step: by DDP, as it does without `no_sync`, and
    by a DeepSpeed engine that was not told to accumulate.

    Gain: all but one of them, and what is done around each.
    """
    times = reductions_of_a_step(facts)
    if not times:
        return None
    reducing = facts.phases_of("communication")["seconds"]
    if not facts.is_torch_alone:  # its update communicates, too
        reducing = reducing[reducing.index.str.endswith("_in_reduce")]
    saved = (1 - 1 / times) * min(seconds, float(reducing.sum()))
    return Cause(
        said_of_each_time(facts),
        title=f": {too_often(facts)}",
        advice=once_an_update(facts),
        gain=(GAIN_LOW * saved, min(AROUND_CALLS * saved, facts.average or saved)),
    )


def _of_the_script(facts: Facts, seconds: float) -> Cause | None:
    """No gain: what it sends may be needed."""
    found = beside_phases(facts, seconds)
    return found and Cause(found.said, found.title, advice=(found.advice,), known=False)


def _slower_than_gathering(facts: Facts, seconds: float) -> Cause | None:
    """Compare reduction with gathering: ZeRO-1 and 2 gather as many parameters as they reduce
    gradients, on the same link.

    Ranks first meet at the reduction, so only it includes waiting for a late rank; with an
    offloaded optimizer it also includes copies to the host. Gain: at best all of the waiting, if
    the slower rank becomes as fast as the others.
    """
    if facts.is_offloaded:
        return None
    stage, micro_batches = facts.layout.zero_stage, facts.layout.micro_batches
    if stage not in (1, 2) or (stage == 2 and micro_batches is None):
        return None
    table = facts.phases_of("communication")["seconds"]
    gather, reduce = table.get("optimizer_allgather"), table.get("backward_allreduce")
    if not gather or not reduce:
        return None
    smaller = _gathered_per_reduced(facts)
    times = REDUCE_PER_GATHER * (micro_batches or 1 if stage == 2 else 1) * smaller
    buckets = ", smaller buckets" if smaller > 1 else ""
    lost = float(reduce) - times * float(gather)
    if lost < WAITING_EXPLAINS * seconds:
        return None
    return Cause(
        f"Gathering as many parameters takes {format_seconds(float(gather))}; the reduction "
        f"could take {times:.0f} times that (wider numbers, two passes, each micro-batch{buckets}"
        f"), but takes {format_seconds(float(reduce))}. At least {format_seconds(lost)} of it is "
        "waiting for a slower rank. This log does not say for which one, hence medium confidence.",
        title=f", and at least {format_share(lost / seconds)} of that is waiting for a slower rank",
        advice=record(facts, WHO_IS_LATE),
        gain=promise(lost),
        known=False,
    )


def _gathered_per_reduced(facts: Facts) -> float:
    """How many reduction calls carry as much as one gathering call; at least 1.

    A call takes no longer than a larger one, so a byte costs at most this many times as much. From
    LARGE bytes on a call runs at the link's speed, and its size no longer matters.
    """
    reduced, gathered = (
        min(bucket_bytes(facts, f"{what}_bucket_size"), LARGE) for what in ("reduce", "allgather")
    )
    return max(1.0, gathered / reduced)


def _against_model(facts: Facts, seconds: float) -> Cause | None:
    """Compare with what ZeRO must move over a link of known speed, or else with the logged calls.

    Gain at best: what less traffic saves; if the link is not the limit, what exceeds the least
    time. None if there is no model, no link speed, or nothing to move.
    """
    reckoned = zero_traffic(facts.layout)
    traffic = reckoned or logged_traffic(facts)
    least = least_seconds(traffic, facts.layout)
    link = facts.layout.link_bytes_per_second
    if traffic is None or not least or not link:
        return None
    hosts = "" if facts.layout.nodes else " (assuming that the job spans several)"
    source = "" if reckoned else ", according to the logged calls"
    fact = (
        f"{format_bytes(traffic.total)} must cross each node's link per step{hosts}{source}, "
        f"at least {format_seconds(least)} at {format_bandwidth(link)}"
    )
    impossible = _contradiction(facts, seconds, least, link)
    if impossible:
        return Cause(
            f"{fact}, but {impossible}. So the link's speed does not explain the time, hence "
            "medium confidence.",
            advice=less_traffic(facts),
            known=False,
        )
    if seconds <= NEAR_MODEL * least:
        return Cause(
            f"{fact}: the link is used about as well as it can be. Move less"
            f"{'.' if overlap_is_off(facts) else ', or hide it.'}",
            title=": about what the link's bandwidth requires",
            advice=less_traffic(facts),
            gain=saved_by_less_traffic(facts, seconds),
        )
    times = seconds / least
    if times < FAR_FROM_MODEL:
        buckets = larger_buckets(facts)
        gain = saved_by_less_traffic(facts, seconds)
        return Cause(
            f"{fact}: {times:.1f} times that is neither ideal nor alarming.",
            advice=buckets + less_traffic(facts),
            gain=max(gain or (0, 0), promise(seconds - least)) if buckets else gain,
        )
    return Cause(
        f"{fact}: it takes {times:.0f} times as long. That is not bandwidth but "
        f"{_copies(facts)}waiting for a slower peer, latency of many small messages, or a link "
        "below its speed; a recording of every rank tells which, hence medium confidence.",
        title=f", {times:.0f} times what the link needs",
        advice=(
            *larger_buckets(facts),
            *nccl_debug(facts, "says which path each pair of ranks uses"),
            *record(facts, "separates waiting from transfer"),
            *overlap_advice(facts),
        ),
        gain=promise(seconds - least),
        known=False,
    )


def _contradiction(facts: Facts, seconds: float, least: float, link: float) -> str:
    """Why the model cannot apply: it needs more time than was taken, or calls exceed the link's
    speed.
    """
    large = trusted(facts.run.comm)
    large = large[large["bytes"] >= LARGE]
    best = float(large["busbw"].max()) if large["busbw"].gt(0).any() else 0.0
    if best > link:
        return f"single calls reach {format_bandwidth(best)}: the link is not what was stated"
    if seconds < least:
        return (
            f"all collectives together hold the step up for {format_seconds(seconds)}: the rest "
            "is hidden behind compute, or the link is faster than stated"
        )
    return ""
