"""Saves of checkpoints: what they take of a step, and of its time as it is told."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dsprof.analysis.breakdown import weights_of
from dsprof.analysis.checkpoints import held, saves
from dsprof.analysis.trends import Floats
from dsprof.findings.facts import Facts, once


@once
def saved(facts: Facts) -> pd.DataFrame:
    """All saves whose duration is known."""
    return saves(facts.run.told, facts.run.phases, facts.run.steps)


def saving(facts: Facts) -> float:
    """Seconds of saving for each step that was made."""
    many = steps_made(facts)
    return float(saved(facts)["seconds"].sum()) / many if many else 0.0


def steps_made(facts: Facts) -> int:
    """Steps up to the last one: the first that is told stands for as many as any."""
    told = np.unique(facts.run.steps["step"].dropna().to_numpy(dtype=np.int64))
    if len(told) < 2:
        return len(told)
    return int(told[-1] - told[0] + np.median(np.diff(told)))


def saving_inside(facts: Facts, steps: pd.DataFrame) -> Floats:
    """What saving takes of the time of each step, where the clock tells that."""
    return np.asarray(held(saved(facts), steps, facts.run.steps), np.float64)


def saving_in_mean(facts: Facts) -> float:
    """Seconds of saving that the mean step holds, where the clock tells that."""
    inside = saving_inside(facts, facts.steps)
    return float(np.average(inside, weights=weights_of(facts.steps))) if len(inside) else 0.0


def without_saving(facts: Facts) -> float:
    """Seconds of the mean step beside its saving: a recording counts that, and a clock runs on."""
    recorded = facts.seconds_of("checkpoint") or 0.0
    return (facts.step_seconds or 0.0) - recorded - saving_in_mean(facts)
