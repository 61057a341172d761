"""Rates that a source states, held against its steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pandas as pd

_DIFFERS: Final = 0.1  #: of the stated rate: more than scatter


def rate_of_steps(
    stated: pd.Series[float], seconds: float | None, config: Mapping[str, Any]
) -> float | None:
    """Samples per second by batch and step time, where the stated rates are clearly others.

    DeepSpeed's timer of throughput runs from forward to step: loading data between steps is not
    in its rate (deepspeed/utils/timer.py, `ThroughputTimer`), which is higher then. It is lower
    where it is of printed steps and the clock knows of quicker ones between them.

    Args:
        stated: samples per second of all ranks, of the same steps.
        seconds: mean of one optimizer step.
        config: `Run.config`.
    """
    batch, told = config.get("train_batch_size"), stated.dropna().astype(float)
    if not seconds or told.empty or not isinstance(batch, (int, float)):
        return None
    rate, timed = batch / seconds, 1 / float((1 / told).mean())
    higher = len(told) == len(stated) and rate > timed * (1 + _DIFFERS)
    return rate if higher or rate < timed * (1 - _DIFFERS) else None
