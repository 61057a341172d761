"""DDP on two CPU ranks until it is ended; a plan says what is wrong from when on.

argv: folder whose file `plan` holds words: `slow` (rank 1 is late), `grow` (rank 0 keeps what
it computes), `bound` (large gradients, little to compute).
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from dsprof.hook.process import memory

vars(memory)["EVERY"] //= 10  # fifty looks tell whether memory grows: else half a minute

PLAN = Path(sys.argv[1]) / "plan"
DONE = Path(sys.argv[1]) / "done"


def words() -> set[str]:
    return set(PLAN.read_text(encoding="utf-8").split()) if PLAN.exists() else set()


class Work(nn.Module):  # type: ignore[misc]
    """What a rank computes; who is slow computes three times as long."""

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        plan = words()
        if "bound" not in plan:
            time.sleep(0.12 if "slow" in plan and dist.get_rank() == 1 else 0.04)
        return batch


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    width = 1024 if "bound" in words() else 64
    layers = [nn.Linear(width, width) for _ in range(4)]
    net: Any = DistributedDataParallel(nn.Sequential(Work(), *layers))
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    kept = []
    while not DONE.exists():
        loss = net(torch.randn(8, width)).square().mean()
        if "grow" in words() and rank == 0:
            kept.append(torch.ones(2 << 20))  # 8 MiB a step
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


main()
