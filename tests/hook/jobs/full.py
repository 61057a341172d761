"""A model alone, on a disk that has room for argv[2] bytes of its recording.

A limit on the size of a file stands for the disk: it cuts a write in the middle, too.
"""

from __future__ import annotations

import os
import resource
import sys

import torch

import dsprof.hook
from tests.hook.jobs import job

STEPS = 400


def main() -> None:
    net = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    with (job.out() / "stderr").open("w") as said:
        os.dup2(said.fileno(), 2)  # to the end of the process, at which the hook may say something
    most = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), most))
    dsprof.hook.attach(net, optimizer=optimizer, out=job.out() / "run")
    for _ in range(STEPS):
        net(torch.ones(2)).sum().backward()
        optimizer.step()
    job.finish({})
