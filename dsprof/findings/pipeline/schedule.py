"""The bubble of a pipeline whose stages no timer shows: what its schedule costs at the least."""

from __future__ import annotations

from typing import Final

from dsprof.analysis.cost import bubble_share
from dsprof.events import Kind
from dsprof.findings.evidence import row_evidence
from dsprof.findings.facts import Facts
from dsprof.findings.finding import Advice, Confidence, Evidence, Finding
from dsprof.findings.thresholds import PIPELINE_CRITICAL, PIPELINE_WARNING, grade
from dsprof.run.table import of_kind
from dsprof.units import format_share

_TOLD_BY: Final = (
    "pipeline_parallel_size", "virtual_pipeline_parallel_size", "gradient_accumulation_steps",
    "train_batch_size", "micro_batch_size", "data_parallel_size",
)  # fmt: skip

_PERHAPS_INTERLEAVED: Final = (
    " Medium confidence: whether the stages are interleaved is not in this log; then it is less."
)


def bubble_by_schedule(facts: Facts, advice: tuple[Advice, ...]) -> Finding | None:
    """The bubble as stages and micro-batches imply it; None if they are unknown, or one computes.

    Every micro-batch passes each stage forward and then backward. So whatever the stages take, the
    slowest of them works on all m micro-batches, and the others on one before and after it: a stage
    idles (p-1)/(vm+p-1) of that time on average, more if the stages are unequal. It has no price:
    what part of a step is forward and backward is unknown.
    """
    layout = facts.layout
    stages, micro_batches = layout.stages or 1, layout.micro_batches
    if stages < 2 or not micro_batches or layout.zero_bubble:
        return None
    if facts.run.is_recording or facts.run.steps.empty or facts.seconds_of("compute"):
        return None
    chunks = layout.chunks or 1
    share = bubble_share(stages, micro_batches, chunks)
    severity = grade(share, PIPELINE_WARNING, PIPELINE_CRITICAL)
    if severity is None:
        return None
    many = f"{micro_batches} micro-batch{'es' if micro_batches > 1 else ''} per step"
    interleaved = f", interleaved in {chunks} chunks each" if chunks > 1 else ""
    confidence, doubt = _sureness(layout.chunks)
    return Finding(
        rule="pipeline-bubble",
        severity=severity,
        title=f"At least {format_share(share)} of forward and backward is a pipeline bubble: "
        f"{stages} stages{interleaved}, {many}",
        summary="No timer shows it, but the schedule implies it: each stage idles "
        f"(p-1)/({'v' if chunks > 1 else ''}m+p-1) of that time if the stages take equally long, "
        f"and more if they do not. What it costs of a step is unknown.{doubt}",
        evidence=_proof(facts),
        advice=advice,
        confidence=confidence,
    )


def _sureness(chunks: int | None) -> tuple[Confidence, str]:
    if chunks is not None:
        how = (
            "how its stages are interleaved is"
            if chunks > 1
            else "that they are not interleaved is"
        )
        return "high", f" High confidence: {how} known."
    return "medium", _PERHAPS_INTERLEAVED


def _proof(facts: Facts) -> tuple[Evidence, ...]:
    """The lines that tell the layout."""
    told = of_kind(facts.run.told, Kind.CONFIG)
    told = told[told["name"].isin(_TOLD_BY) & told["value"].notna()]
    told = told.drop_duplicates("name", keep="last").head(4)
    lines = (row for _, row in told.iterrows())
    return tuple(row_evidence(row, f"{row['name']}: {row['value']:g}") for row in lines)
