"""The duration of evaluations of which a log tells the result alone."""

from __future__ import annotations

import pandas as pd

from dsprof.analysis.apart import evaluations_in, happened_in, longer_by
from dsprof.analysis.checkpoints import BEGIN
from dsprof.events import Kind
from dsprof.run.table import of_kind


def evaluations_between(
    events: pd.DataFrame, apart: pd.DataFrame, saved: pd.DataFrame
) -> pd.DataFrame:
    """The first row of each evaluation in `events`, with `within`, the row of `apart` in which it
    happened, and `took`, the seconds by which that is longer than any without one (NaN: it is not).

    What the saves in `saved` took there is none of it. Of `saving` ones, a save of unknown duration
    is part.
    """
    rows = evaluations_in(apart, events).drop_duplicates("within")
    if rows.empty:
        return rows.assign(took=pd.Series(dtype="float64"), saving=pd.Series(dtype="bool"))
    saving = happened_in(apart, saved).groupby("within")["seconds"].sum()
    begun = happened_in(apart, of_kind(events, Kind.METRIC, BEGIN))["within"]
    unknown = begun[~begun.isin(saving.index)]
    others = apart["elapsed"].sub(saving, fill_value=0.0)[apart.index]
    plain = ~apart.index.isin([*rows["within"], *unknown])
    longer = longer_by(apart.assign(elapsed=others), plain)
    return rows.assign(took=rows["within"].map(longer), saving=rows["within"].isin(unknown))
