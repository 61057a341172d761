"""The memory capacity of a GPU, and memory that keeps growing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dsprof.units import size

_CAPACITY = re.compile(
    r"total capacity of ([\d.]{1,12} [KMGT]iB)|([\d.]{1,12} [KMGT]iB) total capacity"
)
_BANDS = 10


@dataclass(frozen=True, slots=True)
class Growth:
    """How the memory of one rank changes through the run, in bytes."""

    name: str
    rank: int | None
    first: float  # median of the first tenth of the steps
    last: float  # median of the last tenth
    rising: float  # share of the tenths whose median is above that of the tenth before
    late: float  # share of the growth that happens in the second half
    readings: int  # number of steps with a value
    steps: tuple[int, int]  # the first and the last of them
    row: int  # index of the last row in the memory view

    @property
    def of_host(self) -> bool:
        return self.name.startswith("host_")


def capacity(meta: Mapping[str, Any], problems: pd.DataFrame) -> float | None:
    """Memory of one GPU in bytes, from the recording or an out-of-memory message; None if neither
    tells it.
    """
    if meta.get("gpu_memory_bytes"):
        return float(meta["gpu_memory_bytes"])
    for text in problems["text"][problems["kind"] == "oom"].dropna():
        found = _CAPACITY.search(str(text))
        if found:
            return size(found[1] or found[2])
    return None


def growths(memory: pd.DataFrame, names: tuple[str, ...], least: int) -> list[Growth]:
    """The growth of each segment, engine, name and rank that has values of at least `least`
    steps.
    """
    if memory.empty:
        return []
    rows = memory[memory["name"].isin(names) & memory["step"].notna() & memory["bytes"].notna()]
    if rows.empty:
        return []
    parts = rows.groupby(["segment", "engine", "name", "rank"], observed=True, dropna=False)
    return [growth for key, part in parts if (growth := _growth(str(key[2]), key[3], part, least))]


def _growth(name: str, rank: Any, part: pd.DataFrame, least: int) -> Growth | None:
    peaks = part.groupby("step")["bytes"].max().sort_index()  # a step may have several values
    if len(peaks) < least:
        return None
    bands = np.array([np.median(band) for band in np.array_split(peaks.to_numpy(), _BANDS)])
    return Growth(
        name=name,
        rank=None if pd.isna(rank) else int(rank),
        first=float(bands[0]),
        last=float(bands[-1]),
        rising=float((np.diff(bands) > 0).mean()),
        late=float(_late(bands)),
        readings=len(peaks),
        steps=(int(peaks.index[0]), int(peaks.index[-1])),
        row=int(part.index[-1]),
    )


def _late(bands: np.ndarray[Any, Any]) -> float:
    first, middle, last = bands[0], (bands[_BANDS // 2 - 1] + bands[_BANDS // 2]) / 2, bands[-1]
    return (last - middle) / (last - first) if last > first else 0.0
