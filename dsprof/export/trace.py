"""A log as events of Chrome's trace format, which ui.perfetto.dev shows.

The format: "Trace Event Format", Google, 2016. Times are microseconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pandas as pd

from dsprof.run.recorded.moments import UNKNOWN
from dsprof.text.document import to_json

if TYPE_CHECKING:
    from dsprof.run import Run

Row = dict[Any, Any]

_COUNTERS: Final = ("loss", "samples_per_second", "tokens_per_second", "grad_norm")
_STEPS: Final = -2  #: in place of a rank, of the lane of steps


class Lane(NamedTuple):
    """Where the slices of one engine of a rank stand; `engines`: how many the run has."""

    segment: int
    rank: int
    engine: int
    engines: int

    @property
    def number(self) -> int:
        return (self.rank - _STEPS) * self.engines + self.engine

    @property
    def name(self) -> str:
        alone = {_STEPS: "optimizer steps", UNKNOWN: "rank unknown"}
        of = f", engine {self.engine}" if self.engines > 1 else ""
        return alone.get(self.rank, f"rank {self.rank}") + of


def engines_of(steps: pd.DataFrame) -> int:
    return 1 + int(steps["engine"].max()) if len(steps) else 1


def trace(run: Run, steps: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """A process a launch; in it a lane for `steps` and one for their phases of each rank. Several
    engines, whose steps overlap, have lanes of their own.
    """
    drawn: list[Row] = timed(steps).to_dict("records")
    starts = {(row["segment"], row["engine"], row["step"]): row["begin"] for row in drawn}
    lanes: set[Lane] = set()
    engines = engines_of(steps)
    for row in drawn:
        lane = Lane(int(row["segment"]), _STEPS, int(row["engine"]), engines)
        lanes.add(lane)
        yield from _step(row, lane)
    by_rank = run.phases.groupby(["segment", "engine", "step", "rank"], dropna=False)
    for key, rows in by_rank:
        segment, engine, step, rank = (to_json(part) for part in key)
        begin = starts.get((segment, engine, step))
        if begin is not None:
            lane = Lane(segment, UNKNOWN if rank is None else rank, engine, engines)
            lanes.add(lane)
            yield from _phases(rows.to_dict("records"), lane, begin)
    for lane in sorted(lanes):
        yield from named(lane)


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


def _step(row: Row, lane: Lane) -> Iterator[dict[str, Any]]:
    told = {name: to_json(row[name]) for name in ("loss", "bound", "source", "line")}
    yield _slice(f"step {row['step']}", lane, (row["begin"], row["seconds"]), told)
    yield from counted(row, lane.engines, (row["begin"] + row["seconds"]) * 1e6)


def counted(row: Row, engines: int, at: float) -> Iterator[dict[str, Any]]:
    """What a step says of itself, at its end, in microseconds."""
    of = f" of engine {row['engine']}" if engines > 1 else ""
    where = {"pid": int(row["segment"]), "ts": at}
    for name in _COUNTERS:
        value = to_json(row.get(name))
        if value is not None:
            yield {"ph": "C", "name": f"{name}{of}", **where, "args": {name: value}}


def _phases(rows: list[Row], lane: Lane, begin: float) -> Iterator[dict[str, Any]]:
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
    name: str, lane: Lane, span: tuple[float, float], told: dict[str, Any]
) -> dict[str, Any]:
    begin, seconds = span
    times = {"ts": begin * 1e6, "dur": seconds * 1e6}
    return {"ph": "X", "name": name, **place(lane), **times, "args": told}


def place(lane: Lane) -> Row:
    return {"pid": lane.segment, "tid": lane.number}


def named(lane: Lane) -> Iterator[dict[str, Any]]:
    """The names of a lane and of its launch."""
    for kind, said in (("process_name", f"launch {lane.segment + 1}"), ("thread_name", lane.name)):
        yield {"ph": "M", "name": kind, **place(lane), "args": {"name": said}}
