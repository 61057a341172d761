"""A recording as events of Chrome's trace format: each phase and call at the moment when it was."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd

from dsprof.export.trace import Lane, counted, engines_of, named, place
from dsprof.run.recorded.moments import CALL, STEP, UNKNOWN, ends
from dsprof.run.steps.words import own_name
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
    were held up by. Of several engines, whose steps overlap, each has a lane of its own, as have
    calls that were issued earlier than waited for. Behind the last step come the phases of the one
    that did not end.

    Times are microseconds since the first of `steps` began, by the first host's clock.
    """
    zero: int | None = None
    lanes: set[Lane] = set()
    numbers, engines = count(1), engines_of(steps)
    for some in (*_portions(run, steps), _not_ended(run, steps)):
        moments = run.moments(some)
        moments = moments[moments["begin"].ne(UNKNOWN)]
        if moments.empty:
            continue
        zero = int(moments["begin"].min()) if zero is None else zero
        told = moments.assign(begin=moments["begin"] - zero, issued=moments["issued"] - zero)
        for key, rows in told.groupby(["segment", "rank", "engine"]):
            segment, rank, engine = (int(number) for number in np.asarray(key))
            lane = Lane(segment, rank, engine, engines)
            lanes.add(lane)
            yield from _lane(rows, lane, numbers)
        yield from _counters(told, some, engines)
    for one in sorted(lanes):
        yield from named(one)


def _portions(run: Run, steps: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """As many steps at a time as fit into memory."""
    each = (len(run.phases) + len(run.comm)) // max(1, len(run.steps))
    size = max(1, _AT_ONCE // max(1, each))
    return (steps.iloc[first : first + size] for first in range(0, len(steps), size))


def _not_ended(run: Run, steps: pd.DataFrame) -> pd.DataFrame:
    """The step behind the last one of each launch and engine, if that is one of `steps`: only
    phases of it are recorded.
    """
    last = run.steps[[*KEY]].groupby(["segment", "engine"], as_index=False).max()
    last = last.merge(steps[[*KEY]])
    return last.assign(step=last["step"] + 1)


def _lane(rows: pd.DataFrame, lane: Lane, numbers: Iterator[int]) -> Iterator[Row]:
    """Slices of one lane, each within the one that holds it, as the format wants it."""
    inside = np.where(rows["what"] == STEP, 0, rows["path"].map(lambda path: path.count("/")) + 1)
    rows = rows.assign(end=ends(rows), inside=inside)
    held: list[float] = []
    for row in rows.sort_values(["begin", "inside"], kind="stable").to_dict("records"):
        if row["what"] == CALL and row["issued"] < row["begin"]:
            yield from _under_way(row, lane, next(numbers))
        while held and held[-1] <= row["begin"]:
            held.pop()
        end = min([row["end"], *held[-1:]])
        if end > row["begin"]:
            held.append(end)
            yield _slice(row, lane, end)


def _slice(row: Row, lane: Lane, end: float) -> Row:
    name = f"step {row['step']}" if row["what"] == STEP else own_name(row["path"])
    times = {"ts": row["begin"] * _US, "dur": (end - row["begin"]) * _US}
    return {"ph": "X", "name": name, **place(lane), **times, "args": _said(row)}


def _under_way(row: Row, lane: Lane, number: int) -> Iterator[Row]:
    """A call from when it was issued to when the wait for it ended."""
    name = f"{own_name(row['path'])} under way"
    same = {"cat": lane.name, "id": number, "name": name, **place(lane)}
    yield {"ph": "b", "ts": row["issued"] * _US, **same, "args": _said(row)}
    yield {"ph": "e", "ts": row["end"] * _US, **same}


def _counters(moments: pd.DataFrame, steps: pd.DataFrame, engines: int) -> Iterator[Row]:
    """What steps say of themselves, at the moment when the last rank ended each."""
    whole = moments[moments["what"] == STEP]
    end = (whole["begin"] + whole["seconds"] * 1e9).groupby([whole[name] for name in KEY]).max()
    for row in steps.to_dict("records"):
        at = end.get(tuple(row[name] for name in KEY))
        if at is not None:
            yield from counted(row, engines, at * _US)


def _said(row: Row) -> Row:
    told = {name: to_json(row[name]) for name in _TOLD}
    return {name: value for name, value in told.items() if value not in (None, "")}
