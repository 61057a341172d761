"""Rows of views as proofs: the line, and what it says of the number that it stands for."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd

from dsprof.findings.finding import Evidence
from dsprof.run.steps.calls import SCALARS
from dsprof.units import format_seconds


def phase_evidence(table: pd.DataFrame, most: int = 3) -> tuple[Evidence, ...]:
    """The largest phases of a `Breakdown.phases` table: their mean, and the last line of each."""
    return tuple(
        row_evidence(row, f"{_own(str(name), row)}: {_mean_and_last(row)}")
        for name, row in table.head(most).iterrows()
        if row["seconds"] > 0
    )


def _mean_and_last(row: pd.Series[Any]) -> str:
    mean, last = format_seconds(row["seconds"]), format_seconds(row["shown"])
    if _has_inside(row):
        last += f" of {format_seconds(row['held'])}"
    at = f"at step {int(row['step']):,}"
    return f"{mean} per step, as {at}" if mean == last else f"{mean} per step, {at}: {last}"


def _alike(one: float, other: float) -> bool:
    """Whether two durations would be told by the same three digits, or nearly."""
    return math.isclose(one, other, rel_tol=0.005)


def _own(name: str, row: pd.Series[Any]) -> str:
    """A phase as one says it where its line has another number, or none, for it."""
    timer, _, place = name.partition("_in_")
    if place and row["raw"] == timer:  # a stretch that two timers measure, see `Run.phases`
        return f"{name}, computed: the time that {timer} and {place} share"
    if name == SCALARS:
        return f"{name}, logged calls of 1 B or 4 B inside step"
    return f"{name} itself, without the timers inside it" if _has_inside(row) else name


def _has_inside(row: pd.Series[Any]) -> bool:
    return not _alike(row["shown"], row["held"])


def row_evidence(row: pd.Series[Any], text: str) -> Evidence:
    """The line of one row of a view, with what it says."""
    return Evidence(str(row["source"]), whole(row["line"]), text)


def rank_evidence(row: pd.Series[Any]) -> Evidence:
    """A phase of one rank in one step: the time that it has itself."""
    return row_evidence(
        row,
        f"rank {int(row['rank']):,}, step {int(row['step']):,}, {row['name']}: "
        f"{format_seconds(row['self_seconds'])}",
    )


def largest(rows: pd.DataFrame, column: str) -> pd.Series[Any]:
    """The row in which a number is largest (of the equal ones the last); missing ones lose."""
    values = rows[column].to_numpy(dtype=float, na_value=-np.inf)
    return rows.iloc[int(len(values) - 1 - values[::-1].argmax())]


def longest_of(rows: pd.DataFrame, column: str) -> str:
    """`, the longest 5.00 s` of several durations."""
    seconds = float(largest(rows, column)[column])
    return f", the longest {format_seconds(seconds)}" if len(rows) > 1 else ""


def whole(value: Any) -> int | None:
    return None if pd.isna(value) else int(value)


def span(steps: pd.Series) -> tuple[int, int] | None:
    """The first and the last of some steps; None if none of them is known."""
    first, last = whole(steps.min()), whole(steps.max())
    return None if first is None or last is None else (first, last)
