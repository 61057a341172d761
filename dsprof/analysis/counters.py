"""What recordings count without a step: by how much each rank's count grew, and in what time."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pandas as pd

from dsprof.events import Kind
from dsprof.run.table import of_kind


def counts(events: pd.DataFrame, name: str, launches: Collection[int]) -> pd.DataFrame:
    """The rows of a metric in these launches, by rank and in order of time."""
    rows = of_kind(events, Kind.METRIC, name)
    rows = rows[rows["segment"].isin(launches) & rows["rank"].notna() & rows["at"].notna()]
    return rows.sort_values(["rank", "segment", "at"], kind="stable")


def growth(rows: pd.DataFrame, column: str = "seconds") -> dict[int, tuple[float, float]]:
    """Of each rank by how much `counts` grew, and in how many seconds.

    A count begins at 0 where a rank attaches again: such a pair of samples tells nothing.
    """
    rank, segment = (rows[name].to_numpy(np.int64) for name in ("rank", "segment"))
    grown = np.diff(rows[column].to_numpy(float, na_value=np.nan))
    passed = np.diff(rows["at"].to_numpy("datetime64[us]")) / np.timedelta64(1, "s")
    together = (np.diff(rank) == 0) & (np.diff(segment) == 0) & (grown >= 0)
    who, place = np.unique(rank[1:][together], return_inverse=True)
    by, of = (np.bincount(place, one[together]) for one in (grown, passed))
    return {
        one: (much, length)
        for one, much, length in zip(who.tolist(), by.tolist(), of.tolist(), strict=True)
        if length > 0
    }
