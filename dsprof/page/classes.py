"""Classes of a step as the page draws them: what `other` hides is drawn as what it is."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dsprof.charts import MIXED
from dsprof.events import Class
from dsprof.run.steps.classes import ranks_of
from dsprof.run.table import STEP, Numbers, numbers, positions, where


def drawn_classes(steps: pd.DataFrame, phases: pd.DataFrame) -> pd.DataFrame:
    """`steps` whose `other` holds neither `mixed` seconds nor timed communication.

    Where communication hides in timers of both, the classes leave it unknown; what timers of
    its own show of it is then the least that it takes, unless these hold copies to the host, too.
    """
    held = numbers(steps[MIXED].fillna(0.0))
    least = np.zeros(len(steps)) if seen_whole(steps) else _timed(steps, phases)
    other = numbers(steps[Class.OTHER])
    inside = held + least
    with np.errstate(divide="ignore", invalid="ignore"):  # timers may exceed their step a little
        fit = np.where(inside > 0, np.minimum(1.0, other / inside), 0.0)
    moved = steps[Class.COMMUNICATION].mask(least > 0, pd.Series(least * fit, steps.index))
    found = {
        MIXED: pd.Series(held * fit, steps.index),
        str(Class.COMMUNICATION): moved,
        str(Class.OTHER): pd.Series(other - fit * inside, steps.index),
    }
    return steps.assign(**found)


def seen_whole(steps: pd.DataFrame) -> bool:
    """Whether the classes say what communication takes, and not only a part of it."""
    return bool(steps[Class.COMMUNICATION].notna().any())


def _timed(steps: pd.DataFrame, phases: pd.DataFrame) -> Numbers:
    """Seconds of each step in timers of nothing but communication, on the mean rank. [steps]"""
    place = positions(steps, phases, *STEP)
    ranks = np.maximum(ranks_of(place[place >= 0], where(phases, place >= 0), len(steps)), 1.0)
    mine = (place >= 0) & (phases["class"] == Class.COMMUNICATION).to_numpy(dtype=bool)
    mine &= phases["self_seconds"].notna().to_numpy()
    own = numbers(phases["self_seconds"])[mine]
    found: Numbers = np.bincount(place[mine], own, len(steps)) / ranks
    return found
