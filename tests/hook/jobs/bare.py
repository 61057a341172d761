"""Training that knows nothing of dsprof: argv[2] says with what."""

from __future__ import annotations

import os
import sys
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from tests.hook.jobs import job

STEPS = 4


def engines(count: int) -> None:
    job.start_deepspeed()
    every = [job.engine(1 + number, 1) for number in range(count)]
    for step in range(STEPS):
        for engine in every:
            engine.backward(engine(job.batch(step)).square().mean())
            engine.step()


def models(kind: str) -> None:
    dist.init_process_group("gloo")
    net: Any = job.model()
    if kind == "ddp":
        net = DistributedDataParallel(net)
    else:
        fully_shard(net[0])
        fully_shard(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    for step in range(STEPS):
        net(job.batch(step)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def main() -> None:
    kind = sys.argv[2]
    if kind in {"ddp", "fsdp2"}:
        models(kind)
    else:
        engines({"engine": 1, "engines": 2}[kind])
    imported = sorted({"pandas", "plotly", "textual", "pyarrow"} & set(sys.modules))
    job.finish({"imported": imported, "chained": os.environ.get("CHAINED", "")})


main()
