"""Memory and GPUs of every rank, as the last steps tell of them. Pure.

Hundreds of ranks are looked at a second: rows are grouped once, and each rank's are numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

import numpy as np
import pandas as pd

from dsprof.analysis.breakdown import main_steps
from dsprof.analysis.memory import capacity
from dsprof.live.picture import GpuRow, MemoryRow
from dsprof.run import Run
from dsprof.text.words import number

_TRAIL: Final = 60
_NOBODY: Final = -1  # a rank that is not told
_LEAST: Final = 6  # values that a slope takes

#: What is drawn of a rank: the first of these that is told.
_ON_GPU: Final = ("allocated", "reserved", "max_allocated", "max_reserved")
_LEADS: Final = (*_ON_GPU, "host_process", "host_used")

#: Counters that say why a clock is held down, and what by.
_HELD: Final = {
    "throttled_power": "power limit",
    "throttled_thermal": "heat",
    "throttled_hardware": "hardware",
}

Frame = pd.DataFrame
Numbers = np.ndarray[Any, np.dtype[np.float64]]
Whole = np.ndarray[Any, np.dtype[np.int64]]


def memory_of(run: Run, gpus: tuple[GpuRow, ...]) -> list[MemoryRow]:
    """A row a rank, the fullest first; none of a rank that only tells of flushes of its cache."""
    who = _ranks(run.memory)
    series = _series(run.memory, who)
    device = {gpu.rank: gpu.values.get("memory_used") for gpu in gpus if gpu.rank is not None}
    hosts = _hosts(run.memory, who)
    limit = capacity(run.meta, run.problems)
    pace = number(main_steps(run.steps)["seconds"].median())
    rows = [
        _memory_row(rank, hosts.get(rank, ""), told, device.get(rank), limit, pace)
        for rank, told in series.items()
        if not told.keys().isdisjoint(_LEADS)
    ]
    return sorted(rows, key=_fullness, reverse=True)


def _fullness(row: MemoryRow) -> float:
    return row.peak or row.reserved or row.process or row.host_used or 0.0


def _memory_row(  # noqa: PLR0917
    rank: int,
    host: str,
    told: Mapping[str, _Series],
    device: float | None,
    limit: float | None,
    pace: float | None,
) -> MemoryRow:
    def last(*names: str) -> float | None:
        return next((told[name].last for name in names if name in told), None)

    drawn = next((name for name in _LEADS if name in told), "")
    lead = told.get(drawn, _Series())
    slope = lead.slope
    used = device or last("reserved", "allocated")
    full = None
    if drawn in _ON_GPU and slope and slope > 0 and limit and used and pace:
        full = max(0.0, (limit - used) / slope * pace)
    allocated, reserved = last("allocated"), last("reserved")
    if allocated and reserved and allocated > reserved:
        reserved = None  # told at another time: of what is reserved tensors take a part
    return MemoryRow(
        rank=_who(rank),
        host=host,
        allocated=allocated,
        reserved=reserved,
        peak=last("max_reserved", "max_allocated"),
        process=last("host_process"),
        host_used=last("host_used"),
        device=device,
        limit=limit,
        per_step=slope,
        full=full,
        trail=tuple(lead.values[-_TRAIL:].tolist()),
    )


def gpus_of(run: Run) -> list[GpuRow]:
    """The last sample of each GPU, once for each rank that uses it; one that none uses, once."""
    who = _users(run.gpu)
    hosts = _hosts(run.gpu, who)
    return [
        GpuRow(
            rank=_who(rank),
            host=hosts.get(rank, ""),
            values={name: values.last for name, values in told.items()},
            reasons=", ".join(w for n, w in _HELD.items() if n in told and told[n].last > 0),
        )
        for rank, told in _series(run.gpu, who).items()
    ]


@dataclass(frozen=True, slots=True)
class _Series:
    """What one rank told of one thing, in order."""

    steps: Numbers = field(default_factory=lambda: np.empty(0))
    values: Numbers = field(default_factory=lambda: np.empty(0))

    @property
    def last(self) -> float:
        return float(self.values[-1])

    @property
    def slope(self) -> float | None:
        """Change per step, by the medians of the first and the last third."""
        known = ~np.isnan(self.steps)
        steps, values = self.steps[known], self.values[known]
        if len(steps) < _LEAST:
            return None
        third = len(steps) // 3
        run = float(np.median(steps[-third:]) - np.median(steps[:third]))
        rise = float(np.median(values[-third:]) - np.median(values[:third]))
        return rise / run if run > 0 else None


def _series(table: Frame, who: Whole) -> dict[int, dict[str, _Series]]:
    """Rank, then name: what was told. `who`: the rank of each row, below 0 if it is not told."""
    measures = [column for column in ("bytes", "value", "seconds", "count") if column in table]
    values = table[measures].astype("float64").bfill(axis=1).iloc[:, 0].to_numpy()
    known = ~np.isnan(values)
    rows, values = table[known], values[known]
    steps = rows["step"].to_numpy(np.float64, na_value=np.nan)
    names = rows["name"].astype("str").to_numpy()
    places = pd.Series(values).groupby([who[known], names]).indices
    found: dict[int, dict[str, _Series]] = {}
    for key, at in places.items():
        rank, word = cast("tuple[int, str]", key)
        found.setdefault(int(rank), {})[word] = _Series(steps[at], values[at])
    return found


def _hosts(table: Frame, who: Whole) -> dict[int, str]:
    told = table["host"].notna().to_numpy(bool)
    return dict(zip(who[told].tolist(), table.loc[told, "host"].astype("str"), strict=True))


def _ranks(table: Frame) -> Whole:
    return table["rank"].fillna(_NOBODY).to_numpy(np.int64)


def _users(gpu: Frame) -> Whole:
    """The rank that uses the GPU of each row; of those that none uses, each has a number of its
    own below 0.
    """
    ranks, (device, _) = _ranks(gpu), pd.factorize(gpu["text"].astype("str"))
    return np.where(ranks == _NOBODY, _NOBODY - device, ranks)


def _who(rank: int) -> int | None:
    return None if rank <= _NOBODY else rank
