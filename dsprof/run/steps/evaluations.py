"""The evaluations that Hugging Face's Trainer tells of, each of them once."""

from __future__ import annotations

import re
from typing import Final

import numpy as np
import pandas as pd

from dsprof.events import Kind
from dsprof.run.table import among, numbers, of_kind, where

#: What the Trainer says of an evaluation of one data set, or of several.
_EVALUATED: Final = r"eval_(?:\w+_)?runtime"
#: Parts of the names of what is not alike on all ranks of an evaluation: each has its own clock.
_CLOCKED: Final = r"runtime|per_second"
#: Records of a training: no evaluation behind one is that in front of it.
_TRAINS: Final = ("loss", "train_runtime")
_APART: Final = 1.0  # seconds at most between what two ranks say that one evaluation took


def evaluations_told(events: pd.DataFrame) -> pd.DataFrame:
    """What the Trainer says of its evaluations; `took` seconds each. The first rank of every node
    tells of each, which they make together."""
    told = events["name"].cat.categories
    names = [name for name in told if re.fullmatch(_EVALUATED, str(name))]
    rows = where(events, among(events["kind"], [Kind.METRIC]) & among(events["name"], names))
    seconds = numbers(rows["seconds"])
    took = np.where(np.isnan(seconds), numbers(rows["value"]), seconds)
    rows = where(rows.assign(took=took), (took > 0) & np.isfinite(took))
    return rows if len(rows) < 2 else _not_again(_of_one_sender(rows), events)


def _of_one_sender(rows: pd.DataFrame) -> pd.DataFrame:
    """Those of the host and rank that tells of most, in each launch of each source."""
    if len(rows[["host", "rank"]].drop_duplicates()) < 2:
        return rows
    launch = ["segment", "source"]
    sender = [*launch, "host", "rank"]
    senders = rows.astype({"source": "str", "host": "str", "rank": "str"})[sender]
    many = senders.assign(many=senders.groupby(sender)["rank"].transform("size"))
    most = many.sort_values("many", ascending=False, kind="stable").drop_duplicates(launch)
    mine = pd.MultiIndex.from_frame(senders).isin(pd.MultiIndex.from_frame(most[sender]))
    return where(rows, mine)


def _not_again(rows: pd.DataFrame, events: pd.DataFrame) -> pd.DataFrame:
    """Without those that say the same as the one before them, and took as long, where no line names
    who speaks, and no record of the training stands between the two."""
    trained = np.sort(of_kind(events, Kind.METRIC, *_TRAINS)["record"].to_numpy())
    told = rows.astype({"source": "str", "name": "str"})[["source", "name"]].assign(
        said=rows["record"].map(_said(rows, events)),
        trained=np.searchsorted(trained, rows["record"].to_numpy()),
    )
    as_long = (rows["took"] - rows["took"].shift()).abs() <= _APART
    return where(rows, ~(told["said"].notna() & told.eq(told.shift()).all(axis=1) & as_long))


def _said(rows: pd.DataFrame, events: pd.DataFrame) -> pd.Series[str]:
    """What each of these records says beside how long it took and how fast that was; nothing of
    those that name no epoch, or nothing but that."""
    found = events[events["record"].isin(rows["record"])]
    found = found[~found["name"].astype("str").str.contains(_CLOCKED)]
    words = found["name"].astype("str") + "=" + found["value"].astype("str")
    names = found["name"].astype("str").groupby(found["record"]).agg(set)
    known = names[[{"epoch"} < one for one in names]].index
    joined: pd.Series[str] = words.groupby(found["record"]).agg("|".join)
    return joined[joined.index.isin(known)]
