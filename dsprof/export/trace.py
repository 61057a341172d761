"""A log as events of Chrome's trace format, which ui.perfetto.dev shows.

The format: "Trace Event Format", Google, 2016. Times are microseconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import pandas as pd

from dsprof.text.document import to_json

if TYPE_CHECKING:
    from dsprof.run import Run

Row = dict[Any, Any]

_COUNTERS: Final = ("loss", "samples_per_second", "tokens_per_second", "grad_norm")
#: Lanes of the steps and of phases whose rank is unknown; rank r has lane r + `_RANKS`.
_STEPS, _UNKNOWN, _RANKS = range(3)


def trace(run: Run, steps: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """A process a launch; in it a lane for `steps` and one for their phases of each rank."""
    drawn: list[Row] = timed(steps).to_dict("records")
    starts = {(row["segment"], row["engine"], row["step"]): row["begin"] for row in drawn}
    lanes: set[tuple[int, int]] = set()
    for row in drawn:
        lanes.add((int(row["segment"]), _STEPS))
        yield from _step(row)
    by_rank = run.phases.groupby(["segment", "engine", "step", "rank"], dropna=False)
    for key, rows in by_rank:
        segment, engine, step, rank = (to_json(part) for part in key)
        begin = starts.get((segment, engine, step))
        if begin is not None:
            lane = (segment, _UNKNOWN if rank is None else rank + _RANKS)
            lanes.add(lane)
            yield from _phases(rows.to_dict("records"), lane, begin)
    alone = {_STEPS: "optimizer steps", _UNKNOWN: "rank unknown"}
    for segment, number in sorted(lanes):
        yield from named(segment, number, alone.get(number, f"rank {number - _RANKS}"))


def timed(steps: pd.DataFrame) -> pd.DataFrame:
    """Steps with a duration, and the second at which each begins (`begin`).

    A step ends where its line is stamped; unless all are stamped, steps follow each other.
    """
    known = steps[steps["seconds"].notna()]
    if len(known) and known["at"].notna().all():
        zero = pd.Timestamp(0, tz=known["at"].dt.tz)
        end = (known["at"] - zero).dt.total_seconds()
    else:
        end = known["seconds"].cumsum()
    return known.assign(begin=(end - known["seconds"]).to_numpy())


def _step(row: Row) -> Iterator[dict[str, Any]]:
    told = {name: to_json(row[name]) for name in ("loss", "bound", "source", "line")}
    lane = int(row["segment"]), _STEPS
    yield _slice(f"step {row['step']}", lane, (row["begin"], row["seconds"]), told)
    yield from counted(row, lane[0], (row["begin"] + row["seconds"]) * 1e6)


def counted(row: Row, segment: int, at: float) -> Iterator[dict[str, Any]]:
    """What a step says of itself, at its end, in microseconds."""
    for name in _COUNTERS:
        value = to_json(row.get(name))
        if value is not None:
            yield {"ph": "C", "name": name, "pid": segment, "ts": at, "args": {name: value}}


def _phases(rows: list[Row], lane: tuple[int, int], begin: float) -> Iterator[dict[str, Any]]:
    """Children inside their parent, siblings one after another."""
    names = {row["name"] for row in rows}
    inside: dict[Any, list[Row]] = {}
    for row in rows:
        inside.setdefault(row["parent"] if row["parent"] in names else None, []).append(row)
    waiting: list[tuple[Any, float]] = [(None, begin)]
    while waiting:
        parent, at = waiting.pop()
        for row in inside.get(parent, []):
            told = {name: to_json(row[name]) for name in ("class", "source", "line")}
            yield _slice(str(row["name"]), lane, (at, row["seconds"]), told)
            waiting.append((row["name"], at))
            at += row["seconds"]


def _slice(
    name: str, lane: tuple[int, int], span: tuple[float, float], told: dict[str, Any]
) -> dict[str, Any]:
    begin, seconds = span
    where = {"pid": lane[0], "tid": lane[1], "ts": begin * 1e6, "dur": seconds * 1e6}
    return {"ph": "X", "name": name, **where, "args": told}


def named(segment: int, lane: int, name: str) -> Iterator[dict[str, Any]]:
    """The names of a lane and of its launch."""
    for kind, said in (("process_name", f"launch {segment + 1}"), ("thread_name", name)):
        yield {"ph": "M", "name": kind, "pid": segment, "tid": lane, "args": {"name": said}}
