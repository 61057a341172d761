"""Megatron's times of the slowest rank: parts that are not of the rank which their whole is of."""

from __future__ import annotations

import pandas as pd

from dsprof.events import Kind
from dsprof.run.defects.misfits import MAXIMA
from dsprof.run.defects.step_timers import without_seconds
from dsprof.run.repairs import Outcome, Source, met
from dsprof.run.steps.phases import contradictions, phases
from dsprof.run.steps.words import own_name
from dsprof.run.table import among, where


def maxima_of_parts(events: pd.DataFrame, source: Source) -> Outcome:
    """Stages of a pipeline spend their time in different ways: one computes, another receives.

    Of each timer the slowest rank is told. Where those inside another sum to more than it, they
    are of several ranks, and in no line of that launch do they divide it. The whole stays.
    """
    told = among(events["pattern"], [MAXIMA]) & among(events["kind"], [Kind.PHASE])
    if not told.any():
        return events, None
    rows = where(events, told & events["seconds"].notna())
    odd = contradictions(phases(rows, source.flavours))
    wholes = sorted(map(str, odd["name"].unique()))
    parts = {
        own_name(path)
        for flavour in source.flavours.values()
        for path in flavour.tree
        if any(f"/{whole}/" in f"/{path}" for whole in wholes)
    }
    wrong = where(rows, among(rows["name"], parts) & rows["segment"].isin(odd["segment"]))
    text = (
        f"the parts of {' and '.join(wholes)} sum to more than it: each is the time of the rank "
        "that was slowest there, and these are several. They were left out, and how it divides "
        "is not known"
    )
    return without_seconds(events, wrong), met("maxima-of-parts", "repair", text, wrong)
