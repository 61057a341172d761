"""Communication calls that are too small to use the link."""

from __future__ import annotations

import math
from typing import Final

import pandas as pd

from dsprof.analysis.collectives import (
    BARRIER,
    INTO_LISTS,
    SMALL,
    apart_from_gathers,
    operations,
    per_operation,
    waiting_share,
)
from dsprof.events import Severity
from dsprof.findings.beside.evaluations import meeting_in_evaluations, of_training
from dsprof.findings.communication.accumulation import (
    once_an_update,
    reductions_of_a_step,
    said_of_each_time,
    too_often,
)
from dsprof.findings.communication.calls import (
    altogether,
    beyond,
    call_words,
    exposed_seconds,
    of_zero,
)
from dsprof.findings.evidence import largest, row_evidence
from dsprof.findings.facts import NO_COMM, Facts, once
from dsprof.findings.finding import Advice, Evidence, Finding
from dsprof.findings.ranks.accounted import late_seconds
from dsprof.findings.thresholds import (
    COMMUNICATION_CRITICAL,
    GAIN_LOW,
    SMALL_MESSAGES_CALLS,
    SMALL_MESSAGES_SECONDS,
    SMALL_MESSAGES_SHARE,
    grade,
)
from dsprof.run.table import numbers, where
from dsprof.units import format_bytes, format_count, format_seconds, format_share

#: Of the small calls' time in forward, from which on activations are what all of them send.
_OF_ACTIVATIONS: Final = 0.2


@once
def small_messages(facts: Facts) -> list[Finding] | str:
    """Communication time goes into messages too small to use the link.

    ZeRO-3's gathers are left to `zero3-gather-stall`, because there it matters when they are made.
    What ranks wait for each other in these calls is no latency: fewer calls wait as long. A
    recording tells how long they wait, a log does not.
    Gain: at best all of the time of those that a bucket governs, merged into a few calls; in a
    recording at least that, and at best also the time to prepare the calls.
    """
    comm, factor = facts.held_up, facts.per_step
    is_alone = facts.layout.world_size == 1
    if comm.empty or is_alone:
        return "a single rank sends nothing to another" if is_alone else NO_COMM
    if factor is None or facts.step_seconds is None:
        return "the calls cannot be compared with steps: no step has a time"
    comm = of_training(facts, comm)
    if facts.layout.zero_stage == 3 and facts.exposure_is_known:
        comm = apart_from_gathers(comm)
    if comm.empty:
        return []
    table = per_operation(comm)
    waited = max(late_seconds(facts) / factor, _waited(facts, comm))
    total = float(table["seconds"].sum()) - waited
    small = max(0.0, float(table["small_seconds"].sum()) - waited)
    seconds = min(small * factor, _most(facts))
    share = facts.share(seconds) or 0.0
    if share > 1:
        return "the calls take longer than a step: they overlap, or do not belong to these steps"
    calls = float(table["small_count"].sum()) * factor
    few = calls < SMALL_MESSAGES_CALLS or share < SMALL_MESSAGES_SHARE
    if few or small < SMALL_MESSAGES_SECONDS * total:
        return []
    worst = str(table["small_seconds"].idxmax())
    grows = _of_activations(facts, worst)
    often = once_an_update(facts) if _most_are(facts, worst, "backward") else ()
    buckets = () if grows else _bucket_advice(facts, worst)
    advice = (*often, *(grows or buckets))
    beside = ("other",) if _are_of_the_script(facts, worst) else ()
    fewer = seconds * _governed(facts, table, worst)
    if often and not buckets:
        fewer *= 1 - 1 / reductions_of_a_step(facts)
    return [
        Finding(
            rule="small-messages",
            severity=_small_severity(facts, share),
            title=f"{format_share(small / (total + waited))} of communication time goes into "
            f"messages under {format_bytes(SMALL)}: "
            + (too_often(facts) if often else _latency(facts)),
            summary=_small_words(
                calls,
                seconds,
                worst,
                buckets,
                barriers=float(where(comm, operations(comm, BARRIER))["count"].sum()) * factor,
                waited=min(waited, float(table["small_seconds"].sum())) * factor,
                summed=bool(comm["total"].any()),
                sure=facts.exposure_is_known,
                times=said_of_each_time(facts) if often else "",
            ),
            share=share,
            seconds_per_step=seconds,
            phase=worst,
            evidence=_small_evidence(comm, worst),
            advice=advice,
            gain=_fewer(facts, fewer, *beside) if buckets or often else None,
            gain_why=beyond(facts, fewer, *beside) if buckets or often else "",
            confidence="high" if facts.exposure_is_known else "medium",
        )
    ]


def _latency(facts: Facts) -> str:
    return f"latency{'' if facts.exposure_is_known else ' or waiting'}, not bandwidth"


def small_seconds(facts: Facts) -> float:
    """Seconds per step that `small-messages` accounts for, if they are measured as exposed."""
    return exposed_seconds(facts, small_messages)


def _waited(facts: Facts, comm: pd.DataFrame) -> float:
    """Seconds, of all small calls, in which ranks of a recording wait for the one that comes last,
    whichever that is.
    """
    if not facts.exposure_is_known:
        return 0.0
    small = where(comm, numbers(comm["bytes"]) < SMALL)
    return waiting_share(small) * float(small["seconds"].sum())


def _most(facts: Facts) -> float:
    """Seconds per step that calls can hold it up at most: a recording's own communication. Where
    ranks end unequally many steps, the mean call of a step is not that of all steps.
    """
    known = facts.seconds_of("communication") if facts.exposure_is_known else None
    if known is None:
        return math.inf
    return max(0.0, known - late_seconds(facts) - meeting_in_evaluations(facts))


def _fewer(facts: Facts, seconds: float, *beside: str) -> tuple[float, float]:
    """What is saved if many calls become few, in seconds per step."""
    low = 1.0 if facts.exposure_is_known else GAIN_LOW
    return low * seconds, altogether(facts, seconds, *beside)


def _small_severity(facts: Facts, share: float) -> Severity:
    """A recording's time is known to hold up the step; that of logged calls might overlap without
    the logger, so it is a warning at most.
    """
    known = grade(share, SMALL_MESSAGES_SHARE, COMMUNICATION_CRITICAL)
    return known if known and facts.exposure_is_known else Severity.WARNING


def _small_words(
    calls: float,
    seconds: float,
    worst: str,
    buckets: tuple[Advice, ...],
    *,
    barriers: float,
    waited: float,
    summed: bool,
    sure: bool,
    times: str,
) -> str:
    many, most = format_count(round(calls)), "at most " if summed else ""
    of_them = f", {format_count(round(barriers))} of them barriers," if barriers >= 1 else ""
    about = f"About {many} such calls per step{of_them}"
    serial = "timed one by one, they cannot overlap with compute as they might without the logger"
    said = [
        f"{about} take {most}{format_seconds(seconds)}, mostly {worst}.",
        f"Beside that the ranks wait {format_seconds(waited)} for each other in them, which fewer "
        "calls do not change."
        if waited
        else "",
        "Their table also counts calls during set-up." if summed else "",
        "Small messages cost start-up latency, whatever the link's speed.",
        times,
        "" if sure else "How long the ranks wait for each other in them, this log does not say.",
        "" if buckets else "No bucket size causes them: the messages themselves are small.",
        "" if sure else f"Medium confidence: {serial}.",
    ]
    return " ".join(filter(None, said))


def _small_evidence(comm: pd.DataFrame, operation: str) -> tuple[Evidence, ...]:
    rows = comm[(comm["op"] == operation) & (comm["bytes"] < SMALL)]
    row = largest(rows, "seconds")
    return (row_evidence(row, call_words(row)),)


def _bucket_advice(facts: Facts, operation: str) -> tuple[Advice, ...]:
    """Larger buckets for `operation`, if a bucket size governs it and is below DeepSpeed's default.

    None governs what the engine of a recorded job gathers into lists.
    """
    if _are_of_the_script(facts, operation):
        why = "the script or its trainer makes them outside of forward, backward and update"
        return (Advice(f"these {operation} calls", "", "one for many values, or less often", why),)
    if facts.exposure_is_known and operation == INTO_LISTS:
        return ()
    if _are_logged_values(facts, operation):
        why = "each costs a barrier and a reduction, as with Lightning's log(sync_dist=True)"
        return (
            Advice("what forward logs of all ranks", "", "at fewer steps, or fewer values", why),
        )
    if facts.is_torch_alone:
        return _of_torch(facts, operation)
    keys = {"reduce_bucket_size": ("5e8", "fewer and larger messages")}
    if "gather" in operation and facts.layout.zero_stage == 3:
        keys = {
            "stage3_param_persistence_threshold": ("1e6", "small ones stay gathered"),
            "stage3_prefetch_bucket_size": ("5e8", "more is gathered in one call"),
        }
    elif "gather" in operation:
        keys = {"allgather_bucket_size": ("5e8", "fewer and larger messages")}
    elif "reduce" not in operation:
        return ()
    return tuple(one for key, (to, why) in keys.items() for one in of_zero(facts, key, to, why))


def _governed(facts: Facts, table: pd.DataFrame, operation: str) -> float:
    """The part of all small calls' seconds that changes with what is advised for `operation`: FSDP2
    gathers and scatters the same modules, anything else is of one operation. A script changes its
    own calls, not those of the same operation that reduce gradients.
    """
    small = table["small_seconds"]
    alike = small.index == operation
    own = _are_of_the_script(facts, operation)
    if _of_modules(operation) and facts.is_torch_alone and not own:
        alike |= [_of_modules(str(one)) for one in small.index]
    part = _part_in(facts, operation, "") if own else 1.0
    return part * float(small[alike].sum() / small.sum())


def _of_modules(operation: str) -> bool:
    return "gather" in operation or "scatter" in operation


def _of_torch(facts: Facts, operation: str) -> tuple[Advice, ...]:
    """The same for FSDP2 and DDP: one gathers and scatters, the other reduces in backward.

    Other models have no data-parallel size. The calls of tensor parallelism are in no bucket.
    """
    if facts.run.is_recording and facts.layout.data_parallel is None:
        return ()
    if _of_modules(operation):
        return (Advice("fully_shard", "", "on larger modules", "fewer and larger messages"),)
    several = facts.run.config.get("gradient_buckets") != 1
    if operation == "all_reduce" and several and _most_are(facts, operation, "backward"):
        why = "fewer and larger messages, where DDP sends them"
        return (Advice("DistributedDataParallel(bucket_cap_mb=...)", "", "larger", why),)
    return ()


def _of_activations(facts: Facts, operation: str) -> tuple[Advice, ...]:
    """What makes those messages larger in which a model exchanges its activations, or none of
    them; nothing if it exchanges none. Some of them are in forward, where ZeRO 0 to 2 and DDP have
    no calls, and where no ZeRO sends all to all, as sequence and expert parallelism do.

    What that costs in memory and computing is not known, so nothing is promised.
    """
    if _part_in(facts, operation, "forward") < _OF_ACTIVATIONS:
        return ()
    ranks = facts.layout.tensor_parallel or 1
    of_tensors = ranks > 1 and facts.layout.zero_stage != 3
    if not of_tensors and not operation.startswith("all_to_all"):
        return ()
    grows = "a message grows with them, its start-up does not"
    each = (
        "each layer exchanges its activations among so many ranks, in forward and in backward; "
        "ZeRO shards what they hold, too"
    )
    advice = [Advice("samples of a micro-batch", "", "more, if memory allows", grows)]
    if of_tensors:
        fewer = Advice("tensor_parallel_size", str(ranks), "smaller, if memory allows", each)
        advice.append(fewer)
    return tuple(advice)


def _are_of_the_script(facts: Facts, operation: str) -> bool:
    return facts.run.is_recording and _most_are(facts, operation, "")


def _are_logged_values(facts: Facts, operation: str) -> bool:
    """Whether most of it is in forward, beside about as many barriers: no model has any there."""
    calls = facts.held_up
    inside = where(calls, calls["phase"].astype("str").str.startswith("forward"))
    counts = inside.groupby("op", observed=True)["count"].sum()
    barriers = float(counts[counts.index.str.contains(BARRIER)].sum())
    return (
        barriers > 0
        and 2 * barriers >= float(counts.sum())
        and _most_are(facts, operation, "forward")
    )


def _most_are(facts: Facts, operation: str, phase: str) -> bool:
    """Whether most of what its small calls hold up is that phase; "" is none of them."""
    return 2 * _part_in(facts, operation, phase) > 1


def _part_in(facts: Facts, operation: str, phase: str) -> float:
    """The part of what its small calls hold up that is in that phase, or in none ("")."""
    calls = facts.held_up
    calls = calls[(calls["op"] == operation) & (calls["bytes"] < SMALL)]
    told = calls["phase"].astype(object).fillna("").astype(str)
    inside = told.str.startswith(phase) if phase else told == ""
    total = float(calls["seconds"].sum())
    return float(calls["seconds"][inside].sum()) / total if total else 0.0
