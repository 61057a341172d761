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
    found = []
    for _, samples in rows.groupby("rank"):
        ordered = samples.sort_values(["segment", "at"], kind="stable")
        waited = np.diff(ordered["seconds"].to_numpy(float))
        passed = np.diff(ordered["at"].to_numpy("datetime64[us]")) / np.timedelta64(1, "s")
        together = (np.diff(ordered["segment"].to_numpy(np.int64)) == 0) & (waited >= 0)
        of = float(passed[together].sum())
        if of > 0:
            row = ordered.iloc[-1]
            host = "" if pd.isna(row["host"]) else str(row["host"])
            seconds = float(waited[together].sum())
            found.append(CpuWait(int(row["rank"]), host, seconds, of, len(ordered), row))
    return sorted(found, key=lambda one: -one.share)
