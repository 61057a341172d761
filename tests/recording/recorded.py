"""Recordings that tests write, and the steps that are in them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from dsprof import recording
from dsprof.recording import Writer

if TYPE_CHECKING:  # a process that only writes starts without them
    import pandas as pd
    import pyarrow as pa

MS = 1_000_000
SPANS = 6  # of one step of `write_steps`
#: Seconds per class of a step of `write_steps`, in the order of `events.Class`.
CLASSES = (0.050, 0.020, 0.0, 0.010, 0.0, 0.0, 0.0, 0.020)


def header(rank: int = 0, **more: Any) -> dict[str, Any]:
    return {"rank": rank, "host": "worker-1", "world": 2} | more


def write_steps(writer: Writer, first: int, last: int) -> None:
    """Steps of 100 ms: `SPANS` spans, a collective inside of backward, a loss."""
    forward = writer.name("forward", 0, "compute")
    backward = writer.name("backward", 0, "compute")
    optimizer = writer.name("step", 0, "optimizer")
    reduce = writer.name("all_reduce", backward)
    group = writer.name("world ranks 0-1")
    loss = writer.name("loss")
    for step in range(first, last + 1):
        at = step * 100 * MS
        for micro in range(2):
            writer.span(forward, at, at + 10 * MS, step, micro)
            writer.span(backward, at + 10 * MS, at + 35 * MS, step, micro)
            writer.collective(
                reduce, group, at + 12 * MS, at + 20 * MS, 10 * MS, step, micro, 4096, 1, 2 * step
            )
            at += 40 * MS
        writer.span(optimizer, at, at + 6 * MS, step)
        writer.span(optimizer, at + 6 * MS, at + 10 * MS, step)
        writer.metric(loss, 1 / step, step)
        writer.step(step, step * 100 * MS, (step + 1) * 100 * MS, CLASSES, 2)
        writer.flush()


def record(folder: Path, last: int, rank: int = 0, **more: Any) -> Path:
    """A whole recording of the steps 1 to `last`; its file."""
    writer = Writer.create(folder, header(rank, **more))
    write_steps(writer, 1, last)
    writer.close()
    return writer.path


def frame(table: pa.Table) -> pd.DataFrame:
    found: pd.DataFrame = table.to_pandas()
    return found


def events(*paths: Path) -> pd.DataFrame:
    return frame(recording.read_folder(*paths))


def step_numbers(found: pd.DataFrame) -> list[int]:
    """Steps that ended, in the order of the table."""
    return [int(step) for step in found.loc[found["name"] == "step_seconds", "step"]]


def follow(recordings: recording.Recordings) -> pd.DataFrame:
    return frame(recordings.follow())
