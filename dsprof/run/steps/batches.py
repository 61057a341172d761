"""Samples of one optimizer step: as a launch states them, and as its loop counts them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pandas as pd

from dsprof.events import Kind
from dsprof.run.table import keys, of_kind, where

COUNTABLE: Final = 2.0**53  #: beyond this, floats cannot represent all integers


def batch_sizes(
    events: pd.DataFrame, table: pd.DataFrame, config: Mapping[str, Any]
) -> pd.Series[float]:
    """Samples per step for each row, as its launch states. Unknown if engines differ and the source
    does not say which has which.
    """
    said = of_kind(events, Kind.CONFIG, "train_batch_size")
    said = where(said, said["value"].notna())
    if said.empty:
        return pd.Series(positive(config, "train_batch_size"), table.index)
    each = said.groupby("engine")["value"].last()
    if len(each) > 1:
        return table["engine"].map(each).astype("float64")
    alone = table["engine"].nunique() < 2 or said["value"].nunique() < 2
    if not alone:
        return pd.Series(np.nan, table.index)
    own = table["segment"].map(said.groupby("segment")["value"].last()).astype("float64")
    return own.where(own.between(1, COUNTABLE)).fillna(positive(config, "train_batch_size"))


def counted_batches(steps: pd.DataFrame, samples: pd.Series[float]) -> pd.Series[float]:
    """Samples of one step where the source counts them from step to step: a loop of its own may
    take more or fewer than the engine was told. NaN where their number does not rise.

    Args:
        steps: steps in order.
        samples: how many the source counts up to each.
    """
    if samples.isna().all():
        return samples
    parts = keys(steps, "segment", "engine")
    more = samples.groupby(parts).diff()
    each = more / steps["step"].astype("float64").groupby(parts).diff()
    each = each.where(each.gt(0) & np.isfinite(each))
    first = samples.groupby(parts).cumcount() == 0
    return each.where(~first, each.groupby(parts).bfill(limit=1))


def positive(config: Mapping[str, Any], name: str) -> float:
    """A number of the configuration; NaN if it is none, or not above zero."""
    value = config.get(name)
    return float(value) if isinstance(value, int | float) and value > 0 else np.nan
