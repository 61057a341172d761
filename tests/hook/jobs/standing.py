"""DDP in which one rank stands still until it ends both: what the other one waits in, it is in.

argv[2] says for what the other one waits: "gradients" or "buffers", of which rank 0 is the source.
With "data" it waits for the gradients of a rank whose loader does not come with the next batch,
with "first" for those of a rank that never comes out of its first forward.

A tenth of a second counts as a long time here, and a thread looks all the while.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

import dsprof.hook
import dsprof.hook.looking.standing
from tests.hook.jobs import job

STEPS, AT = 5, 3
processes: list[int] = [0, 0]


def stand_still() -> None:
    time.sleep(0.5)
    os.kill(processes[1 - job.rank()], signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


class Batches(IterableDataset[torch.Tensor]):  # type: ignore[misc]
    def __iter__(self) -> Iterator[torch.Tensor]:
        for step in range(STEPS):
            if step == AT and job.rank() and sys.argv[2] == "data":
                stand_still()
            yield job.batch(step)


def main() -> None:
    kind = sys.argv[2]
    os.environ["DSPROF_LOOKS"] = "0.005"
    vars(dsprof.hook.looking.standing).update(STILL=100_000_000, SOON=50_000_000)
    dist.init_process_group("gloo")
    dist.all_gather_object(processes, os.getpid())
    net = nn.Sequential(job.model(), nn.BatchNorm1d(1)) if kind == "buffers" else job.model()
    model = nn.parallel.DistributedDataParallel(net)
    if kind == "first" and job.rank():
        net.register_forward_pre_hook(lambda *_: stand_still())
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    dsprof.hook.attach(model, optimizer=optimizer, out=job.out() / "run")
    for step, batch in enumerate(DataLoader(Batches(), batch_size=None)):
        if step == AT and kind in ("gradients", "buffers") and job.rank() == (kind == "gradients"):
            stand_still()
        model(batch).square().mean().backward()
        optimizer.step()
