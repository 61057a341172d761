"""A recording as events of Chrome's trace format: each phase and call at the moment when it was."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd

from dsprof.export.trace import counted, named
from dsprof.run.moments import CALL, STEP, UNKNOWN
from dsprof.run.table import STEP as KEY
from dsprof.text.document import to_json

if TYPE_CHECKING:
    from dsprof.run import Run

Row = dict[Any, Any]

_AT_ONCE: Final = 200_000  #: rows in memory
_US: Final = 1e-3  #: of a nanosecond
_TOLD: Final = ("class", "bytes", "count", "group", "gpu_seconds", "source", "line")


def recorded(run: Run, steps: pd.DataFrame) -> Iterator[Row]:
    """A process a launch, in it a lane for each rank: its steps, in them phases, in these what they
    were held up by. Calls that were issued earlier than waited for also have lanes of their own.

    Times are microseconds since the first of `steps` began, by the first host's clock.
    """
    zero: int | None = None
    lanes: set[tuple[int, int]] = set()
    numbers = count(1)
    for some in _portions(run, steps):
        moments = run.moments(some)
        moments = moments[moments["begin"].ne(UNKNOWN)]
        if moments.empty:
            continue
        zero = int(moments["begin"].min()) if zero is None else zero
        told = moments.assign(begin=moments["begin"] - zero, issued=moments["issued"] - zero)
        lanes |= set(zip(told["segment"].astype(int), told["rank"].astype(int), strict=True))
        for _, rows in told.groupby(["segment", "rank"]):
            yield from _lane(rows, numbers)
        yield from _counters(told, some)
    for segment, rank in sorted(lanes):
        yield from named(segment, rank, "rank unknown" if rank == UNKNOWN else f"rank {rank}")


def _portions(run: Run, steps: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """As many steps at a time as fit into memory."""
    each = (len(run.phases) + len(run.comm)) // max(1, len(run.steps))
    size = max(1, _AT_ONCE // max(1, each))
    return (steps.iloc[first : first + size] for first in range(0, len(steps), size))


def _lane(rows: pd.DataFrame, numbers: Iterator[int]) -> Iterator[Row]:
    """Slices of one rank, each within the one that holds it, as the format wants it."""
    inside = np.where(rows["what"] == STEP, 0, rows["path"].map(lambda path: path.count("/")) + 1)
    rows = rows.assign(length=rows["seconds"].fillna(0.0) * 1e9, inside=inside)
    held: list[float] = []
    for row in rows.sort_values(["begin", "inside"], kind="stable").to_dict("records"):
        if row["what"] == CALL and row["issued"] < row["begin"]:
            yield from _under_way(row, next(numbers))
        while held and held[-1] <= row["begin"]:
            held.pop()
        end = min([row["begin"] + row["length"], *held[-1:]])
        if end > row["begin"]:
            held.append(end)
            yield _slice(row, end)


def _slice(row: Row, end: float) -> Row:
    name = f"step {row['step']}" if row["what"] == STEP else _last(row["path"])
    times = {"ts": row["begin"] * _US, "dur": (end - row["begin"]) * _US}
    return {"ph": "X", "name": name, **_place(row), **times, "args": _said(row)}


def _under_way(row: Row, number: int) -> Iterator[Row]:
    """A call from when it was issued to when the wait for it ended."""
    name = f"{_last(row['path'])} under way"
    same = {"cat": f"rank {row['rank']}", "id": number, "name": name, **_place(row)}
    yield {"ph": "b", "ts": row["issued"] * _US, **same, "args": _said(row)}
    yield {"ph": "e", "ts": (row["begin"] + row["length"]) * _US, **same}


def _counters(moments: pd.DataFrame, steps: pd.DataFrame) -> Iterator[Row]:
    """What steps say of themselves, at the moment when the last rank ended each."""
    whole = moments[moments["what"] == STEP]
    end = (whole["begin"] + whole["seconds"] * 1e9).groupby([whole[name] for name in KEY]).max()
    for row in steps.to_dict("records"):
        at = end.get(tuple(row[name] for name in KEY))
        if at is not None:
            yield from counted(row, int(row["segment"]), at * _US)


def _place(row: Row) -> Row:
    return {"pid": int(row["segment"]), "tid": int(row["rank"])}


def _last(path: str) -> str:
    return path.rpartition("/")[2]


def _said(row: Row) -> Row:
    told = {name: to_json(row[name]) for name in _TOLD}
    return {name: value for name, value in told.items() if value not in (None, "")}
