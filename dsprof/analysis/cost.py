"""The cost model: bytes that a step must move, the least time for them, and the pipeline bubble.

Sources: doc/PERFORMANCE.md of nccl-tests (bus bandwidth factors); the ZeRO paper (arXiv 1910.02054,
section 7: the traffic of a step is 2 times the parameters for stages 0 to 2, and 3 times for stage
3); GPipe and PipeDream-flush (bubble (p-1)/(m+p-1)); interleaved stages (arXiv 2104.04473, section
2.2: v chunks of the model per stage make the bubble v times smaller).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dsprof.analysis.layout import Layout


def shard_factor(ranks: int) -> float:
    """Bytes that a rank sends per byte of a tensor in a ring all-gather or reduce-scatter: (n-1)/n.

    An all-reduce is a reduce-scatter and an all-gather, so it sends twice as much.
    """
    return (ranks - 1) / ranks


def bubble_share(stages: int, micro_batches: int, chunks: int = 1) -> float:
    """Share of a balanced pipeline's time in which a stage is idle: (p-1)/(vm+p-1).

    Args:
        stages: p.
        micro_batches: m, of a step.
        chunks: v, of the model in each stage, 1 if the pipeline is not interleaved.
    """
    return (stages - 1) / (chunks * micro_batches + stages - 1)


def bubble_seconds(stages: int, micro_batches: int, compute: float, chunks: int = 1) -> float:
    """Idle seconds of a stage that computes for `compute` seconds: (p-1)/(vm) of these."""
    return (stages - 1) / (chunks * micro_batches) * compute


def uneven_bubble(micro_batches: int, compute: Sequence[float], chunks: int = 1) -> float:
    """The same where each stage computes for other seconds: these, but for the slowest, over vm.

    m micro-batches take one turn through all stages, and m - 1 more of the slowest one.
    """
    return (sum(compute) - max(compute)) / (chunks * micro_batches)


def saved_by_even_split(micro_batches: int, compute: Sequence[float], chunks: int = 1) -> float:
    """Seconds by which a step is shorter if all stages compute equally long.

    One turn through all of them takes as long as before, so 1/(vm) of it is not saved.
    """
    beyond = max(compute) - sum(compute) / len(compute)
    return beyond * (1 - 1 / (chunks * micro_batches))


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes over one node's link, in one direction, in one optimizer step."""

    gradients: float
    parameters: float

    @property
    def total(self) -> float:
        return self.gradients + self.parameters


def zero_traffic(layout: Layout) -> Traffic | None:
    """The traffic of ZeRO's data parallelism in one optimizer step; None if unknown.

    Stage 0 all-reduces gradients once. Stage 1 reduces them once and gathers parameters once. Stage
    2 reduces in every micro-batch, because a rank keeps only its shard of the gradients. Stage 3
    also gathers parameters twice in every micro-batch.
    """
    size, ranks, stage = layout.replica_bytes, layout.data_parallel, layout.zero_stage
    if size is None or ranks is None or stage is None:
        return None
    micro_batches = 1 if stage < 2 else layout.micro_batches
    if micro_batches is None:
        return None
    once = size * shard_factor(ranks)
    if stage == 0:
        return Traffic(gradients=once, parameters=once)  # the two halves of a ring all-reduce
    gathers = 2 * micro_batches if stage == 3 else 1
    return Traffic(gradients=micro_batches * once, parameters=gathers * once)


def least_seconds(traffic: Traffic | None, layout: Layout) -> float | None:
    """The least time in seconds that `traffic` needs on a node's link.

    None if unknown, and for a single node, where nothing crosses the link.
    """
    if traffic is None or not layout.link_bytes_per_second or layout.nodes == 1:
        return None
    return traffic.total / layout.link_bytes_per_second
