"""What collectives move in a step, and how to move less of it, or to hide it behind compute."""

from __future__ import annotations

from typing import Final

from dsprof.analysis.collectives import LARGE, during_steps, per_operation
from dsprof.analysis.cost import Traffic, shard_factor
from dsprof.findings.advice import change, more_micro_batches
from dsprof.findings.communication.accumulation import reductions_of_a_step
from dsprof.findings.defaults import DEFAULTS
from dsprof.findings.facts import Facts, promise
from dsprof.findings.finding import Advice
from dsprof.run.table import where
from dsprof.units import format_bytes

#: Timers of the reduction of gradients.
REDUCTION: Final = ("backward_allreduce", "reduce_grads", "reduce_tied_grads")
#: What layers that share a tensor reduce in forward, for each micro-batch, and as much again in
#: backward.
_OF_LAYERS: Final = ("all_reduce_in_forward", "reduce_scatter_tensor_in_forward")
#: Collectives that move a whole tensor, or twice that, less one rank's part.
_WHOLE: Final = ("all_reduce", "reduce_scatter", "all_gather")
#: Recorded calls that reduce gradients.
REDUCED_IN_PHASES: Final = r"reduce.*_in_(?:backward|reduce)"
_WIDEST: Final = 4  # bytes of a gradient
#: Settings that make groups smaller than all ranks: of the job, and of ZeRO (hpZ, MiCS).
_PARTED: Final = ("expert_parallel_size", "sequence_parallel_size")
_SHARDED: Final = ("zero_hpz_partition_size", "mics_shard_size")
_ZERO: Final = "zero_optimization"
#: Settings that halve the bytes per sample, and settings that hide the reduction behind compute.
_HALVE: Final = {"gradient_accumulation_steps", "bf16.enabled"}
_HIDE: Final = {f"{_ZERO}.overlap_comm", f"{_ZERO}.stage"}


def logged_traffic(facts: Facts) -> Traffic | None:
    """What the logged calls of a step send through a node's link.

    None unless every call is logged and trusted, is of a known kind, and has a group of all
    replicas: within a node nothing crosses the link. A recording knows the group, but omits what is
    hidden.
    """
    calls, ranks, times = facts.held_up, facts.layout.data_parallel, facts.per_step
    if not (ranks and times and facts.calls_are_logged and _one_group(facts)):
        return None
    told = during_steps(facts.run.comm, facts.steps)
    if facts.run.is_recording or (told["total"].astype(bool) | told["suspect"].notna()).any():
        return None
    moved = dict.fromkeys(_WHOLE, 0.0)
    for op, size in per_operation(calls)["bytes"].items():
        kind = next((kind for kind in _WHOLE if str(op).startswith(kind)), None)
        if kind is None:
            return None
        moved[kind] += float(size) * times * shard_factor(ranks)
    gathered = moved["all_gather"] * ranks  # the logged size of a gathering is that of a shard
    return Traffic(moved["reduce_scatter"] + 2 * moved["all_reduce"], gathered)


#: Bytes a second over a slower network than any that ranks train over: 1 Gbit/s.
SLOW_NETWORK: Final = 1e9 / 8


def most_sent(facts: Facts) -> float | None:
    """Bytes that a rank sends at most in the calls of a recorded step that hold it up.

    An all-reduce sends its tensor twice, a gathering a shard to each other rank. None where these
    bytes, or the ranks, are not known.
    """
    ranks, times = facts.layout.world_size, facts.per_step
    if not (facts.exposure_is_known and ranks and times):
        return None
    size = per_operation(facts.held_up)["bytes"] * times
    gathered = size.index.str.contains("gather")
    return float(size[gathered].sum()) * (ranks - 1) + 2 * float(size[~gathered].sum())


def beyond_gradients(facts: Facts) -> set[str]:
    """Operations in no phase of a recording that send more in a step than the model can have of
    gradients, which are also reduced in a phase: they are of something else."""
    parameters, backwards = facts.layout.parameters, _backwards(facts)
    if not (facts.exposure_is_known and facts.per_step and parameters and backwards):
        return set()
    if not facts.phases_of("communication").index.str.contains(REDUCED_IN_PHASES).any():
        return set()
    beside = where(facts.held_up, facts.held_up["phase"].isna().to_numpy(bool))
    sent = per_operation(beside)["bytes"] * facts.per_step
    return set(map(str, sent.index[sent > _WIDEST * parameters * backwards]))


def _backwards(facts: Facts) -> float:
    """Of a rank in a recorded step; each may have gradients of its own to reduce."""
    found = facts.phases[facts.phases["name"] == "backward"]
    every = len(facts.steps) * max(1, found["rank"].nunique())
    return float(found["count"].sum()) / every if every else 0.0


def fewer_calls(facts: Facts) -> tuple[Advice, ...]:
    """Advice to make less often what costs the same however few bytes it sends."""
    why = "a call of so few bytes takes as long however many samples a step computes"
    larger = Advice("samples of a micro-batch", "", "more, if memory allows", why)
    if facts.layout.data_parallel == 1:
        return ()
    return (*_reduced_once(facts), larger)


def _one_group(facts: Facts) -> bool:
    """Whether every call involves all ranks: there is no parallelism but data parallelism."""
    config, layout = facts.run.config, facts.layout
    parts = (*map(config.get, _PARTED), *(facts.setting(f"{_ZERO}.{key}") for key in _SHARDED))
    plain = layout.tensor_parallel == layout.stages == 1
    return plain and all(not isinstance(part, int | float) or part <= 1 for part in parts)


def bucket_bytes(facts: Facts, name: str) -> float:
    """The largest call in bytes; DeepSpeed's default if the source names none.

    ZeRO's optimizer prints at its start the sizes that it uses.
    """
    path = f"{_ZERO}.{name}"
    for told in (facts.run.config.get(name), facts.setting(path)):
        if isinstance(told, int | float) and told > 0:
            break
    else:
        told = DEFAULTS[path]
    return float(told) * (facts.layout.element_bytes or 2)


def larger_buckets(facts: Facts) -> tuple[Advice, ...]:
    """Larger gradient buckets, if they are too small to reach the link's speed."""
    name = "reduce_bucket_size"
    size = bucket_bytes(facts, name)
    if size >= LARGE or facts.layout.data_parallel == 1 or facts.layout.zero_stage == 0:
        return ()
    why = f"calls of {format_bytes(size)} cost start-up latency, whatever the link's speed"
    return change(facts, f"{_ZERO}.{name}", "5e8", why, least=True)


def less_traffic(facts: Facts) -> tuple[Advice, ...]:
    """Advice to move less, or to hide the reduction; none where nothing is reduced."""
    if facts.layout.data_parallel == 1:
        return ()
    advice = [*_reduced_once(facts)]
    if not _is_gathering(facts):
        advice += overlap_advice(facts)
    if facts.layout.element_bytes == 4:
        why = "half the bytes for gradients and parameters"
        advice.append(Advice("bf16.enabled", "false", "true", why))
    return tuple(advice)


def _reduced_once(facts: Facts) -> tuple[Advice, ...]:
    """More micro-batches, where their gradients are reduced once per step."""
    of_layers = facts.phases_of("communication").index.isin(_OF_LAYERS).any()
    if facts.layout.zero_stage not in (None, 0, 1) or of_layers or reductions_of_a_step(facts):
        return ()
    why = (
        "gradients are reduced once per step: twice the micro-batches halve the communication per "
        "sample (mind the larger batch)"
    )
    return (more_micro_batches(facts, why),)


def _is_gathering(facts: Facts) -> bool:
    """Whether most of it gathers updated parameters. That happens after backward, which could have
    hidden it.
    """
    table = facts.phases_of("communication")["seconds"]
    return 2 * float(table.get("optimizer_allgather", 0.0)) > float(table.sum())


def saved_by_less_traffic(facts: Facts, seconds: float) -> tuple[float, float] | None:
    """What the advice of `less_traffic` saves of `seconds`; the best case is if all of it is
    followed.

    Twice the micro-batches and numbers of half the size each halve it. Of the rest, compute hides a
    reduction that may overlap with it.
    """
    named = {one.setting for one in less_traffic(facts)}
    part = 0.5 ** len(named & _HALVE)
    hidden = min(part * reduction_seconds(facts, seconds), facts.seconds_of("compute") or 0.0)
    best = seconds - part * seconds + (hidden if named & _HIDE else 0.0)
    return promise(best) if named else None


def reduction_seconds(facts: Facts, seconds: float) -> float:
    """The part of `seconds` of communication that is timed as reduction; all of it if no timer
    tells.
    """
    table = facts.phases_of("communication")["seconds"]
    return min(float(table[table.index.isin(REDUCTION)].sum()) or seconds, seconds)


def overlap_is_off(facts: Facts) -> bool:
    """Whether overlap has no effect: DeepSpeed's pipeline engine reduces only after all of
    backward, and ZeRO's optimizer turns overlap_comm off for it (`_configure_zero_optimizer` in its
    engine.py).
    """
    return facts.is_by_pipeline_engine


def overlap_advice(facts: Facts) -> tuple[Advice, ...]:
    """Advice to run the reduction during backward, if it does not yet."""
    stage = facts.layout.zero_stage
    if facts.layout.data_parallel == 1 or overlap_is_off(facts):
        return ()
    if stage == 0:
        return (
            Advice(
                f"{_ZERO}.stage",
                "0",
                "1 with overlap_comm true",
                "stage 0 reduces only after backward has ended; ZeRO reduces buckets during it",
            ),
        )
    if stage in (1, 2) and facts.has_config:
        why = "buckets of gradients are reduced while backward still computes"
        return change(facts, f"{_ZERO}.overlap_comm", "true", why)
    return ()
