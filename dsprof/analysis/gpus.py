"""GPUs whose clock is throttled, as their samples tell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd

#: Counters of `dsprof.events.GPU` for throttling that is a fault. The power limit is left out,
#: because a GPU under full load reaches it normally.
REASONS: Final = {
    "throttled_thermal": "too hot",
    "throttled_hardware": "power brake or slowdown of the hardware",
}
TEMPERATURE: Final = "temperature"


@dataclass(frozen=True, slots=True)
class Throttling:
    """The GPU that is throttled in the largest share of its samples."""

    rank: int | None
    host: str | None
    device: str  # UUID, "" if unknown
    share: float  # of its samples, 0 to 1: count / of
    count: int  # samples in which it is throttled
    of: int  # its samples
    devices: int  # GPUs with such samples
    alike: int  # of these, itself included, that are throttled in as large a share of theirs
    why: str  # a value of `REASONS`
    celsius: float | None  # its highest temperature, if known
    row: pd.Series[Any]  # the last sample in which it is throttled, else its last sample


def throttled(samples: pd.DataFrame) -> Throttling | None:
    """The worst GPU and reason in a `Run.gpu` table, with share 0 if none is throttled.

    None if no sample tells reasons.
    """
    rows = samples[samples["name"].isin(REASONS) & samples["value"].notna()]
    if rows.empty:
        return None
    rows = rows.assign(device=_devices(rows))
    rows = rows.drop_duplicates(["source", "line", "device", "name"])  # ranks may share a GPU
    device, name = rows["device"].to_numpy(), rows["name"].astype("str").to_numpy(dtype=object)
    held = (rows["value"] > 0).to_numpy()
    shares = pd.Series(held).groupby([device, name]).mean().reset_index(name="share")
    most = shares.iloc[int(shares["share"].to_numpy().argmax())]
    worst, reason = str(most.iloc[0]), str(most.iloc[1])
    chosen = (device == worst) & (name == reason)
    mine = rows[chosen]
    row = mine[held[chosen]].iloc[-1] if held[chosen].any() else mine.iloc[-1]
    return Throttling(
        rank=None if pd.isna(row["rank"]) else int(row["rank"]),
        host=None if pd.isna(row["host"]) else str(row["host"]),
        device="" if pd.isna(row["text"]) else str(row["text"]),
        share=float(most["share"]),
        count=int(held[chosen].sum()),
        of=len(mine),
        devices=len(np.unique(device)),
        alike=int((shares.groupby("level_0")["share"].max() >= most["share"]).sum()),
        why=REASONS[reason],
        celsius=_hottest(samples, worst),
        row=row,
    )


def _devices(rows: pd.DataFrame) -> np.ndarray:
    """The GPU of each row: its UUID, else the rank that uses it. [rows]"""
    rank = "rank " + rows["rank"].astype("str")
    found = rows["text"].astype("str").where(rows["text"].notna(), rank)
    return found.to_numpy(dtype=object)


def _hottest(samples: pd.DataFrame, device: str) -> float | None:
    warm = samples[samples["name"] == TEMPERATURE]
    values = warm["value"][_devices(warm) == device].dropna()
    return float(values.max()) if len(values) else None
