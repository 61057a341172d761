"""The steps of two runs to compare, their seconds known in one way as far as that can be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pandas as pd

from dsprof.analysis.apart import distances, happened_in
from dsprof.analysis.breakdown import known_by, main_steps, regular_steps
from dsprof.run.steps.between import SURPLUS, names_apart
from dsprof.run.table import among, where

if TYPE_CHECKING:
    from dsprof.run import Run

FEWEST: Final = 8  #: rows of a run; fewer are not enough for a block bootstrap


def comparable(first: Run, second: Run) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The rows of both runs to judge by, with their `seconds`."""
    return _by_one_clock((first, second), _judgeable(first, second))


def _judgeable(first: Run, second: Run) -> tuple[pd.DataFrame, pd.DataFrame]:
    """These rows, each as its run tells them.

    Sums of timers leave out untimed work. They are used only if too few rows have the time of the
    whole step, or if only one of the runs has a rate for every step.
    """
    whole = main_steps(first.steps), main_steps(second.steps)
    alike = known_by(whole[0]) == known_by(whole[1]) != "rated"  # few rates, so no scatter is known
    if min(map(len, whole)) >= FEWEST and alike:
        return whole
    each = regular_steps(first.steps), regular_steps(second.steps)
    if {known_by(rows) for rows in each} != {"timers", "throughput"}:
        return each
    timed = _by_timers(first, each[0]), _by_timers(second, each[1])
    same = set(first.phases["name"]) == set(second.phases["name"])
    return timed if same and min(map(len, timed)) >= FEWEST else each


def _by_one_clock(
    runs: tuple[Run, Run], both: tuple[pd.DataFrame, pd.DataFrame]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Where time stamps tell the steps of one run, and confirm the rates of the other, those of
    both by the clock: rates may leave out a little."""
    if {known_by(rows) for rows in both} != {"clock", "throughput"}:
        return both
    first, second = (_clocked(run, rows) for run, rows in zip(runs, both, strict=True))
    return first, second


def _clocked(run: Run, steps: pd.DataFrame) -> pd.DataFrame:
    """Steps that rates tell, by the time stamps up to each, apart from what happened between; as
    they are, where stamps tell few of them or something else."""
    if known_by(steps) != "throughput":
        return steps
    apart = distances(run.steps)
    others = happened_in(apart, where(run.told, among(run.told["name"], names_apart(run.told))))
    apart = where(apart, apart.index.isin(steps.index) & ~apart.index.isin(others["within"]))
    rows, elapsed, passed = steps.loc[apart.index], apart["elapsed"], apart["passed"]
    told = float((rows["seconds"] * passed).sum())
    confirmed = abs(float(elapsed.sum()) - told) <= SURPLUS * told
    if not confirmed or 2 * len(rows) < len(steps):
        return steps
    return rows.assign(seconds=elapsed / passed, covers=passed, seconds_from="clock")


def _by_timers(run: Run, steps: pd.DataFrame) -> pd.DataFrame:
    """The timed ones of `steps`, with the sums of their timers as seconds."""
    timed = run.timed[steps.index]
    return steps.assign(seconds=timed, seconds_from="timers")[timed > 0]
