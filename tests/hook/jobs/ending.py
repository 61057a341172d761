"""A process that trains three steps alone and ends: argv[2] says who trains, argv[3] what ends it.

"alone" is the process itself, as is "with", which ends within the `with` block of its recording;
else it is a child that multiprocessing starts in that way.
"""

from __future__ import annotations

import sys
from contextlib import nullcontext, suppress

import torch
import torch.multiprocessing as mp

import dsprof.hook
from tests.hook.jobs import job

STEPS = 3


def train(_: int, end: str, *, inside: bool = False) -> None:
    net = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    handle = dsprof.hook.attach(net, optimizer=optimizer, out=job.out() / "run")
    with handle if inside else nullcontext():
        for _step in range(STEPS):
            net(torch.ones(2)).sum().backward()
            optimizer.step()
        with suppress(RuntimeError):
            raise RuntimeError("somebody caught this")
        exec(end)  # what only a test gives


def main() -> None:
    way, end = sys.argv[2:]
    if way in ("alone", "with"):
        train(0, end, inside=way == "with")
    else:
        mp.start_processes(train, args=(end,), nprocs=1, start_method=way)


if __name__ == "__main__":
    main()
