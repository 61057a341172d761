"""How long a step took in the mean of all that a source states a rate of."""

from __future__ import annotations

import math
from typing import Final

import pandas as pd

from dsprof.run.steps.bars import steps_meant
from dsprof.run.table import among
from dsprof.units import format_seconds

_ROUNDED: Final = 0.0005  #: rounding error of a rate with three decimals
_SURE: Final = 50  #: from this many times that on, a rate has two reliable digits

#: What the Trainer does on the same clock.
_BESIDE: Final = ("eval_runtime", "eval_loss", "checkpoint_begin")

#: ms-swift's words for the mean since the start, and whether they mean steps of a second.
_SPEEDS: Final = {"train_speed(iter/s)": True, "train_speed(s/it)": False}


def mean_step(events: pd.DataFrame) -> str | None:
    """The mean duration of a step over a whole training, from its last record; None if unknown."""
    told = [
        events.loc[events["name"] == name, column].dropna()
        for name, column in [("train_steps_per_second", "value"), ("train_runtime", "seconds")]
    ]
    if any(rows.empty for rows in told):
        return None
    rate, seconds = (float(rows.iloc[-1]) for rows in told)
    if not (math.isfinite(rate) and seconds > 0):  # one that resumed behind its end took none
        return None
    took = _took(rate, seconds, steps_meant(events))
    if not took:
        return None
    beside = among(events["name"], _BESIDE).any()
    with_them = ", with its evaluations and saves" * bool(beside)
    return f"A step took {took} in the mean of the whole training{with_them}"


def mean_so_far(events: pd.DataFrame) -> str | None:
    """The same since the start, as ms-swift's records state it: its first versions tell no more.
    Its clock may begin before the first step does."""
    speeds = events[events["name"].isin(_SPEEDS) & (events["value"] > 0)]
    if speeds.empty:
        return None
    name, value = speeds["name"].iloc[-1], float(speeds["value"].iloc[-1])
    took = format_seconds(1 / value if _SPEEDS[name] else value)
    return f"A step took {took} in the mean so far, by the trainer's own clock"


def _took(rate: float, seconds: float, meant: frozenset[float]) -> str:
    """How long a step took: between which two times, where the rate, which has three decimals,
    fits several numbers of steps; "" if it is too imprecise."""
    many = _steps_in(rate, seconds, meant)
    if many is not None:
        return format_seconds(seconds / many)
    if rate < _SURE * _ROUNDED:
        return ""
    least, most = (format_seconds(1 / (rate + sign * _ROUNDED)) for sign in (1, -1))
    return least if least == most else f"about {least} to {most}"


def _steps_in(rate: float, seconds: float, meant: frozenset[float]) -> float | None:
    """How many steps a training had, from its rate, which has three decimals: the planned number if
    it fits, or the only whole number that fits; None if several do.
    """
    least, most = ((rate + sign * _ROUNDED) * seconds for sign in (-1, 1))
    fit = [many for many in meant if least <= many <= most and many >= 1]
    if len(fit) == 1:
        return fit[0]
    if 1 <= math.ceil(least) == math.floor(most):
        return float(math.floor(most))
    return None
