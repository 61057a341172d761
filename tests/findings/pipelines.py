"""Recordings of pipelines whose stages take as long as they are told to."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any

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

    def does(self, path: str, class_: str, until: int, step: int, began: int = 0) -> None:
        """Until that moment, since what it did before, or since it `began`."""
        *holder, name = path.split("/")
        inside = self.writer.name(holder[0], 0, "optimizer") if holder else 0
        phase = self.writer.name(name, inside, class_)
        self.writer.span(phase, began or self.at, until, step)
        self.at = until

    def ends(self, step: int) -> None:
        self.writer.step(step, self.began, self.at)
        self.began = self.at
        self.writer.flush()


def pipeline(
    pauses: Sequence[float], micro_batches: int = 4, forwards: Sequence[float] = (), **more: Any
) -> Run:
    """What is `recorded` of such a pipeline: made, read and judged once, whichever tests ask for
    it. They share it, and may not change it.
    """
    told = {name: tuple(one) if isinstance(one, list) else one for name, one in more.items()}
    return _read(tuple(pauses), micro_batches, tuple(forwards), **told)


_FOLDERS = TemporaryDirectory()


@cache
def _read(*how: Any, **more: Any) -> Run:
    folder = Path(mkdtemp(dir=_FOLDERS.name))
    recorded(folder, *how, **more)
    return load(folder)


def recorded(
    folder: Path,
    pauses: Sequence[float],
    micro_batches: int = 4,
    forwards: Sequence[float] = (),
    every: int = 1,
    updates: Sequence[float] = (),
    each: int = 1,
    since: int = 1,
    until: int = 30,
    loads: Sequence[float] = (),
    *,
    clips: bool = False,
) -> None:
    """A pipeline that runs one forward, then one backward; the ranks of a stage then reduce their
    gradients, all of them meet in the optimizer if it `clips`, update and meet, and each pauses
    that many ms before the next step, or before each one of `every`, from step `since` on, to step
    `until`. What it `loads` are that many ms per step of its forwards. A stage has `each` ranks,
    which follow each other.
    """
    world = len(pauses)
    ranks = [Stage(folder, rank, world, micro_batches, each) for rank in range(world)]
    lengths = [round(ms * MS) for ms in forwards or [FORWARD] * world]
    inputs = [round(ms * MS / micro_batches) for ms in loads or [0.0] * world]
    for step in range(1, 31):
        for one, pause in zip(ranks, pauses, strict=True):
            one.at += round(pause * MS) if since <= step <= until and step % every == 0 else 0
        for replica in range(each):
            mine = slice(replica, world, each)
            _train(ranks[mine], lengths[mine], inputs[mine], micro_batches, step)
        for stage in range(0, world, each):
            _meet(ranks[stage : stage + each], "reduce_grads", step)
        begins = [one.at for one in ranks]
        if clips:
            _meet(ranks, "step/all_reduce", step)
        for one, ms, begin in zip(ranks, updates or [UPDATE] * world, begins, strict=True):
            one.does("step", "optimizer", one.at + round(ms * MS), step, begin)
        _meet(ranks, "broadcast", step)
        for one in ranks:
            one.ends(step)
    for one in ranks:
        one.writer.close()


def _meet(ranks: Sequence[Stage], path: str, step: int) -> None:
    met = max(one.at for one in ranks)
    for one in ranks:
        one.does(path, "communication", met, step)


def _train(
    stages: Sequence[Stage],
    lengths: Sequence[int],
    inputs: Sequence[int],
    micro_batches: int,
    step: int,
) -> None:
    """What one replica computes, in the order of DeepSpeed's `TrainSchedule`; `lengths`, `inputs`:
    of a stage's forwards and what they load before, in ns.
    """
    many, ready = len(stages), [0] * len(stages)
    for slot in range(2 * (micro_batches + many - 1)):
        before = list(ready)
        for place, stage in enumerate(stages):
            forward = slot % 2 == place % 2
            micro = (slot - place if forward else slot + place + 1 - 2 * many) // 2
            if not 0 <= micro < micro_batches:
                continue
            needs = place - 1 if forward else place + 1
            if 0 <= needs < many:
                wait = "pipe_recv_input" if forward else "pipe_recv_grad"
                stage.does(wait, "wait", max(stage.at, before[needs]), step)
            if forward and inputs[place]:
                stage.does("batch_input", "data", stage.at + inputs[place], step)
            took = lengths[place] if forward else BACKWARD * MS
            stage.does("forward" if forward else "backward", "compute", stage.at + took, step)
            ready[place] = stage.at


def two_stages(
    folder: Path, carries: float, forwards: Sequence[Sequence[float]], micro_batches: int = 8
) -> Run:
    """Two stages whose messages take `carries` ms from when both are there; the forward of each
    micro-batch takes its turn's ms of those of its stage.
    """
    ranks = [Stage(folder, rank, 2, micro_batches) for rank in range(2)]
    for step in range(1, 31):
        orders = [_first(micro_batches), _last(micro_batches)]
        while any(orders):
            for stage, order, lengths in zip(ranks, orders, forwards, strict=True):
                while order and order[0][0] in "FB":
                    way, micro = order.pop(0)
                    ms = lengths[micro % len(lengths)] if way == "F" else BACKWARD
                    path = "forward" if way == "F" else "backward"
                    stage.does(path, "compute", stage.at + round(ms * MS), step)
            if any(orders):
                _meet_for(ranks, [order.pop(0)[0] for order in orders], carries, step)
        for stage in ranks:
            stage.ends(step)
    for stage in ranks:
        stage.writer.close()
    return load(folder)


def _first(micro_batches: int) -> list[tuple[str, int]]:
    order = [("F", 0), ("output", 0), ("F", 1)]
    for micro in range(micro_batches):
        order += [("grad", micro), ("output", micro + 1), ("B", micro), ("F", micro + 2)]
    return [(way, micro) for way, micro in order if micro < micro_batches]


def _last(micro_batches: int) -> list[tuple[str, int]]:
    ways = ("output", "F", "B", "grad")
    return [(way, micro) for micro in range(micro_batches) for way in ways]


def _meet_for(ranks: Sequence[Stage], ways: Sequence[str], ms: float, step: int) -> None:
    """One of two ranks sends what the other receives."""
    (way,) = set(ways)
    over = max(stage.at for stage in ranks) + round(ms * MS)
    phases = ("pipe_send_output", "pipe_recv_input")
    for stage, phase in zip(ranks, phases if way == "output" else _OF_GRADIENTS, strict=True):
        operation = "send" if "send" in phase else "recv"
        name = stage.writer.name(operation, stage.writer.name(phase, 0, "wait"))
        stage.writer.collective(name, 0, stage.at, stage.at, over - stage.at, step, 0, 1 << 14)
        stage.does(phase, "wait", over, step)


_OF_GRADIENTS = ("pipe_recv_grad", "pipe_send_grad")
