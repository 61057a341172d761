"""How long ranks collect Python's garbage, as their recordings tell."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

import pandas as pd

from dsprof.analysis.counters import counts, growth

_SECONDS: Final = "garbage"  # of `dsprof.events.METRICS`
_FULL: Final = "garbage_collections"


@dataclass(frozen=True, slots=True)
class Collecting:
    """How long a rank collected garbage."""

    rank: int
    seconds: float
    of: float  # seconds in which that was counted
    full: float  # collections meanwhile that searched all objects
    samples: int
    row: pd.Series[Any]  # the last of them

    @property
    def share(self) -> float:
        return self.seconds / self.of


def collecting(events: pd.DataFrame, launches: Collection[int]) -> list[Collecting]:
    """Of each rank that tells it in these launches, who collects longest first."""
    rows = counts(events, _SECONDS, launches)
    seconds, full = growth(rows), growth(counts(events, _FULL, launches), "count")
    many = rows["rank"].value_counts()
    found = []
    for _, row in rows.drop_duplicates("rank", keep="last").iterrows():
        rank = int(row["rank"])
        if rank in seconds:
            often = full.get(rank, (0.0,))[0]
            found.append(Collecting(rank, *seconds[rank], often, int(many[rank]), row))
    return sorted(found, key=lambda one: -one.share)
