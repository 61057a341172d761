"""The axis of steps, launch behind launch, and steps as columns: one each, or several."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from dsprof.charts.figure import Floats, Whole, numbers, ratio, whole_ticks
from dsprof.charts.palette import colour

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


def columns(steps: pd.DataFrame, noun: str = "step") -> Columns:
    """Columns for steps in the order of the run; `COLUMNS` of them at most."""
    each = -(-len(steps) // COLUMNS)
    starts = np.arange(0, len(steps), each, dtype=np.int64)
    ends = np.append(starts[1:], len(steps)) - 1
    x, spacing = step_axis(steps), _spacing(step_axis(steps))
    number = steps["step"].to_numpy(dtype=np.int64)
    labels = [
        f"{noun} {number[a]:,}" if a == b else f"{noun}s {number[a]:,} to {number[b]:,}, mean"
        for a, b in zip(starts, ends, strict=True)
    ]
    air = 0.92 if len(starts) <= AIRY else 1.0
    return Columns(starts, (x[starts] + x[ends]) / 2, (x[ends] - x[starts] + spacing) * air, labels)


@dataclass(frozen=True, slots=True)
class StepAxis:
    """The steps that several tables tell of, on one axis.

    Attributes:
        steps: `segment` and `step`, each once, in the order of the run.
        x: where they stand. [steps]
    """

    steps: pd.DataFrame
    x: Floats

    @classmethod
    def of(cls, rows: pd.DataFrame) -> StepAxis:
        """The axis of rows with `segment` and `step`; those without a step have no place."""
        told = rows.loc[rows["step"].notna(), ["segment", "step"]].fillna({"segment": 0})
        steps = told.astype("int64").drop_duplicates().sort_values(["segment", "step"])
        return cls(steps.reset_index(drop=True), step_axis(steps))

    def at(self, rows: pd.DataFrame) -> Floats:
        """Where rows stand that have a step. [rows]"""
        keys = pd.MultiIndex.from_frame(self.steps)
        own = pd.MultiIndex.from_arrays(
            [rows["segment"].fillna(0).astype("int64"), rows["step"].astype("int64")]
        )
        return self.x[keys.get_indexer(own)]

    def segment_at(self, x: Floats) -> npt.NDArray[np.int64]:
        """The launch at places of the axis where steps stand."""
        return self.steps["segment"].to_numpy(dtype=np.int64)[np.searchsorted(self.x, x)]

    @property
    def launches(self) -> int:
        return int(self.steps["segment"].nunique())


def step_ticks(steps: pd.DataFrame, x: Floats) -> dict[str, Any]:
    """Step numbers at the ticks where the axis is not the step number itself."""
    number = steps["step"].to_numpy(dtype=float)
    if np.array_equal(x, number):
        return whole_ticks(x)
    at = np.unique(np.linspace(0, len(x) - 1, min(len(x), 9)).astype(int))
    return {
        "tickmode": "array",
        "tickvals": numbers(x[at], 9),
        "ticktext": [f"{int(n):,}" for n in number[at]],
    }


def launch_lines(steps: pd.DataFrame, x: Floats) -> list[dict[str, Any]]:
    """A line where a new launch begins."""
    starts = launch_starts(steps["segment"].to_numpy(dtype=np.int64, na_value=0))
    return [launch_line(float((x[at - 1] + x[at]) / 2)) for at in starts]


def launch_starts(segment: Whole) -> Whole:
    """Positions at which a new launch begins: no line is drawn from one launch to another."""
    return np.flatnonzero(np.diff(segment)).astype(np.int64) + 1


def apart(values: npt.NDArray[Any], starts: Whole, between: Any = None) -> npt.NDArray[Any]:
    """`values` with a point more before each start: `between`, else the value there."""
    return np.insert(values, starts, values[starts] if between is None else between)


def launch_line(x: float) -> dict[str, Any]:
    return {
        "type": "line",
        "xref": "x",
        "yref": "paper",
        "x0": x,
        "x1": x,
        "y0": 0,
        "y1": 1,
        "line": {"color": colour("muted"), "width": 1, "dash": "dot"},
        "label": {
            "text": "new launch",
            "textangle": 0,
            "textposition": "end",
            "xanchor": "left",
            "yanchor": "top",
            "font": {"size": 10, "color": colour("muted")},
            "padding": 3,
        },
    }
