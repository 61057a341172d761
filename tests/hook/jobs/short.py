"""20 steps under DDP on two ranks: argv[2] is "late", "noise" or "leak"."""

from __future__ import annotations

import os
import random
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import dsprof.hook
from tests.hook.jobs import job

STEPS = {"late": 20, "noise": 20, "leak": 40}
WORK, LATE, NOISE, LEAK = 0.05, 0.015, 0.25, 50_000_000


class Working(nn.Module):  # type: ignore[misc]
    """Its forward takes as long as it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.net, self.seconds = job.model(), 0.0

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        time.sleep(self.seconds)
        return self.net(batch)


def main() -> None:
    kind = sys.argv[2]
    dist.init_process_group("gloo")
    chance = random.Random(dist.get_rank() + 1)
    work, kept = Working(), []
    net = DistributedDataParallel(work)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    with dsprof.hook.attach(net, optimizer=optimizer, out=job.out() / "run"):
        begin = time.perf_counter()
        for step in range(STEPS[kind]):
            work.seconds = WORK
            if kind == "late":
                work.seconds += LATE * dist.get_rank()
            if kind == "noise":
                work.seconds *= 1 + NOISE * chance.uniform(-1, 1)
            net(job.batch(step)).square().mean().backward()
            optimizer.step()
            if kind == "leak" and dist.get_rank():
                kept.append(bytearray(os.urandom(1) * LEAK))
        took = time.perf_counter() - begin
    settled = STEPS[kind] - 1  # the first step is none of those that are judged
    job.finish({"kept": len(kept), "beyond": (took - WORK * STEPS[kind]) / settled})
