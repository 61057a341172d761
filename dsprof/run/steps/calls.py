"""What calls that were logged one by one tell of the timers they lie in."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from dsprof.events import CLASSES, Class, Kind
from dsprof.run.comm import of_a_table
from dsprof.run.table import (
    STEP,
    Codes,
    Numbers,
    among,
    keys,
    known_rank,
    numbers,
    of_kind,
    positions,
)

#: Class of a timer that holds computation and communication, where the logged calls of its step
#: tell how much all such timers hold of each, but not how much this one does.
UNDIVIDED: Final = "compute or communication"

#: The optimizers of ZeRO 1 and 2 look for overflows with a byte and for the norm of the gradients
#: with a float, both in step() and before the timers of its parts begin (DeepSpeed,
#: stage_1_and_2.py: `has_overflow`, `get_grad_norm_direct`). Nothing else they reduce is so small.
SCALAR: Final = 4.0  # bytes
_STEP_TIMER: Final = "step"
_PARTS: Final = ("optimizer_allgather", "optimizer_gradients")
_OP: Final = "all_reduce"
SCALARS: Final = f"{_STEP_TIMER}_{_OP}"

_WORDS: Final = ("name", "parent", "class", "raw", "source")


def class_codes(phases: pd.DataFrame) -> Codes:
    """Which class each phase is of, as a number: `other` where its mixture is undivided."""
    class_ = phases["class"].astype("category").cat
    meant = [Class.OTHER if word == UNDIVIDED else word for word in class_.categories]
    codes: Codes = np.array([*map(CLASSES.index, meant), -1], np.int64)[class_.codes]
    return codes


def logged(events: pd.DataFrame) -> pd.DataFrame:
    """Events of single calls that lasted a known time in a known step."""
    calls = of_kind(events, Kind.COMM)
    found: pd.DataFrame = calls[~of_a_table(calls) & calls["seconds"].notna()]
    return found[found["step"].notna()]


def divided(phases: pd.DataFrame, calls: pd.DataFrame) -> npt.NDArray[np.bool_]:
    """Which phases are of a step whose calls are logged; what `step` holds they do not tell."""
    table = calls[list(STEP)].drop_duplicates().sort_values(list(STEP), ignore_index=True)
    there: npt.NDArray[np.bool_] = positions(table, phases, *STEP) >= 0
    return there & (phases["name"] != _STEP_TIMER).to_numpy(bool)


def with_scalars(phases: pd.DataFrame, calls: pd.DataFrame) -> pd.DataFrame:
    """`phases` (sorted by timer), reductions of single numbers as parts of the step() they are in.

    No timer of the optimizer holds them: they would count as its own work.
    """
    one = among(calls["name"], [_OP]) & (numbers(calls["bytes"]) <= SCALAR)
    rows = _undivided_steps(phases) if one.any() else np.zeros(0, np.int64)
    if not len(rows):
        return phases
    sums = _sums(calls[one])
    timers = pd.MultiIndex.from_frame(known_rank(phases).iloc[rows][[*STEP, "rank"]])
    place = sums.index.get_indexer(timers)
    rows, sums = rows[place >= 0], sums.iloc[place[place >= 0]]
    own: Numbers = phases["self_seconds"].to_numpy(copy=True)
    seconds = np.minimum(own[rows], sums["seconds"].to_numpy())
    own[rows] -= seconds
    phases = phases.astype(dict.fromkeys(_WORDS, "object"))
    parts = phases.iloc[rows].assign(
        name=SCALARS,
        raw=_OP,
        parent=_STEP_TIMER,
        seconds=seconds,
        self_seconds=seconds,
        count=sums["count"].to_numpy(),
        source=sums["source"].to_numpy(),
        line=sums["line"].to_numpy(),
    )
    parts["class"] = str(Class.COMMUNICATION)
    together = pd.concat([phases.assign(self_seconds=own), parts])
    together[list(_WORDS)] = together[list(_WORDS)].astype("str").astype("category")
    return together.sort_values("timer", kind="stable", ignore_index=True)


def _undivided_steps(phases: pd.DataFrame) -> Codes:
    """The timers of the whole step() of an optimizer of ZeRO 1 or 2."""
    inside = among(phases["name"], _PARTS) & among(phases["parent"], [_STEP_TIMER])
    if not inside.any():
        return np.zeros(0, np.int64)
    of_step = keys(known_rank(phases), *STEP, "rank")
    outer = among(phases["name"], [_STEP_TIMER]) & among(phases["class"], [Class.OPTIMIZER])
    outer &= np.isin(of_step, of_step[inside]) & phases["self_seconds"].gt(0).to_numpy(bool)
    return np.flatnonzero(outer)


def _sums(calls: pd.DataFrame) -> pd.DataFrame:
    """Seconds and number of calls by step and rank, of one optimizer step; where the last one is
    told."""
    steps = np.maximum(numbers(calls["steps"].fillna(1)), 1.0)
    calls = known_rank(calls).assign(
        seconds=numbers(calls["seconds"]) / steps, count=numbers(calls["count"].fillna(1)) / steps
    )
    by = calls.groupby([*STEP, "rank"], observed=True)
    return by.agg(
        seconds=("seconds", "sum"), count=("count", "sum"),
        source=("source", "last"), line=("line", "last"),
    )  # fmt: skip
