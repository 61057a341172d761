"""Large gradients, small batch: DDP beside its own `no_sync`, and ZeRO under a profiler.

Everything is measured while the hook is on, in turns, so that what disturbs one side of a
comparison disturbs the other.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile

import dsprof.hook
from benchmarks.exposed import alone_on_gloo
from tests.hook.jobs import job

WIDE, DEPTH, ROWS = 1024, 8, 2  # 34 MB of gradients
TURNS, BLOCK, WARM = 6, 4, 3


def wide() -> torch.nn.Module:
    return job.model(depth=DEPTH, width=WIDE)


def replicated(bucket: int = 25) -> tuple[Any, Any, Callable[[int], None]]:
    net = DistributedDataParallel(wide(), bucket_cap_mb=bucket, gradient_as_bucket_view=bucket > 25)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)

    def step(number: int) -> None:
        net(job.batch(number, WIDE)[:ROWS]).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)  # else steps that exchange nothing make them anew

    return net, optimizer, step


def engine(stage: int) -> tuple[Any, None, Callable[[int], None]]:
    made = job.engine(stage, 1, net=wide(), train_micro_batch_size_per_gpu=ROWS)

    def step(number: int) -> None:
        made.backward(made(job.batch(number, WIDE)[:ROWS]).square().mean())
        made.step()

    return made, None, step


def in_turns() -> dict[str, list[float]]:
    """Seconds of each step, exchanging gradients and not, and of the latter those on a core.

    The hook records both kinds.
    """
    net, optimizer, step = replicated(bucket=1000)
    found: dict[str, list[float]] = {"exchanging": [], "alone": [], "ran": []}
    with dsprof.hook.attach(net, optimizer=optimizer, out=job.out() / "turns"):
        for number in range(2 * TURNS * BLOCK):
            alone = number // BLOCK % 2 == 1
            with net.no_sync() if alone else contextlib.nullcontext():
                begin, before = time.perf_counter(), time.thread_time()
                step(number)
                found["alone" if alone else "exchanging"].append(time.perf_counter() - begin)
                if alone:
                    found["ran"].append(time.thread_time() - before)
    return found


def profiled(name: str, made: tuple[Any, Any, Callable[[int], None]]) -> list[float]:
    """Seconds of each step in which gloo worked and the training thread did not.

    The profiler keeps that only for a few steps, so it is switched on for each one.
    """
    target, optimizer, step = made
    for number in range(WARM):
        step(number)
    seconds = []
    with dsprof.hook.attach(target, optimizer=optimizer, out=job.out() / name):
        for number in range(TURNS):
            with profile(activities=[ProfilerActivity.CPU]) as window:
                step(number)
            seconds.append(alone_on_gloo(window))
    return seconds


def main() -> None:
    job.start_deepspeed()
    result: dict[str, Any] = {"turns": in_turns(), "ddp": profiled("ddp", replicated())}
    for stage in (1, 3):
        result[f"zero-{stage}"] = profiled(f"zero-{stage}", engine(stage))
    job.finish(result)
