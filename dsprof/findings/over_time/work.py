"""How much a step has to compute, where the source states it of each: batch, length of samples."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import pandas as pd

from dsprof.analysis.rates import configured_batch
from dsprof.analysis.trends import Floats, Level
from dsprof.events import Kind
from dsprof.findings.facts import Facts
from dsprof.run.table import STEP, of_kind
from dsprof.units import format_seconds

_BATCH, _LENGTH = "global_batch_size", "seq_length"
#: Time grows with the batch, and with the length up to its square: attention pairs all tokens.
_POWER: Final = {_BATCH: 1, _LENGTH: 2}


@dataclass(frozen=True, slots=True)
class Work:
    """What steps have to compute more than those of a level, and how the source says it."""

    times: Floats  # of each step, as much time as that may take; at least 1
    said: str  # what has grown behind that level; "" if nothing


def work_beside(facts: Facts, steps: pd.DataFrame, before: Level, after: Level) -> Work:
    """Of a level of `steps` and of those behind it."""
    told = _told(facts, steps)
    usual = told.iloc[before.start : before.stop].median()
    times = (told / usual) ** pd.Series(_POWER)
    last = told.iloc[after.stop - 1]
    more = [name for name in _POWER if last[name] > usual[name]]
    return Work(
        times.prod(axis=1).clip(lower=1.0).to_numpy(dtype=float),
        _said(usual, last, more) + _each(before, after, usual, last) if more else "",
    )


def _told(facts: Facts, steps: pd.DataFrame) -> pd.DataFrame:
    rows = of_kind(facts.run.told, Kind.METRIC, *_POWER)
    rows = rows.assign(name=rows["name"].astype("str")).dropna(subset=[*STEP, "value"])
    table = rows.pivot_table("value", list(STEP), "name", aggfunc="last")
    own = (
        steps[list(STEP)].astype("int64").merge(table, "left", left_on=list(STEP), right_index=True)
    )
    own = own.reindex(columns=list(_POWER)).astype(float)
    if own[_BATCH].notna().any():  # a recording tells of those that differ from what is configured
        own[_BATCH] = own[_BATCH].fillna(configured_batch(facts.run, steps) or math.nan)
    return own


def _said(usual: pd.Series[float], last: pd.Series[float], more: list[str]) -> str:
    words = {_BATCH: "the global batch from {:,.0f} to {:,.0f} samples",
             _LENGTH: "a sample from {:,.0f} to {:,.0f} tokens"}  # fmt: skip
    grew = " and ".join(words[name].format(usual[name], last[name]) for name in more)
    return f" What a step computes grew with it: {grew}."


def _each(before: Level, after: Level, usual: pd.Series[float], last: pd.Series[float]) -> str:
    """Seconds of a sample, or of a thousand tokens where their lengths change, on both levels."""
    if usual.isna()[_BATCH]:
        return ""
    longer = last[_LENGTH] > usual[_LENGTH]
    size = "1,000 tokens" if longer else "a sample"
    was, now = (
        level.median / (of[_BATCH] * of[_LENGTH] / 1000 if longer else of[_BATCH])
        for level, of in ((before, usual), (after, last))
    )
    return f" {size.capitalize()} took {format_seconds(was)}, now {format_seconds(now)}."
