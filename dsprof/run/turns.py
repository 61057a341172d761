"""Turns of RLHF in which an engine generates more than once."""

from __future__ import annotations

from typing import Final

import pandas as pd

from dsprof.run.repairs import Outcome, Source, met
from dsprof.run.table import among, where

HYBRID: Final = "deepspeed_chat.hybrid"
_TURN: Final = ["segment", "engine", "step"]


def several_batches(events: pd.DataFrame, source: Source) -> Outcome:  # noqa: ARG001  # a Defect
    """The hybrid engine tells of each batch that is generated, of which DeepSpeed-Chat's turn may
    hold several (`--generation_batches`): summed, for the turn lasts as long as all of them.

    Unknown where lines are missing, as behind the last turn. Rates are of one batch: left out.
    """
    printed = among(events["pattern"], [HYBRID]) & events["step"].notna().to_numpy()
    rows = where(events, printed)
    lines = rows.groupby(_TURN)["record"].nunique()
    usual = int(lines.median()) if len(lines) else 1
    if usual < 2:
        return events, None
    by = [*_TURN, "name"]
    timed = rows[rows["seconds"].notna()]
    all_there = timed.groupby(by, observed=True)["record"].transform("nunique") == usual
    sums = timed.groupby(by, observed=True)["seconds"].transform("sum")
    last = ~timed.duplicated(by, keep="last")
    seconds, value = events["seconds"].copy(), events["value"].copy()
    seconds.loc[timed.index] = sums.where(last & all_there)
    value.loc[rows.index] = float("nan")
    text = (
        f"the hybrid engine tells of {usual} batches a turn, and of each by itself: their times "
        "were summed"
    )
    return events.assign(seconds=seconds, value=value), met(
        "batches-of-a-turn", "repair", text, rows
    )
