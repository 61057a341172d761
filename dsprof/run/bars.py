"""Seconds of a step from the training's progress bar, where nothing else states them."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from dsprof.events import Kind
from dsprof.run.table import among, of_kind

#: A bar counts whole seconds: over so many of them the mean of a step is within a tenth.
LEAST: Final = 10.0

#: Its dicts stand beside the bar of the training, which counts optimizer steps.
_BESIDE: Final = "huggingface.train"
_BAR: Final = {"bar_position": "step", "bar_total": "total", "bar_elapsed": "elapsed"}
_COLUMNS: Final = ("segment", "engine", "step", "seconds", "at", "source", "line")


def bar_seconds(events: pd.DataFrame) -> pd.DataFrame:
    """Mean seconds of the steps up to `step` since the bar before, at least `LEAST` earlier.

    The bar of the training is the one as long as the job says it means to train, else the one
    that stands beside the Trainer's dicts; any other (data, evaluation, checkpoints, a loop of
    micro-batches) tells nothing of a step. Time before its first refresh is left out: a resumed
    bar begins with the steps of another launch.
    """
    bars = _training(_bars(of_kind(events, Kind.METRIC, *_BAR)), events)
    found = [_between(one) for _, one in bars.groupby(["segment", "source"])]
    table = pd.concat(found) if found else bars.assign(seconds=np.nan)
    table = table.drop_duplicates(["segment", "engine", "step"], ignore_index=True)
    return table[list(_COLUMNS)].astype({"step": "Int64", "seconds": "float64"})


def _bars(rows: pd.DataFrame) -> pd.DataFrame:
    """One row per bar that was read: its count, total and elapsed seconds."""
    said = rows["value"].fillna(rows["seconds"])
    rows = rows.assign(source=rows["source"].astype("str"), said=said)
    one = ["source", "record"]
    found = rows.drop_duplicates(one)[[*one, "segment", "engine", "at", "line"]]
    for name, column in _BAR.items():
        told = rows.loc[rows["name"] == name, [*one, "said"]].drop_duplicates(one)
        found = found.merge(told.rename(columns={"said": column}), on=one)
    return found.dropna(subset=list(_BAR.values()))


def _training(bars: pd.DataFrame, events: pd.DataFrame) -> pd.DataFrame:
    """The bars that count optimizer steps."""
    stated = of_kind(events, Kind.METRIC, "total_steps")["value"].dropna()
    if len(stated):
        return bars[bars["total"].isin(stated.unique())]
    by_it = among(events["kind"], [Kind.METRIC]) & among(events["pattern"], [_BESIDE])
    beside = events.loc[by_it, ["segment", "step"]].dropna().drop_duplicates()
    met = bars.merge(beside.astype("float64"), on=["segment", "step"])
    return bars[bars["total"].isin(met["total"].mode().head(1))]


def _between(bars: pd.DataFrame) -> pd.DataFrame:
    """What lies between bars of one launch, in order; a bar that starts over begins anew."""
    ends, means = [], []
    count, elapsed = np.nan, np.nan
    for i, (step, now) in enumerate(zip(bars["step"], bars["elapsed"], strict=True)):
        steps, seconds = step - count, now - elapsed
        if steps > 0 and seconds >= LEAST:
            ends.append(i)
            means.append(seconds / steps)
        elif steps >= 0 and seconds >= 0:
            continue
        count, elapsed = step, now
    return bars.iloc[ends].assign(seconds=means)
