"""Recordings of pipelines whose stages take as long as they are told to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dsprof import load
from dsprof.recording import Writer
from dsprof.run import Run
from tests.recording.recorded import MS, header

FORWARD, BACKWARD, UPDATE = 4, 8, 2  # ms, of each micro-batch or step


class Stage:
    """One rank that writes what it does: a stage, or one of its replicas."""

    def __init__(
        self, folder: Path, rank: int, world: int, micro_batches: int, each: int = 1
    ) -> None:
        self.writer = Writer.create(folder, header(rank, world=world))
        self.writer.config("pipeline_parallel_size", world // each)
        self.writer.config("gradient_accumulation_steps", micro_batches)
        self.at = self.began = MS

    def does(self, name: str, class_: str, until: int, step: int) -> None:
        phase = self.writer.name(name, 0, class_)
        self.writer.span(phase, self.at, until, step)
        self.at = until

    def ends(self, step: int) -> None:
        self.writer.step(step, self.began, self.at)
        self.began = self.at
        self.writer.flush()


def pipeline(
    folder: Path,
    pauses: Sequence[float],
    micro_batches: int = 4,
    forwards: Sequence[float] = (),
    every: int = 1,
    updates: Sequence[float] = (),
    each: int = 1,
    since: int = 1,
    loads: Sequence[float] = (),
) -> Run:
    """A pipeline that does all forwards, then all backwards; its ranks then update and meet, and
    each pauses that many ms before the next step, or before each one of `every`, from step `since`
    on, and then waits for its input for that many ms, if it `loads` any. A stage has `each` ranks,
    which follow each other.
    """
    world = len(pauses)
    ranks = [Stage(folder, rank, world, micro_batches, each) for rank in range(world)]
    lengths = [round(ms * MS) for ms in forwards or [FORWARD] * world]
    for step in range(1, 31):
        for one, pause in zip(ranks, pauses, strict=True):
            one.at += round(pause * MS) if step >= since and step % every == 0 else 0
        for one, ms in zip(ranks, loads, strict=False):
            one.does("batch_input", "data", one.at + round(ms * MS), step)
        for replica in range(each):
            _train(ranks[replica::each], lengths[replica::each], micro_batches, step)
        for one, ms in zip(ranks, updates or [UPDATE] * world, strict=True):
            one.does("step", "optimizer", one.at + round(ms * MS), step)
        met = max(one.at for one in ranks)
        for one in ranks:
            one.does("broadcast", "communication", met, step)
            one.ends(step)
    for one in ranks:
        one.writer.close()
    return load(folder)


def _train(stages: Sequence[Stage], lengths: Sequence[int], micro_batches: int, step: int) -> None:
    """The forwards and backwards of one replica; `lengths`: of a stage's forwards, in ns."""
    for name, wait, own, order in (
        ("forward", "pipe_recv_input", lengths, stages),
        ("backward", "pipe_recv_grad", [BACKWARD * MS] * len(stages), stages[::-1]),
    ):
        ready = [[0] * micro_batches for _ in range(len(stages) + 1)]
        for place, stage in enumerate(order):
            for micro in range(micro_batches):
                if place:
                    stage.does(wait, "wait", max(stage.at, ready[place][micro]), step)
                stage.does(name, "compute", stage.at + own[place], step)
                ready[place + 1][micro] = stage.at
