"""Steps that the throughput timer alone numbers, which counts them from the launch."""

from __future__ import annotations

from typing import Final

import pandas as pd

from dsprof.events import Kind
from dsprof.run.repairs import Outcome, Source, met
from dsprof.run.steps.bars import steps_meant
from dsprof.run.table import among, of_kind, where

_THROUGHPUT: Final = "deepspeed.throughput"


def steps_from_launch(events: pd.DataFrame, _: Source) -> Outcome:
    """Its lines are of the optimizer steps they count, where nothing else numbers any.

    A job that goes on from a checkpoint counts anew, so that beside other numbers these would be
    of other steps. Counts that do not rise are of several engines, and are left as they are.
    """
    if not among(events["pattern"], [_THROUGHPUT]).any():
        return events, None
    if events["step"].notna().any() or steps_meant(events):
        return events, None
    rows = where(events, among(events["pattern"], [_THROUGHPUT]))
    counts = of_kind(rows, Kind.METRIC, "global_step")
    counts = counts[counts["value"].gt(0)]
    launch = [counts["segment"], counts["source"]]
    if not counts.groupby(launch, observed=True)["value"].diff().dropna().gt(0).all():
        return events, None
    one = [rows["source"].astype("str"), rows["record"]]
    step = rows["value"].where(rows.index.isin(counts.index)).groupby(one).transform("max")
    numbered = events["step"].fillna(step.reindex(events.index).astype("Int64"))
    text = (
        "no line but the throughput timer's numbers a step: steps are counted from the launch, "
        "whatever a checkpoint held before"
    )
    return events.assign(step=numbered), met("steps-from-launch", "repair", text, counts)
