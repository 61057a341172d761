"""Memory: how close to the limit, whether it grows, and what the allocator pays."""

from __future__ import annotations

from typing import Any

import pandas as pd

from dsprof.analysis.memory import Growth, capacity, growths
from dsprof.events import Severity
from dsprof.findings.advice import fewer_workers, higher_stage, offload_less
from dsprof.findings.evidence import largest, row_evidence, span
from dsprof.findings.facts import Facts, once
from dsprof.findings.finding import Advice, Finding
from dsprof.findings.resources.flushes import (
    Price,
    flush_lines,
    flushing_rows,
    less_memory,
    price_of_flushes,
)
from dsprof.findings.thresholds import (
    GROWTH_BYTES,
    GROWTH_LATE,
    GROWTH_NOTED_BYTES,
    GROWTH_NOTED_STEPS,
    GROWTH_RISING,
    GROWTH_SHARE,
    GROWTH_STEPS,
    MEMORY_CRITICAL,
    MEMORY_WARNING,
    SLOWDOWN_WARNING,
    THRASH_CRITICAL,
    THRASH_NOTED,
    THRASH_WARNING,
    grade,
)
from dsprof.units import format_bytes, format_seconds, format_share

_PEAKS = ("max_reserved", "reserved", "max_allocated", "allocated", "device_used")
_GROWING = ("allocated", "max_allocated", "host_used", "host_process")
_MOST = 1.02  # of its memory a GPU can hold, by numbers that are rounded
_OF_ANOTHER = "a peak is more than the GPU has whose memory is told: that is another one"
_ENDS = "At that pace it ends in an out-of-memory error."
_MAY_END = "If it goes on, it ends in an out-of-memory error: {readings} readings cannot tell."


def memory_pressure(facts: Facts) -> list[Finding] | str:
    """A GPU or a host is nearly full."""
    rows = facts.run.memory
    if rows.empty:
        return "no memory line"
    limit = capacity(facts.run.meta, facts.run.problems)
    gpu = rows[rows["name"].isin(_PEAKS) & rows["bytes"].notna()]
    host = rows[(rows["name"] == "host_percent") & rows["value"].notna()]
    unknown = "the memory of a GPU is not known"
    if limit is not None and gpu["bytes"].max() > _MOST * limit:
        limit, unknown = None, _OF_ANOTHER
    if host.empty and (gpu.empty or not limit):
        return "no memory line" if gpu.empty else unknown
    found = [] if gpu.empty or not limit else _gpu_pressure(facts, gpu, limit)
    return found + ([] if host.empty else _host_pressure(facts, host))


@once
def memory_growth(facts: Facts) -> list[Finding] | str:
    """Memory of a rank or a host rises through the whole run."""
    if not facts.run.memory["name"].isin(_GROWING).any():
        return "no memory line"
    found = growths(facts.run.memory, _GROWING, GROWTH_NOTED_STEPS)
    if not found:
        return f"memory was read at fewer than {GROWTH_NOTED_STEPS} steps"
    grave = [growth for growth in found if _grows(growth)]
    growing = grave or [growth for growth in found if _is_sure(growth)]
    if not growing:
        return []
    worst = max(growing, key=lambda growth: growth.last - growth.first)
    alike = [growth for growth in growing if growth.of_host == worst.of_host]
    ranks = tuple(sorted({growth.rank for growth in alike if growth.rank is not None}))
    where = "Host memory" if worst.of_host else "GPU memory"
    more = worst.last - worst.first
    row = facts.run.memory.iloc[worst.row]
    per_step = more / max(1, worst.steps[1] - worst.steps[0])
    return [
        Finding(
            rule="memory-growth",
            severity=Severity.WARNING if grave else Severity.INFO,
            title=f"{where} grows by {format_bytes(more)} between steps "
            f"{worst.steps[0]:,} and {worst.steps[1]:,}",
            summary=f"{worst.name} rises from {format_bytes(worst.first)} to "
            f"{format_bytes(worst.last)}, {format_share(worst.rising)} of its tenths above the one "
            f"before: about {format_bytes(per_step)} per step. "
            + (_ENDS if grave else _MAY_END.format(readings=worst.readings)),
            ranks=ranks,
            steps=worst.steps,
            evidence=(row_evidence(row, f"{worst.name}: {format_bytes(row['bytes'])}"),),
            advice=(
                Advice(
                    "what the loop keeps",
                    "",
                    "loss.item() or .detach() before storing",
                    "a stored loss keeps its whole graph; caches and lists of batches grow too",
                ),
            ),
        )
    ]


def allocator_thrash(facts: Facts) -> list[Finding] | str:
    """PyTorch's allocator gives memory back and asks for it again during training.

    Gain: up to what steps that report it take longer. Nothing, where something else makes them so.
    """
    rows = facts.run.memory
    if rows["name"].isin(["refused"]).all():  # by NCCL, not by PyTorch's allocator
        return "no memory line"
    flushes = flush_lines(facts)
    if len(flushes) < THRASH_WARNING:
        return []
    steps = facts.run.steps
    flushing = int(flushing_rows(facts, steps).sum())
    share = flushing / len(steps) if len(steps) else 0.0
    times = f"{len(flushes):,} times" if len(flushes) > 1 else "once"
    where = f"in {format_share(share)} of the printed steps" if share else times
    worst = largest(flushes, "count")
    price = price_of_flushes(facts)
    free = price is not None and price.is_none
    cost = price.per_step if price and not free else None
    again = flushing > 1  # once may be what the first step of a launch needs
    grave = Severity.CRITICAL if again and share >= THRASH_CRITICAL else Severity.WARNING
    count = int(flushes["count"].sum())
    seldom = cost is None and len(flushes) < THRASH_NOTED * len(steps)
    return [
        Finding(
            rule="allocator-thrash",
            severity=Severity.INFO if free or seldom else grave,
            title=f"The allocator flushed its cache {f'{count:,} times' if count > 1 else 'once'}"
            + (f" in {len(steps):,} printed steps" if seldom else "")
            + (", which cost next to no time" if free else _full(seldom=seldom)),
            summary=f"Flushes are reported {where}. Each one waits for the GPU and allocates again"
            + _priced(price),
            share=facts.share(cost),
            seconds_per_step=cost,
            ranks=tuple(sorted({int(rank) for rank in flushes["rank"].dropna().unique()})),
            steps=span(flushes["step"]),
            evidence=(
                row_evidence(worst, f"cache flushes since the last step: {int(worst['count'])}"),
            ),
            advice=() if free else less_memory(facts),
            gain=(0.0, cost) if cost else None,
            confidence="medium" if cost else "high",
        )
    ]


def _full(*, seldom: bool) -> str:
    return f": GPU memory {'was full then' if seldom else 'is full'}"


def _priced(price: Price | None) -> str:
    if price is None:
        return "; how much time it costs is not in the log."
    taken = (
        f". Steps that report one take {format_seconds(price.flushing)}, the others "
        f"{format_seconds(price.usual)}"
    )
    if price.is_none:
        return f"{taken} (medians): less than {format_share(SLOWDOWN_WARNING)} more."
    return f"{taken}. Medium confidence: something else may have come with them."


def _gpu_pressure(facts: Facts, rows: pd.DataFrame, limit: float) -> list[Finding]:
    worst = largest(rows, "bytes")
    share = float(worst["bytes"]) / limit
    severity = grade(share, MEMORY_WARNING, MEMORY_CRITICAL)
    if severity is None:
        return []
    peaks = rows.groupby("rank")["bytes"].max()
    full = peaks[peaks >= MEMORY_WARNING * limit]
    return [
        Finding(
            rule="memory-pressure",
            severity=severity,
            title=f"GPU memory is {format_share(share)} full",
            summary=f"The peak of {worst['name']} is {format_bytes(float(worst['bytes']))} of "
            f"{format_bytes(limit)}. {_outlook(rows, worst, limit)}",
            ranks=tuple(int(rank) for rank in full.index),
            steps=span(pd.Series([worst["step"]])),
            evidence=(row_evidence(worst, f"{worst['name']}: {format_bytes(worst['bytes'])}"),),
            advice=(
                Advice("activation checkpointing", "", "on", "recomputes instead of keeping"),
                *higher_stage(facts),
            ),
        )
    ]


def _outlook(rows: pd.DataFrame, worst: pd.Series[Any], limit: float) -> str:
    """What comes of it: what PyTorch reserved and never gave out at once is room for more."""
    same = rows["rank"].isna() if pd.isna(worst["rank"]) else rows["rank"].eq(worst["rank"])
    given = rows["bytes"][rows["name"].eq("max_allocated") & same.fillna(False)].max()
    if "reserved" not in str(worst["name"]) or not given < MEMORY_WARNING * limit:
        return "The next longer batch may not fit, and the allocator begins to flush its cache."
    return (
        f"Tensors took {format_bytes(float(given))} of that at most: the rest is the allocator's "
        "cache, which longer batches use, too. Where its pieces are too small for them, it is "
        "flushed first, which takes time."
    )


def _host_pressure(facts: Facts, rows: pd.DataFrame) -> list[Finding]:
    worst = largest(rows, "value")
    share = float(worst["value"]) / 100
    severity = grade(share, MEMORY_WARNING, MEMORY_CRITICAL)
    if severity is None:
        return []
    return [
        Finding(
            rule="memory-pressure",
            severity=severity,
            title=f"Host memory is {format_share(share)} full",
            summary="When it is full the kernel kills a process of the job (signal 9), without a "
            "message in the log.",
            steps=span(pd.Series([worst["step"]])),
            evidence=(row_evidence(worst, f"host memory: {format_share(share)}"),),
            advice=(
                *fewer_workers(facts),
                *offload_less(facts),
            ),
        )
    ]


def _grows(growth: Growth) -> bool:
    more = growth.last - growth.first
    return (
        growth.readings >= GROWTH_STEPS
        and more >= GROWTH_BYTES
        and more >= GROWTH_SHARE * growth.first
        and growth.rising >= GROWTH_RISING
    )


def _is_sure(growth: Growth) -> bool:
    """Whether less, or fewer readings, are growth all the same: it never stops."""
    more = growth.last - growth.first
    return (
        more >= GROWTH_NOTED_BYTES
        and more >= GROWTH_SHARE * growth.first
        and growth.rising == 1
        and growth.late >= GROWTH_LATE
    )
