"""The steps of a run as columns of a chart: one step each, or the mean of several."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from dsprof.charts.figure import Floats, Whole, ratio

COLUMNS = 320  #: at most so many stand side by side
AIRY = 60  #: up to so many have room for a gap between them


@dataclass(frozen=True, slots=True)
class Columns:
    """Neighbouring steps drawn as one column.

    Attributes:
        starts: position of the first step of every column.
        x, width: place and width on the step axis.
        labels: `step 120` or `steps 120 to 129, mean`.
    """

    starts: Whole
    x: Floats
    width: Floats
    labels: list[str]

    def mean(self, values: Floats) -> Floats:
        """Mean of the known values of every column, NaN where none is known. [columns]"""
        known = np.isfinite(values)
        total = np.add.reduceat(np.where(known, values, 0.0), self.starts)
        count = np.add.reduceat(known.astype(float), self.starts)
        return ratio(total, count)


def step_axis(steps: pd.DataFrame) -> Floats:
    """Where every step stands: its number, or behind the last launch where numbers repeat."""
    number = steps["step"].to_numpy(dtype=float, na_value=np.nan)
    if len(number) < 2 or bool(np.all(np.diff(number) > 0)):
        return number
    x = number.copy()
    segment = steps["segment"].to_numpy(dtype=float, na_value=0.0)
    for start in np.flatnonzero(np.diff(segment)) + 1:
        if x[start] <= x[start - 1]:
            x[start:] += x[start - 1] - x[start] + max(1.0, _spacing(number))
    return x


def _spacing(x: Floats) -> float:
    ahead = np.diff(x)
    ahead = ahead[ahead > 0]
    return float(np.median(ahead)) if len(ahead) else 1.0


def columns(steps: pd.DataFrame, limit: int = COLUMNS) -> Columns:
    """Columns for steps in the order of the run; as many steps in each as `limit` asks for."""
    each = -(-len(steps) // limit)
    starts = np.arange(0, len(steps), each, dtype=np.int64)
    ends = np.append(starts[1:], len(steps)) - 1
    x, spacing = step_axis(steps), _spacing(step_axis(steps))
    numbers = steps["step"].to_numpy(dtype=np.int64)
    labels = [
        f"step {numbers[a]:,}" if a == b else f"steps {numbers[a]:,} to {numbers[b]:,}, mean"
        for a, b in zip(starts, ends, strict=True)
    ]
    air = 0.92 if len(starts) <= AIRY else 1.0
    return Columns(starts, (x[starts] + x[ends]) / 2, (x[ends] - x[starts] + spacing) * air, labels)
