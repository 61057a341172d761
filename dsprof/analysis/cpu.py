"""How long ranks wait for a CPU, as their recordings tell."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd

from dsprof.events import Kind
from dsprof.run.table import of_kind

_COUNT: Final = "cpu_wait"  # of `dsprof.events.METRICS`


@dataclass(frozen=True, slots=True)
class CpuWait:
    """How long the thread of a rank that trains was ready to run and had no CPU."""

    rank: int
    host: str  # "" if unknown
    seconds: float
    of: float  # seconds in which that was counted
    samples: int
    row: pd.Series[Any]  # the last of them

    @property
    def share(self) -> float:
        return self.seconds / self.of


def cpu_waits(events: pd.DataFrame, launches: Collection[int]) -> list[CpuWait]:
    """Of each rank that tells it in these launches, who waits longest first.

    The count begins at 0 where a rank attaches again: such a pair of samples tells nothing.
    """
    rows = of_kind(events, Kind.METRIC, _COUNT)
    rows = rows[rows["segment"].isin(launches) & rows["rank"].notna() & rows["at"].notna()]
    rows = rows.sort_values(["rank", "segment", "at"], kind="stable")
    rank, segment = (rows[name].to_numpy(np.int64) for name in ("rank", "segment"))
    waited = np.diff(rows["seconds"].to_numpy(float))
    passed = np.diff(rows["at"].to_numpy("datetime64[us]")) / np.timedelta64(1, "s")
    together = (np.diff(rank) == 0) & (np.diff(segment) == 0) & (waited >= 0)
    who, last, many = np.unique(rank[::-1], return_index=True, return_counts=True)
    place = np.searchsorted(who, rank[1:][together])
    seconds, of = (np.bincount(place, one[together], len(who)) for one in (waited, passed))
    found = []
    for i in np.flatnonzero(of > 0).tolist():
        row = rows.iloc[-1 - int(last[i])]
        host = "" if pd.isna(row["host"]) else str(row["host"])
        found.append(CpuWait(int(who[i]), host, float(seconds[i]), float(of[i]), int(many[i]), row))
    return sorted(found, key=lambda one: -one.share)
