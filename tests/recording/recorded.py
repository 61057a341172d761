"""Recordings that tests write, and the steps that are in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dsprof import recording
from dsprof.recording import ON_DEVICE, Unit, Writer

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


#: Phases of a step of `record_pauses`: their classes, and how many ms each takes.
_CLASS = {
    "data": "data", "forward": "compute", "backward": "compute", "step": "optimizer",
    "inspection": "other",
}  # fmt: skip
LENGTHS = {"data": 2, "forward": 10, "backward": 20, "step": 6}


def record_pauses(
    folder: Path,
    *pauses: Mapping[str, int],
    inner: int = 0,
    before: int = 0,
    lengths: Mapping[str, int] = LENGTHS,
    steps: int = 30,
    ahead: int = 0,
    meeting: int = 0,
    looks: Sequence[Mapping[str, tuple[int, str]]] = (),
    **told: str | int,
) -> Path:
    """Recordings whose ranks pause that many ms after their phases and then meet; a rank a mapping.

    Args:
        lengths: ms of each phase.
        inner: ms of `optimizer_step`.
        before: ms of step before it.
        ahead: ms by which the host is ahead of a GPU within a step.
        meeting: ms that the call takes in which they meet, whoever is late.
        looks: at places such as "step/looks_after", how many and what stack; a rank a mapping.
        told: configuration rows; with phases on a GPU all of this is of the GPU.
    """
    on_gpu = told.get("phases_on") == "gpu"
    whole = max(sum(one.values()) for one in pauses) + sum(lengths.values())
    for rank, pause in enumerate(pauses):
        writer = Writer.create(folder, header(rank, world=len(pauses)))
        for name, value in told.items():
            writer.config(name, value)
        at, began = MS, MS
        for step in range(1, steps + 1):
            for name, length in lengths.items():
                phase = writer.name(name, 0, _CLASS[name])
                if name == "step" and inner:
                    update = writer.name("optimizer_step", phase, "optimizer")
                    writer.span(update, at + before * MS, at + (before + inner) * MS, step)
                end = at + length * MS
                if on_gpu:
                    host = max(began, at - ahead * MS)
                    writer.span(phase, host, host + 1, step, -1, end - at, gpu_begin_ns=at)
                else:
                    writer.span(phase, at, end, step)
                at = end
                if name != "step":
                    at += pause.get(name, 0) * MS
            waited = (whole - sum(pause.values()) - sum(lengths.values()) + meeting) * MS
            meet = writer.name("all_reduce")
            if waited:
                flags = ON_DEVICE if on_gpu else 0
                writer.collective(meet, 0, at, at, waited, step, -1, 1 << 20, flags=flags)
            at += waited
            writer.step(step, began, at, [0.0] * len(CLASSES), 1)
            began = at
            at += pause.get("step", 0) * MS
            writer.flush()
        for place, (count, stack) in looks[rank].items() if looks else ():
            of, _, kind = place.rpartition("/")
            seen = writer.name(kind, writer.name(of))
            what = writer.name(stack) if stack else 0
            writer.metric(seen, count, unit=int(Unit.COUNT), at_ns=at, text=what)
        writer.close()
    return folder


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
