"""DDP in which one rank stands still until it ends both: what the other one waits in, it is in.

argv[2] says for what the other one waits: "gradients" or "buffers", of which rank 0 is the source.
"""

from __future__ import annotations

import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch import nn

import dsprof.hook
from tests.hook.jobs import job

STEPS, AT = 5, 3


def main() -> None:
    kind = sys.argv[2]
    dist.init_process_group("gloo")
    processes: list[int] = [0, 0]
    dist.all_gather_object(processes, os.getpid())
    net = nn.Sequential(job.model(), nn.BatchNorm1d(1)) if kind == "buffers" else job.model()
    model = nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    dsprof.hook.attach(model, optimizer=optimizer, out=job.out() / "run")
    for step in range(STEPS):
        if step == AT and job.rank() == (kind == "gradients"):
            time.sleep(0.5)
            os.kill(processes[1 - job.rank()], signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
        model(job.batch(step)).square().mean().backward()
        optimizer.step()
