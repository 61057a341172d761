"""Which lines prove a number that many lines give together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import pandas as pd

from dsprof.charts.figure import Floats, Whole
from dsprof.events import Kind
from dsprof.page.model import Among, Place
from dsprof.run.table import STEP, of_kind, positions, where

SHOWN: Final = 36  #: lines shown of a mean: the first, the longest and the last, a third each
_ENDS: Final = SHOWN // 3


#: The column of a metric's row that holds its number, and what one calls the largest.
_MEASURED: Final = {
    "step_seconds": ("seconds", "longest"),
    "samples_per_second": ("value", "highest"),
}
_TIMER: Final = ("source", "line", "raw")


def among(
    rows: pd.DataFrame, measure: str = "seconds", of: int | None = None, largest: str = "longest"
) -> Among | None:
    """The lines of `rows` in their order; of many the first, the largest and the last.

    Args:
        rows: with `source`, `line` and the measure.
        of: how many numbers they stand for, if not one each.
        largest: what to call the largest.
    """
    size = rows[measure].to_numpy(dtype=float, na_value=np.nan)
    told = np.flatnonzero(rows["line"].notna() & rows["source"].notna() & np.isfinite(size))
    return among_at(rows, told, size[told], of, largest)


def windows(
    events: pd.DataFrame, phases: pd.DataFrame, lines: Mapping[str, Mapping[int, str]]
) -> dict[str, dict[int, int]]:
    """Over how many steps the timers of a line sum, by source and line: a reader must divide.

    Args:
        lines: the lines that the page carries.
    """
    several = (events["steps"] > 1).to_numpy(dtype=bool, na_value=False)
    rows = of_kind(where(events, several), Kind.PHASE)
    carried = {number for numbers in lines.values() for number in numbers}
    rows = rows[rows["line"].isin(carried).to_numpy(dtype=bool)]
    if rows.empty:
        return {}
    one = phases.loc[phases["line"].isin(carried), [*_TIMER, "seconds"]]
    mine = one.astype({"source": "str", "raw": "str"}).groupby(list(_TIMER))["seconds"].max()
    both = rows.astype({"source": "str", "raw": "str"}).join(mine.rename("one"), on=list(_TIMER))
    told = both[np.isclose(both["seconds"], both["one"] * both["steps"].astype(float))]
    found: dict[str, dict[int, int]] = {}
    for source, line, steps in told[told["seconds"] > 0][["source", "line", "steps"]].to_numpy():
        found.setdefault(str(source), {})[int(line)] = int(steps)
    return found


def ends_of(places: Mapping[str, Place | None], of: int = 0) -> Among | None:
    """Some lines by what each is, those that are known; as many numbers as there are, or `of`."""
    lines = tuple((word, place) for word, place in places.items() if place)
    return Among(lines, max(of, len(lines))) if lines else None


def step_lines(
    steps: pd.DataFrame, events: pd.DataFrame, phases: pd.DataFrame | None
) -> Among | None:
    """The lines that the seconds of `steps` are read from, however they are known.

    Args:
        steps: as `main_steps` gives them, known in one way.
        phases: their timers, where there are any.
    """
    how = str(steps["seconds_from"].iloc[0]) if len(steps) else ""
    if how in {"timers", "rated"} and phases is not None:
        return among(_outermost(steps, phases))
    if how == "clock":
        return among(steps)  # the time stands on the line that ends the step
    return metric_lines(steps, events, *_STATED[how]) if how in _STATED else None


#: Metric that says the seconds of a step, and the column of the steps that has its number.
_STATED: Final = {
    "logged": ("step_seconds", "seconds"),
    "throughput": ("samples_per_second", "samples_per_second"),
}


def rate_lines(steps: pd.DataFrame, events: pd.DataFrame, phases: pd.DataFrame) -> Among | None:
    """The lines that the samples per second of `steps` are read or reckoned from."""
    rates = of_kind(events, Kind.METRIC, "samples_per_second")
    read = np.isin(np.arange(len(steps)), positions(steps, rates, *STEP))
    if read.any() and steps.loc[~read, "samples_per_second"].notna().any():
        return among(_outermost(steps, phases))
    return metric_lines(steps, events, "samples_per_second", "samples_per_second") or (
        metric_lines(steps, events, "step_seconds", "seconds")
    )


def metric_lines(
    steps: pd.DataFrame, events: pd.DataFrame, metric: str, column: str
) -> Among | None:
    """The lines of a metric that give `column` of `steps`, the last one of a step where it can.

    Where no line of a step has the step's number, it is the mean of all of them.
    """
    measure, largest = _MEASURED[metric]
    rows = of_kind(events, Kind.METRIC, metric)
    place = positions(steps, rows, *STEP)
    rows, place = rows[place >= 0], place[place >= 0]
    said = rows[measure].to_numpy(dtype=float, na_value=np.nan)
    same = np.isclose(said, steps[column].to_numpy(dtype=float, na_value=np.nan)[place], rtol=1e-9)
    last = pd.Series(np.arange(len(rows)))[same].groupby(place[same]).max()
    mean = ~np.isin(place, place[same])
    return among(rows[mean | np.isin(np.arange(len(rows)), last)], measure, largest=largest)


def _outermost(steps: pd.DataFrame, phases: pd.DataFrame) -> pd.DataFrame:
    """Timers of `steps` that lie in no other, those of one line together."""
    mine = (positions(steps, phases, *STEP) >= 0) & phases["parent"].isna().to_numpy()
    rows = phases.loc[mine & phases["line"].notna().to_numpy(), ["source", "line", "seconds"]]
    return (
        rows.groupby(["source", "line"], sort=False, observed=True)["seconds"].sum().reset_index()
    )


def among_at(
    rows: pd.DataFrame, at: Whole, size: Floats, of: int | None, largest: str = "longest"
) -> Among | None:
    """The same of the rows at some positions, whose numbers are `size`."""
    if not len(at):
        return None
    chosen = chosen_of(size, largest)
    shown = rows[["source", "line"]].iloc[at[list(chosen)]]
    lines = [
        (word, place)
        for word, source, line in zip(chosen.values(), shown["source"], shown["line"], strict=True)
        for place in [Place.of(source, line)]
        if place
    ]
    return Among(tuple(lines), len(at) if of is None else of) if lines else None


def chosen_of(size: Floats, largest: str) -> dict[int, str]:
    """Which of some numbers to show, in their order, and what is to be said of each."""
    count = len(size)
    falling = _largest(size, _ENDS)
    shown = np.arange(count)
    if count > SHOWN:
        shown = np.unique(np.concatenate([shown[:_ENDS], falling, shown[-_ENDS:]]))
    words = dict.fromkeys(shown.tolist(), "")
    if count == 1:
        return words
    words |= {0: "first", count - 1: "last"}
    top = int(falling[0])
    if size[top] > size.min():
        words[top] = ", ".join(filter(None, [words[top], largest]))
    return words


def _largest(size: Floats, most: int) -> Whole:
    """Positions of the largest numbers, falling; of equal ones the first comes first."""
    near = np.arange(len(size))
    if len(size) > most:
        near = np.flatnonzero(-size <= np.partition(-size, most - 1)[most - 1])
    return near[np.argsort(-size[near], kind="stable")][:most]
