"""Which folder of DeepSpeed's csv monitor is of the job that the logs beside it tell of.

The monitor writes no time: what it has in common with a log of its job are the batch size and
the step at which a launch ends. A job has one folder.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import PurePath
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dsprof.grammar import Grammar
from dsprof.logs.sources.csv_monitor import read_scalars

_BATCH = "train_batch_size"


class Monitors(NamedTuple):
    """The monitor's files by job.

    Attributes:
        table: the events of the folder that is read; none if it is of another job.
        files: its files.
        others: the files of each other folder.
        why: what shows that these are of other jobs; "" if there are none.
    """

    table: pa.Table
    files: tuple[str, ...]
    others: tuple[tuple[str, ...], ...]
    why: str


def monitors_of(
    names: Sequence[str], logs: pa.Table, grammar: Grammar, first_record: int, *, counted: bool
) -> Monitors:
    """The folder that is of the job of `logs`, the one with most rows where several may be.

    Args:
        names: the monitor's files.
        logs: what the logs tell, if there are any.
        grammar, first_record: as `read_scalars` takes them.
        counted: steps of `logs` are no numbers that it prints.
    """
    folders: defaultdict[PurePath, list[str]] = defaultdict(list)
    for name in names:
        folders[PurePath(name).parent].append(name)
    tables = {where: read_scalars(own, grammar, first_record) for where, own in folders.items()}
    unlike = {where: _unlike(table, logs, counted=counted) for where, table in tables.items()}
    may = [where for where, why in unlike.items() if not why]
    read = max(may, key=lambda where: len(tables[where]), default=None)
    others = tuple(tuple(own) for where, own in folders.items() if where != read)
    why = next(filter(None, unlike.values()), "a job has one folder of its csv monitor")
    return Monitors(
        logs.slice(0, 0) if read is None else _of_launch(tables[read], logs, counted=counted),
        () if read is None else tuple(folders[read]),
        others,
        why if others else "",
    )


def _unlike(monitor: pa.Table, logs: pa.Table, *, counted: bool) -> str:
    """What shows that a monitor is of another job than the logs; "" if nothing does."""
    here, there = _batches(monitor), _batches(logs)
    if here and there and here.isdisjoint(there):
        return f"{_BATCH} is {max(there):,.0f} in the log and {max(here):,.0f} in the csv monitor"
    marked, steps = _ends(monitor), np.unique(_steps(logs))
    if counted or not len(marked) or not len(steps):
        return ""
    ends = _ends(logs)
    if (np.abs(np.subtract.outer(ends, marked)) <= _every(steps)).any():
        return ""
    return f"the log ends at step {ends[-1]:,}, the csv monitor at step {marked[-1]:,}"


def _of_launch(monitor: pa.Table, logs: pa.Table, *, counted: bool) -> pa.Table:
    """Launches append to the files: beside a log of one launch it is the last that ends there."""
    ends, marked, steps = _ends(logs), _ends(monitor), np.unique(_steps(logs))
    if counted or len(ends) != 1 or len(marked) < 2:
        return monitor
    which = int(np.flatnonzero(np.abs(marked - ends[0]) <= _every(steps))[-1])
    launches = monitor["segment"].to_numpy()
    kept = monitor.filter(pa.array((launches == which) | monitor["step"].is_null().to_numpy()))
    own = pc.min(logs.filter(logs["step"].is_valid())["segment"])
    place = kept.schema.get_field_index("segment")
    return kept.set_column(place, kept.schema.field(place), pa.repeat(own, len(kept)))


def _every(steps: np.ndarray) -> int:
    """How far apart marked steps are."""
    return int(np.median(np.diff(steps, prepend=0)))


def _batches(events: pa.Table) -> set[float]:
    told = pc.equal(events["name"].cast(pa.string()), _BATCH)
    return set(events.filter(told)["value"].drop_null().to_pylist())


def _steps(events: pa.Table) -> np.ndarray:
    found: np.ndarray = events["step"].drop_null().to_numpy()
    return found


def _ends(events: pa.Table) -> np.ndarray:
    """The highest step of each launch."""
    last = events.group_by("segment").aggregate([("step", "max")]).sort_by("segment")
    found: np.ndarray = last["step_max"].drop_null().to_numpy()
    return found
