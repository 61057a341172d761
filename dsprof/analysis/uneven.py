"""Ranks that work unequally long, whichever of them works longest."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pandas as pd

from dsprof.analysis.compared import compared_of


@dataclass(frozen=True, slots=True)
class Uneven:
    """What collectives take because ranks work unequally long, whichever of them works longest.

    Attributes:
        seconds: per step, mean over all ranks, beyond the rank that is held up least.
        phase: the phase in which the rank that works longest exceeds the mean of the others most;
            "" if that explains less than half of it.
    """

    seconds: float
    phase: str


def uneven(phases: pd.DataFrame, meets: re.Pattern[str]) -> Uneven | None:
    """How much longer ranks are held up in phases that match `meets` than the one held up least.

    Ranks end a collective together, so that one came last. A lower bound: in several collectives of
    one phase, different ranks may. The rank that works longest is the one that waits least in all
    of them. None if ranks cannot be compared.
    """
    compared = compared_of(phases)
    if compared is None:
        return None
    seconds, _, ranks, names, own = compared
    held_up = seconds[:, :, [bool(meets.match(name)) for name in names]]
    beyond_least = (held_up - held_up.min(axis=1, keepdims=True)).sum(axis=2)
    more = float(beyond_least.mean())
    longest = beyond_least.argmin(axis=1)[:, None]
    work = seconds[:, :, :own]
    of_it = np.take_along_axis(work, longest[:, :, None], axis=1)[:, 0]
    beyond = (of_it - (work.sum(axis=1) - of_it) / (len(ranks) - 1)).mean(axis=0)
    behind = more * len(ranks) / (len(ranks) - 1)  # the mean of the others
    worst = int(beyond.argmax()) if own else 0
    return Uneven(more, names[worst] if own and beyond[worst] * 2 > behind else "")
