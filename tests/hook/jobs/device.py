"""ZeRO 1 and 3 with the host in the place of a device: events are readings of its clock.

On gloo a wait is over when the data is there, so what the marks measure is what the host
measures: everything that runs on a GPU but CUDA itself runs here. Of stage 3 the device does all
of it later than the host, by more than a step.
"""

from __future__ import annotations

from time import perf_counter
from typing import Any

import dsprof.hook
from dsprof.hook.on_gpu import gpu
from dsprof.hook.on_gpu.cuda import Cuda, Device
from tests.hook.jobs import job

STEPS = 4
BEHIND = {1: 0.0, 3: 0.05}  # seconds


class Event:
    behind = 0.0

    def record(self, _: Any) -> None:
        self.at = perf_counter() + Event.behind

    def query(self) -> bool:
        return perf_counter() >= self.at

    def elapsed_time(self, later: Event) -> float:
        return (later.at - self.at) * 1e3


CUDA = Cuda(Event, Event.record, lambda: False, lambda: 0, lambda: None)
HOST = Device(0, "GPU-host", 1 << 30, "host", CUDA)


def host(_: Any = None) -> Device:
    return HOST


def train(engine: Any) -> list[str]:
    losses = []
    for micro in range(2 * STEPS):
        loss = engine(job.batch(micro)).square().mean()
        engine.backward(loss)
        engine.step()
        losses.append(loss.item().hex())
    return losses


def main() -> None:
    job.start_deepspeed()
    result = {}
    for stage in (1, 3):
        plain = train(job.engine(stage, 2))
        engine = job.engine(stage, 2)
        vars(gpu)["device"] = host
        Event.behind = BEHIND[stage]
        before = job.issued()
        with dsprof.hook.attach(engine, out=job.out() / f"stage-{stage}"):
            watched = train(engine)
            issued = job.since(before)
        result[str(stage)] = {"plain": plain, "watched": watched, "issued": sum(issued.values())}
    job.finish(result)
