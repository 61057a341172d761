"""Training that knows nothing of dsprof and goes on until it has been joined: argv[2] says which.

Ranks train `LEAST` steps, and then until there is a file `enough`, which all learn of in one step,
or nobody can be waiting for them any more.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from tests.hook.forked import free_port
from tests.hook.jobs import job

LEAST = 20
PAUSE = 0.02  # seconds
LONGEST = 600.0  # seconds


def train(step: Any, group: Any = None) -> None:
    """`step` trains one step, given its number, and returns its loss."""
    out = Path(sys.argv[1])
    losses: list[float] = []
    until = time.monotonic() + LONGEST
    over = torch.zeros(1)
    while not over.item():
        losses.append(step(len(losses)).item())
        if len(losses) == LEAST:
            (out / f"begun-{dist.get_rank()}").touch()
        enough = (out / "enough").exists() or time.monotonic() > until
        over.fill_(len(losses) >= LEAST and enough)
        dist.all_reduce(over, op=dist.ReduceOp.MAX, group=group)
        time.sleep(PAUSE)
    told = [name for name in os.environ if name.startswith("DSPROF")]
    job.finish({"losses": losses, "told": told})


def with_zero() -> None:
    job.start_deepspeed()
    engine = job.engine(1, 1)

    def step(number: int) -> Any:
        loss = engine(job.batch(number)).square().mean()
        engine.backward(loss)
        engine.step()
        return loss

    train(step)


def with_ddp(*, in_own_group: bool = False) -> None:
    """`in_own_group`: nothing is said in the group of the world."""
    dist.init_process_group("gloo")
    group = dist.new_group([0, 1]) if in_own_group else None
    net = DistributedDataParallel(job.model(), process_group=group)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)

    def step(number: int) -> Any:
        loss = net(job.batch(number)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    train(step, group)


def alone() -> None:
    """Without ranks, with processes that make batches: one of each way to start them."""
    store = f"file://{sys.argv[1]}/store"
    dist.init_process_group("gloo", init_method=store, rank=0, world_size=1)
    os.environ |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}  # its workers have them, too
    net = DistributedDataParallel(job.model())
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    rows = torch.ones(100_000, job.WIDTH)
    batches = [
        iter(DataLoader(rows, batch_size=8, num_workers=1, multiprocessing_context=context))
        for context in ("spawn", "fork")
    ]

    def step(number: int) -> Any:
        loss = net(next(batches[number % 2])).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    train(step)


def spawned(rank: int) -> None:
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2"}
    with_ddp()


def main() -> None:
    (Path(sys.argv[1]) / f"main-{job.rank()}").write_text(str(os.getpid()), encoding="ascii")
    if sys.argv[2] == "zero1":
        with_zero()
    elif sys.argv[2] == "grouped":
        with_ddp(in_own_group=True)
    elif sys.argv[2] == "spawn":
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
        torch.multiprocessing.spawn(spawned, nprocs=2)
    else:
        alone()


if __name__ == "__main__":
    main()
