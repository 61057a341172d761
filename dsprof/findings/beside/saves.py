"""Saves of checkpoints: what they take of a step, and of its time as it is told."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from dsprof.analysis.apart import distances, happened_in, held
from dsprof.analysis.breakdown import weights_of
from dsprof.analysis.checkpoints import IN_SAVES, saves, waits_for_saves
from dsprof.analysis.trends import Floats
from dsprof.findings.facts import Facts, once
from dsprof.findings.finding import Advice

FEWER: Final = Advice("save interval", "", "longer", "half as many saves cost half")

#: Used where no line says how long something takes that happens between steps.
INFERRED: Final = " No time stamp says when one is over: its duration is how much further apart \
the steps around it are than others."


@once
def saved(facts: Facts) -> pd.DataFrame:
    """All saves whose duration is known."""
    return saves(facts.run.told, facts.run.phases, facts.run.steps)


def saving(facts: Facts) -> float:
    """Seconds of saving for each step that was made."""
    many = steps_made(facts)
    return float(saved(facts)["seconds"].sum()) / many if many else 0.0


def steps_made(facts: Facts) -> int:
    """Steps of all launches, also those that one repeats, each up to its last: the first that is
    told of a launch stands for as many as any."""
    steps = facts.run.steps.dropna(subset="step").drop_duplicates(["segment", "step"])
    apart = steps.sort_values(["segment", "step"]).groupby("segment")["step"].diff()
    apart = apart.astype("float64")
    usual = apart.median()
    return int(apart.fillna(1.0 if np.isnan(usual) else usual).sum())


def saving_inside(facts: Facts, steps: pd.DataFrame) -> Floats:
    """What saving takes of the time of each step that a log tells; that a recording saw inside a
    step is a class of that step.
    """
    if facts.run.is_recording or saved(facts).empty:
        return np.zeros(len(steps))
    apart = distances(facts.run.steps)
    took = happened_in(apart, saved(facts)).set_index("within")["seconds"]
    return np.asarray(held(apart, took, steps), np.float64)


def saving_in_mean(facts: Facts) -> float:
    """Seconds of saving that the mean step holds, where the clock tells that."""
    return mean_of(facts, saving_inside(facts, facts.steps))


def waiting(facts: Facts, steps: pd.DataFrame) -> Floats:
    """What ranks of a recording wait, in each step, for one that saves alone."""
    if not facts.run.is_recording or facts.seconds_of("checkpoint") is None:
        return np.zeros(len(steps))
    return of_each(_waits(facts), steps)


@once
def _waits(facts: Facts) -> pd.Series[float]:
    return waits_for_saves(facts.run.phases)


def of_each(seconds: pd.Series[float], steps: pd.DataFrame) -> Floats:
    """For each of `steps` its `seconds`, told by segment, engine and step; 0 where they are not."""
    at = pd.MultiIndex.from_frame(steps[seconds.index.names].astype("int64"))
    return np.asarray(seconds.reindex(at).fillna(0.0), np.float64)


def waiting_in_mean(facts: Facts) -> float:
    """The same of the mean step."""
    return mean_of(facts, waiting(facts, facts.steps))


def calls_in_mean(facts: Facts) -> float:
    """What collectives inside of saves take of the mean step: a save lasts while ranks wait in it
    for the one that writes longest."""
    if facts.breakdown is None:
        return 0.0
    calls = facts.phases_of("communication")
    return float(calls["seconds"][calls.index.str.endswith(IN_SAVES)].sum())


def mean_of(facts: Facts, seconds: Floats) -> float:
    """Of the steps that statistics are of."""
    return float(np.average(seconds, weights=weights_of(facts.steps))) if len(seconds) else 0.0


def without_saving(facts: Facts) -> float:
    """Seconds of the mean step beside its saving: a recording counts that, and a clock runs on."""
    recorded = (facts.seconds_of("checkpoint") or 0.0) + calls_in_mean(facts)
    beside = waiting_in_mean(facts) + saving_in_mean(facts)
    return (facts.step_seconds or 0.0) - recorded - beside
