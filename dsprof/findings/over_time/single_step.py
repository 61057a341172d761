"""A single one of few steps that holds most of what is judged."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dsprof.analysis.breakdown import weights_of
from dsprof.events import Class
from dsprof.findings.facts import Facts
from dsprof.findings.thresholds import EVIDENCE_STEPS
from dsprof.units import format_share

_MOST = 0.5  #: part of it, in a single step, that is told
_FEWEST = 3  #: steps of which one can be unlike the others


@dataclass(frozen=True, slots=True)
class SingleStep:
    """The step, and what it holds beyond the median one, in seconds of each step."""

    step: int
    seconds: float

    def title(self, whole: float) -> str:
        return f", {format_share(min(1.0, self.seconds / whole))} of that in step {self.step:,}"

    @property
    def said(self) -> str:
        return f" How often steps such as step {self.step:,} come, so few do not tell."


def in_a_single_step(facts: Facts, seconds: float) -> SingleStep | None:
    """The step that holds most of these seconds of class `other`; None where no one does, or
    `step-spikes` judges that: of enough steps it knows what sticks out."""
    steps = facts.steps
    if not _FEWEST <= len(steps) < EVIDENCE_STEPS or steps["covers"].ne(1).any():
        return None
    other = steps[Class.OTHER].fillna(0.0).to_numpy(dtype=float)
    weights = np.asarray(weights_of(steps), dtype=float)
    beyond = (other - np.median(other)) * weights / weights.sum()
    most = int(beyond.argmax())
    if beyond[most] <= _MOST * seconds:
        return None
    return SingleStep(int(steps["step"].iloc[most]), float(beyond[most]))
