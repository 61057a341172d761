"""Stages of a pipeline that compute alike, and wait for each other longer than for the bubble."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dsprof.analysis.cost import bubble_seconds
from dsprof.analysis.transfers import transfers
from dsprof.events import Severity
from dsprof.findings.evidence import phase_evidence
from dsprof.findings.facts import Facts, once, promise
from dsprof.findings.finding import Advice, Finding
from dsprof.findings.pipeline.waiting import for_neighbours, late_ones, waiting_in
from dsprof.findings.seen.places import look_into
from dsprof.findings.thresholds import (
    PIPELINE_CRITICAL,
    PIPELINE_WARNING,
    WAITING_EXPLAINS,
)
from dsprof.units import (
    format_bandwidth,
    format_bytes,
    format_count,
    format_seconds,
    format_share,
)

_STAGES: Final = 8  #: looked at, from the first on; messages of others are of the same size


def beyond_the_bubble(facts: Facts) -> list[Finding]:
    """Stages that compute alike wait longer for each other than the bubble explains: messages
    between them are slow, or micro-batches are uneven.

    What they wait in steps that stick out is told by `step-spikes`. Gain: if messages take most of
    it, at best all of it, for stages also wait for others that wait for messages; else unknown.
    """
    waiting = waiting_in(facts)
    stages, micro_batches = facts.layout.stages or 0, facts.layout.micro_batches
    compute, data = facts.seconds_of("compute"), facts.seconds_of("data") or 0.0
    if isinstance(waiting, str) or not micro_batches or not compute:
        return []
    compute += data  # loading delays neighbours, too
    bubble = bubble_seconds(stages, micro_batches, compute, facts.layout.chunks or 1)
    total = for_neighbours(facts, waiting)
    rest = total - bubble
    if (facts.share(rest) or 0.0) < PIPELINE_WARNING:
        return []
    late = late_ones(facts)
    besides = f", besides what they wait for {' and '.join(late)}" if late else ""
    loading = ", loading data included" if data else ""
    moved = messages(facts)
    slow = moved is not None and moved.seconds >= WAITING_EXPLAINS * rest
    seconds = min(rest, moved.seconds) if moved and slow else rest
    share = facts.share(seconds) or 0.0
    return [
        Finding(
            rule="pipeline-imbalance",
            severity=Severity.CRITICAL if slow and share >= PIPELINE_CRITICAL else Severity.WARNING,
            title=_title(format_share(share), moved, slow=slow),
            summary=f"The stages wait {format_seconds(total)} per step{besides} ({facts.windows}). "
            f"Filling and draining {stages} stages with {micro_batches} micro-batches explains "
            f"{format_seconds(bubble)} of it{loading}, and no stage computes much more than the "
            f"others. {_why(rest, moved, slow=slow)}",
            share=share,
            seconds_per_step=seconds,
            phase=str(waiting.index[0]),
            evidence=phase_evidence(waiting),
            advice=(_LINK,) if slow else (_TRACE,),
            gain=(promise(seconds)[0], rest) if slow else None,
            confidence="high" if slow else "medium",
        )
    ]


@dataclass(frozen=True, slots=True)
class Messages:
    """What stages send to each other.

    Attributes:
        seconds: per step in which they hold up a stage, whether it sends or receives; mean.
        many: per step and stage; mean.
        size: bytes of one; mean.
    """

    seconds: float
    many: float
    size: float

    @property
    def each(self) -> float:
        """Seconds of one; mean."""
        return self.seconds / self.many


@once
def messages(facts: Facts) -> Messages | None:
    """None unless a recording of every rank shows both sides of them."""
    stages, world = facts.layout.stages or 0, facts.layout.world_size or 0
    if not facts.run.is_recording or stages < 2 or not world or world % stages:
        return None
    ranks = range(0, world, world // stages)[:_STAGES]
    steps, _ = look_into(facts, _STAGES, facts.steps)
    found = transfers(facts.run.moments(steps, ranks=set(ranks)), ranks)
    if found.empty:
        return None
    sides = 2 / len(ranks) / found["step"].nunique()
    return Messages(
        seconds=float(found["seconds"].sum()) * sides,
        many=len(found) * sides,
        size=float(found["bytes"].mean()),
    )


def _title(share: str, moved: Messages | None, *, slow: bool) -> str:
    if moved is None:
        return (
            f"{share} of a step stages wait for each other beyond the bubble, though none computes "
            "longer: slow transfers or uneven micro-batches"
        )
    if slow:
        return (
            f"{share} of a step stages wait for their messages, beyond the bubble: each takes "
            f"{format_seconds(moved.each)} for {format_bytes(moved.size)}"
        )
    return (
        f"{share} of a step stages wait for each other beyond the bubble, though none computes "
        "longer and messages are quick: uneven micro-batches"
    )


def _why(rest: float, moved: Messages | None, *, slow: bool) -> str:
    if moved is None:
        return (
            f"The other {format_seconds(rest)} are transfers between stages, or micro-batches that "
            "take longer now on one stage, now on another. Medium confidence: what single messages "
            "take is not known here."
        )
    told = (
        f"A stage sends or receives {format_count(round(moved.many))} messages per step. While "
        f"both sides are there, one takes {format_seconds(moved.each)} in the mean"
    )
    if slow:
        size, rate = format_bytes(moved.size), format_bandwidth(moved.size / moved.each)
        return (
            f"{told}, for {size} ({rate}). That makes {format_seconds(moved.seconds)} per step, "
            f"where the bubble leaves {format_seconds(rest)} to be explained."
        )
    return (
        f"{told}, all of them {format_seconds(moved.seconds)} per step, where the bubble leaves "
        f"{format_seconds(rest)} to be explained: micro-batches take longer now on one stage, now "
        "on another. Medium confidence: which ones was not looked for."
    )


_LINK: Final = Advice(
    "links between neighbouring stages",
    "",
    "faster",
    "neighbours on one host (NVLink), or RDMA between hosts; NCCL_DEBUG=INFO says what is used",
)
_TRACE: Final = Advice(
    "dsprof export",
    "",
    "-o trace.perfetto.json",
    "shows in ui.perfetto.dev which instruction of which stage waits for which",
)
