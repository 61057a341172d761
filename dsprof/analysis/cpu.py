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
_STOPPED: Final = "cpu_throttled"


@dataclass(frozen=True, slots=True)
class CpuWait:
    """How long the thread of a rank that trains was ready to run and had no CPU."""

    rank: int
    host: str  # "" if unknown
    seconds: float
    of: float  # seconds in which that was counted
    samples: int
    row: pd.Series[Any]  # the last of them
    stopped: float | None  # by a limit of its container, added up over CPUs; None without a limit

    @property
    def share(self) -> float:
        return self.seconds / self.of


def cpu_waits(events: pd.DataFrame, launches: Collection[int]) -> list[CpuWait]:
    """Of each rank that tells it in these launches, who waits longest first."""
    rows = _counts(events, _COUNT, launches)
    stopped, waits = _growth(_counts(events, _STOPPED, launches)), _growth(rows)
    last = rows.drop_duplicates("rank", keep="last")
    many = rows["rank"].value_counts()
    found = []
    for _, row in last.iterrows():
        rank, host = int(row["rank"]), "" if pd.isna(row["host"]) else str(row["host"])
        if rank in waits:
            limited = stopped.get(rank, (None,))[0]
            found.append(CpuWait(rank, host, *waits[rank], int(many[rank]), row, limited))
    return sorted(found, key=lambda one: -one.share)


def _counts(events: pd.DataFrame, name: str, launches: Collection[int]) -> pd.DataFrame:
    rows = of_kind(events, Kind.METRIC, name)
    rows = rows[rows["segment"].isin(launches) & rows["rank"].notna() & rows["at"].notna()]
    return rows.sort_values(["rank", "segment", "at"], kind="stable")


def _growth(counts: pd.DataFrame) -> dict[int, tuple[float, float]]:
    """Of each rank by how much its count grew, and in how many seconds.

    A count begins at 0 where a rank attaches again: such a pair of samples tells nothing.
    """
    rank, segment = (counts[name].to_numpy(np.int64) for name in ("rank", "segment"))
    grown = np.diff(counts["seconds"].to_numpy(float))
    passed = np.diff(counts["at"].to_numpy("datetime64[us]")) / np.timedelta64(1, "s")
    together = (np.diff(rank) == 0) & (np.diff(segment) == 0) & (grown >= 0)
    who, place = np.unique(rank[1:][together], return_inverse=True)
    by, of = (np.bincount(place, one[together]) for one in (grown, passed))
    return {
        one: (seconds, length)
        for one, seconds, length in zip(who.tolist(), by.tolist(), of.tolist(), strict=True)
        if length > 0
    }
