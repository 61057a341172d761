"""How long ranks wait for a CPU, as their recordings tell."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

import pandas as pd

from dsprof.analysis.counters import counts, growth

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
    rows = counts(events, _COUNT, launches)
    stopped, waits = growth(counts(events, _STOPPED, launches)), growth(rows)
    last = rows.drop_duplicates("rank", keep="last")
    many = rows["rank"].value_counts()
    found = []
    for _, row in last.iterrows():
        rank, host = int(row["rank"]), "" if pd.isna(row["host"]) else str(row["host"])
        if rank in waits:
            limited = stopped.get(rank, (None,))[0]
            found.append(CpuWait(rank, host, *waits[rank], int(many[rank]), row, limited))
    return sorted(found, key=lambda one: -one.share)
