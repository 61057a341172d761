"""What no phase of a rank holds: work that could hide a straggler, or make up for one."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from dsprof.run.table import numbers, places, plain, where

_WORTH = 0.01  # of a step; less untimed work than this cannot hide a straggler


def untimed(phases: pd.DataFrame, steps: pd.DataFrame) -> pd.Series[float] | None:
    """Seconds per step outside of all timers, by rank; None if that is less than `_WORTH` of a step
    for all ranks, or if the duration of steps is unknown.

    Without this, a rank that is late outside of its timers would look like the fastest one.

    Args:
        phases: phases by rank, in some of `steps`.
        steps: steps that all ranks end together, so that each has one duration for all ranks.
    """
    by_step = untimed_by_step(phases, steps)
    rest = by_step.mean().clip(lower=0.0).rename_axis("rank")
    whole = _lasting(steps).reindex(by_step.index).mean()
    return rest if len(rest) and rest.max() >= _WORTH * whole else None


def untimed_by_step(phases: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    """The same in every step, a row each, with a column for each rank. NaN where a rank has no
    phase in a step, or the duration of a step is unknown.
    """
    told = where(phases, phases["rank"].notna() & phases["self_seconds"].notna())
    (number, step), (ranks, rank) = (places(plain(told[name])) for name in ("step", "rank"))
    shape = len(number), len(ranks)
    visit = step * shape[1] + rank
    seconds = numbers(told["self_seconds"])
    held, rows = (np.bincount(visit, by, math.prod(shape)) for by in (seconds, None))
    held = np.where(rows > 0, held, np.nan).reshape(shape)
    whole = _lasting(steps).reindex(number).to_numpy(dtype=float)
    return pd.DataFrame(whole[:, None] - held, index=number, columns=ranks)


def _lasting(steps: pd.DataFrame) -> pd.Series[float]:
    return steps.drop_duplicates("step").set_index("step")["seconds"]
