"""Ranks that are late only before, or only from, some step on, where another one is late else."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from dsprof.analysis.checkpoints import apart_from_saves
from dsprof.analysis.compared import MEETING, compared_steps
from dsprof.analysis.ranks import Straggler, straggler
from dsprof.findings.facts import Facts, once
from dsprof.findings.ranks.late_ranks import may_wait, stands_out
from dsprof.findings.thresholds import STRAGGLER_CHANCE, STRAGGLER_HELD, STRAGGLER_STEPS
from dsprof.run.table import where


@dataclass(frozen=True, slots=True)
class LatePart:
    """Who is late in all steps, or in those of one part.

    Attributes:
        late: how they compare with the others there.
        share: of all steps, that this part is.
        when: `from step 100 on`, `up to step 99`; "" of all steps.
    """

    late: Straggler
    share: float
    when: str

    @property
    def seconds(self) -> float:
        """Per step, mean over all steps."""
        return self.late.delay * self.share


@once
def late_parts(facts: Facts) -> list[LatePart]:
    """Who usually comes last: of all steps, or, if nobody does, before and behind the step at which
    another one becomes it. None where that is not known, or chance may be why.
    """
    late = facts.straggler
    if late is None or late.steps < STRAGGLER_STEPS or may_wait(facts, late):
        return []
    return [LatePart(late, 1.0, "")] if stands_out(late) else _parts(facts)


def _parts(facts: Facts) -> list[LatePart]:
    phases = apart_from_saves(facts.compared)
    last = _last(phases)
    change = _change(last)
    if change is None:
        return []
    behind = (phases["step"] > int(last.index[change - 1])).to_numpy(bool)  # on the way to the next
    sides = (
        (~behind, "up to step {0.last:,}", change),
        (behind, "from step {0.first:,} on", len(last) - change),
    )
    found = [
        LatePart(late, many / len(last), when.format(late))
        for steps, when, many in sides
        if (late := straggler(where(phases, steps), facts.rest)) is not None
        and late.steps >= STRAGGLER_STEPS
        and late.held >= STRAGGLER_HELD
        and late.chance * len(last) <= STRAGGLER_CHANCE  # any step might have been the change
        and may_wait(facts, late) is None
    ]
    groups = {one.late.group for one in found}
    return found if len(groups) == len(found) else []


def _last(phases: pd.DataFrame) -> pd.Series[int]:
    """By step, the rank that waits least where all meet."""
    rows = compared_steps(where(phases, phases["class"].isin(MEETING) & phases["rank"].notna()))
    sums = rows[["step", "rank", "self_seconds"]]
    waits = sums.pivot_table("self_seconds", "step", "rank", aggfunc="sum").dropna()
    return waits.idxmin(axis=1) if len(waits) else pd.Series(dtype=int)


def _change(last: pd.Series[int]) -> int | None:
    """How many steps come before the one at which the rank that is last most often becomes another
    one; None if it is the same one before and behind any step.
    """
    ranks, which = np.unique(last, return_inverse=True)
    if len(last) < 2 * STRAGGLER_STEPS:
        return None
    before = np.eye(len(ranks), dtype=np.int64)[which].cumsum(axis=0)
    behind = before[-1] - before
    held = (before.max(axis=1) + behind.max(axis=1))[STRAGGLER_STEPS - 1 : -STRAGGLER_STEPS]
    place = STRAGGLER_STEPS - 1 + int(held.argmax())
    return place + 1 if before[place].argmax() != behind[place].argmax() else None
