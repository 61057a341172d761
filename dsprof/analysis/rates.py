"""Rates that a source states, held against its steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from dsprof.events import Kind
from dsprof.run.table import of_kind

if TYPE_CHECKING:
    import pandas as pd

    from dsprof.run import Run

_DIFFERS: Final = 0.1  #: of the stated rate: more than scatter


def batch_of(run: Run) -> Any:
    """Samples of a step as the job was told; None where its lines state others of some steps."""
    batch = run.config.get("train_batch_size")
    told = of_kind(run.told, Kind.METRIC, "global_batch_size")["value"].dropna()
    return batch if (told == batch).all() else None


def rate_of_steps(stated: pd.Series[float], seconds: float | None, batch: Any) -> float | None:
    """Samples per second by batch and step time, where the stated rates are clearly others.

    DeepSpeed's timer of throughput runs from forward to step: loading data between steps is not
    in its rate (deepspeed/utils/timer.py, `ThroughputTimer`), which is higher then. It is lower
    where it is of printed steps and the clock knows of quicker ones between them.

    Args:
        stated: samples per second of all ranks, of the same steps.
        seconds: mean of one optimizer step.
        batch: samples of each of them, if known.
    """
    told = stated.dropna().astype(float)
    if not seconds or told.empty or not isinstance(batch, (int, float)):
        return None
    rate, timed = batch / seconds, 1 / float((1 / told).mean())
    higher = len(told) == len(stated) and rate > timed * (1 + _DIFFERS)
    return rate if higher or rate < timed * (1 - _DIFFERS) else None
