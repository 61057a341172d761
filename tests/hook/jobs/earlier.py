"""Engines that were made, and have trained, before `attach()` begins to look for any."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import deepspeed

import dsprof.hook
from tests.hook.jobs import job, pipeline

STEPS, MICROS = 4, 2


class Mine(deepspeed.DeepSpeedEngine):  # type: ignore[misc]  # where DeepSpeed is not installed
    def step(self, *args: Any, **kwargs: Any) -> None:
        super().step(*args, **kwargs)


def micro_batch(engine: Any, number: int) -> str:
    loss = engine(job.batch(number)).square().mean()
    engine.backward(loss)
    engine.step()
    return str(loss.item().hex())


def zero(attach: Callable[[], Any]) -> list[str]:
    """Asked for within a step, of which the first micro-batch has ended."""
    engine, losses = job.engine(1, MICROS), []
    for number in range(STEPS * MICROS):
        if number == 1:
            attach()
        losses.append(micro_batch(engine, number))
    return losses


def two(attach: Callable[[], Any]) -> list[str]:
    """Of a class of the script's own; the one made second steps first."""
    engines = [job.engine(1, 1), job.engine(3, 1)]
    engines[0].__class__ = Mine
    attach()
    return [micro_batch(engine, step) for step in range(STEPS) for engine in engines[::-1]]


def pipe(attach: Callable[[], Any]) -> list[str]:
    engine = pipeline.engine()
    attach()
    return pipeline.train(engine)


def named(attach: Callable[[], Any]) -> list[str]:
    """One that is asked for by name afterwards, and then left, is left."""
    engine = job.engine(1, 1)
    handle = attach()
    mine = dsprof.hook.attach(engine, out=handle.out) if handle else None
    losses = [micro_batch(engine, 0), micro_batch(engine, 1)]
    if mine:
        mine.detach()
    return [*losses, micro_batch(engine, 2)]


def ended(attach: Callable[[], Any]) -> list[str]:
    """The search is over before the engine steps."""
    engine = job.engine(1, 1)
    handle = attach()
    losses = [micro_batch(engine, 0), micro_batch(engine, 1)]
    if handle:
        handle.detach()
    return [*losses, micro_batch(engine, 2)]


WAYS = {
    "zero": zero,
    "two": two,
    "named": named,
    "ended": ended,
    "pipe": pipe,
}  # a pipeline leaves its grid behind


def watched(name: str) -> list[str]:
    handles: list[Any] = []

    def attach() -> Any:
        handles.append(dsprof.hook.attach(out=job.out() / name))
        return handles[0]

    losses = WAYS[name](attach)
    handles[0].detach()
    return losses


def main() -> None:
    job.start_deepspeed()
    patched = deepspeed.DeepSpeedEngine.step, deepspeed.PipelineEngine.train_batch
    told = {name: [way(lambda: None), watched(name)] for name, way in WAYS.items()}
    left = deepspeed.DeepSpeedEngine.step, deepspeed.PipelineEngine.train_batch
    job.finish(told | {"restored": left == patched})
