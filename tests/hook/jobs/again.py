"""DDP on two ranks, recorded in two stretches of one training: argv[2] says how steps count."""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import dsprof.hook
from tests.hook.jobs import job

STRETCHES = ((1, 4), (8, 12))  # first and last steps


def main() -> None:
    dist.init_process_group("gloo")
    net = DistributedDataParallel(job.model())
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)

    def train(first: int, last: int) -> None:
        for step in range(first, last + 1):
            net(job.batch(step)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()

    for first, last in STRETCHES:
        step = first if sys.argv[2] == "on" else 1
        with dsprof.hook.attach(net, optimizer=optimizer, step=step, out=job.out() / "run"):
            train(first, last)
        train(last, last + 2)  # of which nothing is recorded
    job.finish({})
