"""Rates that a source states, held against its steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dsprof.analysis.breakdown import mean_of
from dsprof.events import Kind
from dsprof.run.table import of_kind

if TYPE_CHECKING:
    import pandas as pd

    from dsprof.run import Run

_DIFFERS: Final = 0.1  #: of the stated rate: more than scatter


def batch_of(run: Run, steps: pd.DataFrame) -> float | None:
    """Samples of each of `steps` as the job was told; None where its lines state others of some."""
    rows = run.told[run.told["engine"].isin(steps["engine"].unique())]
    told = of_kind(rows, Kind.METRIC, "global_batch_size")["value"].dropna()
    batch = configured_batch(run, steps)
    return batch if (told == batch).all() else None


def configured_batch(run: Run, steps: pd.DataFrame) -> float | None:
    """Samples of a step as the engine of `steps` was configured; None where that is not told.

    Engine 0 speaks for the run, but for the steps of another one that says its own.
    """
    engines = steps["engine"].unique()
    rows = run.told[run.told["engine"].isin(engines)]
    own = of_kind(rows, Kind.CONFIG, "train_batch_size")["value"].dropna().unique()
    batch = own[0] if len(engines) == len(own) == 1 else run.config.get("train_batch_size")
    return float(batch) if isinstance(batch, int | float) else None


def rate_of_steps(steps: pd.DataFrame, seconds: float | None, batch: float | None) -> float | None:
    """Samples per second by batch and step time, where the stated rates are clearly others.

    DeepSpeed's timer of throughput runs from forward to step: loading data between steps is not
    in its rate (deepspeed/utils/timer.py, `ThroughputTimer`), which is higher then. It is lower
    where it is of printed steps and the clock knows of quicker ones between them.

    Args:
        steps: those with a rate, of all ranks.
        seconds: mean of one optimizer step of these.
        batch: samples of each of them, if known.
    """
    told = steps["samples_per_second"].notna()
    if not seconds or not told.any() or batch is None:
        return None
    rate, timed = batch / seconds, mean_of(steps, "samples_per_second")
    higher = told.all() and rate > timed * (1 + _DIFFERS)
    return rate if higher or rate < timed * (1 - _DIFFERS) else None
