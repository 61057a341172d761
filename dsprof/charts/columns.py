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
    """Where every step stands: its number, or behind the last launch where numbers repeat; what
    stands for several steps in the middle of those."""
    x = _numbers(steps)
    return x - (_covered(steps, x) - 1) / 2


def step_edges(steps: pd.DataFrame) -> tuple[Floats, Floats]:
    """Where the column of every step begins and ends: it spans the steps that it stands for, or
    has the room between two steps that are printed."""
    x = _numbers(steps)
    many = _covered(steps, x)
    if is_windowed(steps):
        return x - many + 0.5, x + 0.5
    half = _spacing(x) / 2
    return x - half, x + half


def reach(steps: pd.DataFrame) -> list[float]:
    """The whole axis; found by plotly it would leave room for marks and words."""
    low, high = step_edges(steps)
    return [float(low[0]), float(high[-1])]


def is_windowed(steps: pd.DataFrame) -> bool:
    """Whether some of them stand for several: for the window that ends there."""
    return bool((_covered(steps, _numbers(steps)) > 1).any())


def _covered(steps: pd.DataFrame, x: Floats) -> Floats:
    """Of how many steps each is the mean, none that those before it have told of."""
    if "covers" not in steps or not len(x):
        return np.ones(len(x))
    covers = steps["covers"].to_numpy(dtype=float, na_value=1.0)
    between = np.diff(x)
    before = min(float(steps["step"].iloc[0]), float(between.max(initial=1.0)))
    if len(x) == 1:
        before = float(steps["step"].iloc[0])
    room = np.append(before, between)
    covered: Floats = np.clip(covers, 1.0, np.maximum(room, 1.0))
    return covered


def _numbers(steps: pd.DataFrame) -> Floats:
    """The numbers of the steps, counted on where they begin anew."""
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
    """Columns for steps in the order of the run; `COLUMNS` of them at most, but that none holds
    steps of two launches.
    """
    each = -(-len(steps) // COLUMNS)
    launch = launch_starts(steps["segment"].to_numpy(dtype=np.int64, na_value=0))
    starts = np.union1d(np.arange(0, len(steps), each, dtype=np.int64), launch)
    ends = np.append(starts[1:], len(steps)) - 1
    low, high = step_edges(steps)
    low, high = low[starts], high[ends]
    last = steps["step"].to_numpy(dtype=np.int64)
    first = last - _covered(steps, _numbers(steps)).astype(np.int64) + 1
    labels = [
        f"{noun} {a:,}" if a == b else f"{noun}s {a:,} to {b:,}, mean"
        for a, b in zip(first[starts].tolist(), last[ends].tolist(), strict=True)
    ]
    air = 0.92 if len(starts) <= AIRY else 1.0
    return Columns(starts, (low + high) / 2, (high - low) * air, labels)


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
    def of(cls, rows: pd.DataFrame, like: pd.DataFrame | None = None) -> StepAxis:
        """The axis of rows with `segment` and `step`; those without a step have no place.

        Args:
            like: other rows, on whose axis these stand if there is room for all of them.
        """
        steps = _distinct(rows)
        own = cls(steps, _numbers(steps))
        if like is None or steps.empty:
            return own
        other = _distinct(like)
        ahead = pd.Series(_numbers(other) - other["step"].to_numpy(), other["segment"])
        ahead = ahead[~ahead.index.duplicated()]
        x = (steps["step"] + steps["segment"].map(ahead)).to_numpy(dtype=float)
        return cls(steps, x) if np.isfinite(x).all() and (np.diff(x) > 0).all() else own

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


def _distinct(rows: pd.DataFrame) -> pd.DataFrame:
    """`segment` and `step` of rows that have a step, each once."""
    told = rows.loc[rows["step"].notna(), ["segment", "step"]].fillna({"segment": 0})
    steps = told.astype("int64").drop_duplicates().sort_values(["segment", "step"])
    return steps.reset_index(drop=True)


def step_ticks(steps: pd.DataFrame, x: Floats) -> dict[str, Any]:
    """Step numbers at the ticks where the axis is not the step number itself.

    Args:
        steps: in the order of the run.
        x: where they stand; those that stand for several in the middle of these. [steps]
    """
    number = steps["step"].to_numpy(dtype=float)
    if np.array_equal(_numbers(steps), number):
        low, high = step_edges(steps)
        return whole_ticks([low[0], high[-1]] if is_windowed(steps) else x)
    at = np.unique(np.linspace(0, len(x) - 1, min(len(x), 9)).astype(int))
    ends = x + (_covered(steps, _numbers(steps)) - 1) / 2  # a window is named after its last step
    return {
        "tickmode": "array",
        "tickvals": numbers(ends[at], 9),
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
