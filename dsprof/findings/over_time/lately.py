"""Steps that became slower, where too few are timed to prove a slowdown."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from dsprof.findings.facts import Facts
from dsprof.findings.thresholds import EVIDENCE_STEPS, FEW_STEPS, MUCH_SLOWER, RISEN_BY
from dsprof.run.steps.durations import called
from dsprof.units import format_seconds

_FEW: Final = range(3, 5)  #: of five that rise one after another, `slowdown` judges


class Lately(NamedTuple):
    """The last steps of a source, each much slower than all before."""

    steps: int
    seconds: float  # of one of them
    up_to: int  # the last step of the quick ones
    before: float  # of one of those

    def __str__(self) -> str:
        return (
            f"The last {self.steps:,} steps took {format_seconds(self.seconds)} each, after "
            f"{format_seconds(self.before)} up to step {self.up_to:,}"
        )


def lately(facts: Facts) -> Lately | None:
    """The last steps, if there are at least two, and as many before. A window right before them may
    hold some of either kind.
    """
    timed = facts.steps[facts.steps["whole_seconds"].notna()]
    if not 1 < len(timed) < EVIDENCE_STEPS:
        return None  # of more, `slowdown` judges
    seconds, covers = timed["whole_seconds"].to_numpy(), timed["covers"].to_numpy()
    for last in range(len(timed) - 1):
        for behind in (last + 2, last + 1) if covers[last + 1] > 1 else (last + 1,):
            quick, slow = slice(0, last + 1), slice(behind, None)
            many, earlier = covers[slow].sum(), covers[quick].sum()
            if many < 2 or earlier < max(many, FEW_STEPS):
                continue
            if seconds[slow].min() >= MUCH_SLOWER * seconds[quick].max():
                after, before = ((seconds * covers)[part].sum() for part in (slow, quick))
                up_to = int(timed["step"].iloc[last])
                return Lately(int(many), after / many, up_to, before / earlier)
    return None


def rising(facts: Facts) -> str | None:
    """Words for a few steps, or windows of them, each longer than the one before: the order of so
    few proves no cause, but their mean is no step of theirs."""
    timed = facts.steps[facts.steps["whole_seconds"].notna()]
    seconds = timed["whole_seconds"].to_numpy(dtype=float)
    if len(timed) not in _FEW or not (np.diff(seconds) > 0).all():
        return None
    if seconds[-1] < RISEN_BY * seconds[0]:
        return None
    first, last = (format_seconds(float(one)) for one in (seconds[0], seconds[-1]))
    each = " a step" if timed["covers"].gt(1).any() else ""
    return (
        f"Each of {len(timed)} {called(timed)} took longer than the one before, from {first} to "
        f"{last}{each}"
    )
