"""Saves of checkpoints that stop training."""

from __future__ import annotations

from dsprof.findings.advice import change
from dsprof.findings.beside.evaluations import training_step
from dsprof.findings.beside.saves import FEWER, INFERRED, saved, saving, saving_in_mean, steps_made
from dsprof.findings.evidence import largest, longest_of, row_evidence
from dsprof.findings.facts import Facts, promise
from dsprof.findings.finding import Advice, Finding
from dsprof.findings.thresholds import CHECKPOINT_CRITICAL, CHECKPOINT_WARNING, grade
from dsprof.units import format_seconds, format_share


def checkpoint_stall(facts: Facts) -> list[Finding] | str:
    """Saving checkpoints stops training for a noticeable share of its time.

    Gain: from half of it, for half as many saves, up to all of it, for saving in the background.
    """
    found = saved(facts)
    if found.empty:
        return "no line tells how long saving a checkpoint takes"
    if not facts.step_seconds:
        return "no step has a time to compare saving with"
    total, cost = float(found["seconds"].sum()), saving(facts)
    share = cost / training_step(facts)
    severity = grade(share, CHECKPOINT_WARNING, CHECKPOINT_CRITICAL)
    if severity is None:
        return []
    longest, held = largest(found, "seconds"), saving_in_mean(facts)
    made = steps_made(facts)
    return [
        Finding(
            rule="checkpoint-stall",
            severity=severity,
            title=f"Saving checkpoints takes {format_share(share)} of the training time",
            summary=f"{len(found):,} save{'s' * (len(found) != 1)} took {format_seconds(total)} in "
            f"{made:,} step{'s' * (made != 1)}{longest_of(found, 'seconds')}: as if each step took "
            f"{format_seconds(cost)} longer."
            + (f" The mean step here holds {format_seconds(held)} of saving." if held else "")
            + (INFERRED if longest["inferred"] else ""),
            share=share,
            seconds_per_step=cost,
            phase="save_checkpoint",
            evidence=(row_evidence(longest, f"save: {format_seconds(longest['seconds'])}"),),
            confidence="medium" if longest["inferred"] else "high",
            advice=(
                FEWER,
                *_parallel_write(facts),
                Advice(
                    "storage", "", "node-local first, copied away later", "training need not wait"
                ),
            ),
            gain=promise(cost),
        )
    ]


def _parallel_write(facts: Facts) -> tuple[Advice, ...]:
    if not facts.is_pipeline and facts.layout.stages in (None, 1):
        return ()
    why = "data-parallel ranks share the writing of a pipeline stage"
    return change(facts, "checkpoint.parallel_write.pipeline_stage", "true", why)
