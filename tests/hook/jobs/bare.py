"""Training that knows nothing of dsprof: argv[2] says with what."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from tests.hook.jobs import job

STEPS, DIES = 4, 2


def join() -> None:
    """As scripts do under `srun`, which has its own names for ranks; else as torch does."""
    rank = os.environ.get("SLURM_PROCID")
    if rank is None or "RANK" in os.environ:
        dist.init_process_group("gloo")
    else:
        size = int(os.environ["SLURM_NTASKS"])
        dist.init_process_group("gloo", rank=int(rank), world_size=size)


def models(kind: str) -> None:
    join()
    net: Any = job.model()
    if kind == "ddp":
        net = DistributedDataParallel(net)
    elif kind == "fsdp1":
        from torch.distributed.fsdp import FullyShardedDataParallel

        net[0] = FullyShardedDataParallel(net[0], device_id=torch.device("cpu"))
        net = FullyShardedDataParallel(net, device_id=torch.device("cpu"))
    else:
        if shard := job.fully_shard():
            shard(net[0])
        net = job.sharded(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    for step in range(STEPS):
        net(job.batch(step)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if sys.argv[2] == "dying" and step == DIES:
            die_once()


def die_once() -> None:
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        os.kill(os.getpid(), signal.SIGKILL)


def spawned(rank: int) -> None:
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2"}
    models("ddp")
    dist.barrier()


def main() -> None:
    kind = sys.argv[2]
    if kind == "spawn":
        torch.multiprocessing.spawn(spawned, nprocs=2)
        return
    models(kind if kind.startswith("fsdp") else "ddp")
    imported = sorted({"pandas", "plotly", "textual", "pyarrow"} & set(sys.modules))
    chained = os.environ.get("CHAINED") == str(os.getpid())
    job.finish({"imported": imported, "chained": chained})


if __name__ == "__main__":
    main()
