"""How long saving took, each time."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dsprof.events import Class, Kind
from dsprof.run.table import among, where

_BEGIN = "checkpoint_begin"
_END = ("checkpoint_ready", "checkpoint_end")
#: How calls inside a recorded save are named.
IN_SAVES = "_in_checkpoint"
_TIMED = ("save-checkpoint", "save_checkpoint")


def saves(events: pd.DataFrame, phases: pd.DataFrame) -> pd.DataFrame:
    """One row per save: `step`, `seconds`, `source`, `line`; empty if no save has a duration.

    A duration is what a timer says, else the time between the lines that begin
    and end a save. Of several ranks that time the same save the slowest counts.
    """
    columns = ["step", "seconds", "source", "line"]
    timed = events[(events["kind"] == Kind.PHASE) & events["name"].isin(_TIMED)]
    recorded = phases[phases["class"] == Class.CHECKPOINT]
    found = timed if len(timed) else recorded if len(recorded) else _between(events)
    slowest = found[columns].dropna(subset="seconds").sort_values("seconds", kind="stable")
    known = slowest[slowest["step"].notna()].drop_duplicates("step", keep="last")
    return pd.concat([known, slowest[slowest["step"].isna()]]).sort_index()


def calls_of_saves(phases: pd.DataFrame) -> pd.DataFrame:
    """Collectives inside a save: ranks meet there and wait for the one that writes."""
    return where(phases, _in_saves(phases))


def apart_from_saves(phases: pd.DataFrame) -> pd.DataFrame:
    """Phases of training alone: a rank that writes for the others is not late."""
    return where(phases, ~_in_saves(phases) & (phases["class"] != Class.CHECKPOINT).to_numpy(bool))


def _in_saves(phases: pd.DataFrame) -> np.ndarray:
    name = phases["name"].astype("category")
    return among(name, [word for word in name.cat.categories if str(word).endswith(IN_SAVES)])


def _between(events: pd.DataFrame) -> pd.DataFrame:
    marks = events[(events["kind"] == Kind.METRIC) & events["name"].isin([_BEGIN, *_END])]
    marks = marks[marks["at"].notna()]
    what = [marks["source"].astype(str), marks["rank"].fillna(-1), marks["text"].fillna("")]
    marks = marks.assign(
        begins=marks["name"] == _BEGIN,
        until=marks.groupby(what)["at"].shift(-1),
        next_begins=(marks["name"] == _BEGIN).groupby(what).shift(-1),
    )
    found = marks[marks["begins"] & marks["next_begins"].eq(False)]
    return found.assign(seconds=(found["until"] - found["at"]).dt.total_seconds())
