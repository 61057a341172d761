"""Collectives that a recording did not see: what waited for them is in the time of other phases."""

from __future__ import annotations

from typing import Final

from dsprof.findings.facts import Facts
from dsprof.findings.finding import Finding, less_sure

#: Rules that say what a step's time goes into, or how much of it collectives take.
_DOUBTED: Final = (
    "communication-bound", "no-overlap", "small-messages", "zero3-gather-stall",
    "pipeline-imbalance", "compute-bound", "optimizer-bound", "offload-bound", "unaccounted-time",
    "healthy",
)  # fmt: skip


def calls_unseen(facts: Facts) -> int:
    """As `Facts` counts them, where there was at least one in every step; else 0.

    Fewer were made outside of steps: when models are wrapped, or at the end.
    """
    steps = len(facts.run.steps)
    return facts.calls_unseen if steps and facts.calls_unseen >= steps else 0


def doubted(answer: list[Finding] | str, facts: Facts) -> list[Finding] | str:
    """The same with little confidence where it may be otherwise."""
    if isinstance(answer, str) or not answer or not (unseen := calls_unseen(facts)):
        return answer
    why = (
        f"a rank issued {unseen:,} collectives that its recording did not see; the time in which "
        "it waited for them is in other phases"
    )
    return [less_sure(one, "low", why) if one.rule in _DOUBTED else one for one in answer]
