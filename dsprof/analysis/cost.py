"""What a step ought to cost: bytes that must move, and the least time they need.

Sources: nccl-tests' doc/PERFORMANCE.md (bus factors), the ZeRO paper
(arXiv 1910.02054, section 7: 2 parameters' worth per step for stages 0 to 2,
3 for stage 3), GPipe and PipeDream-flush (bubble (p-1)/(m+p-1)).
"""

from __future__ import annotations

from dataclasses import dataclass

from dsprof.analysis.layout import Layout


def shard_factor(ranks: int) -> float:
    """Bytes a rank sends per byte of a gathered or reduce-scattered tensor on a ring: (n-1)/n.

    An all-reduce is both, one after the other.
    """
    return (ranks - 1) / ranks


def bubble_share(stages: int, micro_batches: int) -> float:
    """Part of a balanced pipeline's time in which a stage idles: (p-1)/(m+p-1)."""
    return (stages - 1) / (micro_batches + stages - 1)


def bubble_seconds(stages: int, micro_batches: int, compute: float) -> float:
    """Idle seconds of a stage that computes for `compute` seconds: (p-1)/m of it."""
    return (stages - 1) / micro_batches * compute


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes through one node's link, one direction, one optimizer step."""

    gradients: float
    parameters: float

    @property
    def total(self) -> float:
        return self.gradients + self.parameters


def zero_traffic(layout: Layout) -> Traffic | None:
    """What ZeRO's data parallelism must move in one optimizer step; None if not known.

    Stage 0 all-reduces gradients once. Stage 1 reduces them once and gathers
    parameters once. Stage 2 reduces at every micro-batch, because it keeps only
    its shard of the gradients. Stage 3 also gathers parameters twice a micro-batch.
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
    """The least time `traffic` needs on a node's link, no overlap.

    None if not known, and on one node: nothing crosses its link.
    """
    if traffic is None or not layout.link_bytes_per_second or layout.nodes == 1:
        return None
    return traffic.total / layout.link_bytes_per_second
