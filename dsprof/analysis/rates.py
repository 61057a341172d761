"""Rates that a source states, compared with its step times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dsprof.analysis.breakdown import engines, mean_of
from dsprof.events import Kind
from dsprof.run.steps.batches import counted_batches
from dsprof.run.table import STEP, of_kind, within

if TYPE_CHECKING:
    import pandas as pd

    from dsprof.run import Run

DIFFERS: Final = 0.1  #: of the stated rate; more than scatter explains


def batch_of(run: Run, steps: pd.DataFrame) -> float | None:
    """Configured samples per step; None if unknown, or if lines state another number for some."""
    rows = run.told[run.told["engine"].isin(steps["engine"].unique())]
    told = of_kind(rows, Kind.METRIC, "global_batch_size")["value"].dropna()
    batch = configured_batch(run, steps)
    counts = within(steps, of_kind(rows, Kind.METRIC, "samples"), *STEP)
    counted = counted_batches(counts, counts["value"]).dropna()
    return batch if (told == batch).all() and (counted == batch).all() else None


def configured_batch(run: Run, steps: pd.DataFrame) -> float | None:
    """Samples per step as configured for the engine of `steps`; None if unknown.

    An engine that states no batch of its own has that of the run, which is engine 0's.
    """
    engines = steps["engine"].unique()
    rows = run.told[run.told["engine"].isin(engines)]
    own = of_kind(rows, Kind.CONFIG, "train_batch_size")["value"].dropna().unique()
    batch = own[0] if len(engines) == len(own) == 1 else run.config.get("train_batch_size")
    return float(batch) if isinstance(batch, int | float) else None


def counted_batch(run: Run, steps: pd.DataFrame) -> float | None:
    """Samples of each of these steps of a recording, where all say another number than is
    configured, as where the script decides by itself when to step; else None.
    """
    if not run.is_recording:
        return None
    rows = within(steps, of_kind(run.told, Kind.METRIC, "global_batch_size"), *STEP)
    told = rows.groupby([*STEP])["value"].max()
    known = len(steps) > 0 and len(told) == len(steps)
    return float(told.iloc[0]) if known and 0 < told.min() == told.max() else None


def seconds_apart(run: Run, steps: pd.DataFrame) -> float | None:
    """Mean seconds from one step's end to the next one's, where engines of a recording take turns.

    A recording counts to a step what its engine did, without the turns of others. None if there are
    no others.
    """
    if not run.is_recording or not engines(run.steps):
        return None
    rows = steps.sort_values("step")
    next_ones = rows["step"].diff() == 1
    apart = rows["at"].diff().dt.total_seconds()[next_ones.fillna(value=False)].mean()
    return float(apart) if apart > 0 else None


def samples_per_second(run: Run, steps: pd.DataFrame) -> float:
    """The mean rate of steps; by the clock where engines of a recording take turns, and not of the
    engine's own time. NaN if unknown.
    """
    rate, apart = mean_of(steps, "samples_per_second"), seconds_apart(run, steps)
    return rate * mean_of(steps, "seconds") / apart if apart else rate


def rate_of_steps(steps: pd.DataFrame, seconds: float | None, batch: float | None) -> float | None:
    """Samples per second by batch and step time, if the stated rates clearly differ; else None.

    DeepSpeed's throughput timer runs from forward to step, so its rate leaves out data loading
    between steps and is then higher (deepspeed/utils/timer.py, `ThroughputTimer`). The stated rate
    is lower if only printed steps have one and timestamps show that the steps between them are
    faster.

    Args:
        steps: steps of all ranks.
        seconds: mean duration of one of these optimizer steps.
        batch: samples of each of them, if known.
    """
    told = steps["samples_per_second"].notna()
    if not seconds or not told.any() or batch is None:
        return None
    rate, timed = batch / seconds, mean_of(steps, "samples_per_second")
    higher = told.all() and rate > timed * (1 + DIFFERS)
    return rate if higher or rate < timed * (1 - DIFFERS) else None
