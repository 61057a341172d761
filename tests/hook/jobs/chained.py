"""Two models under DDP, each with its own optimizer, in one loss and in two."""

from __future__ import annotations

import time
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from tests.hook.jobs import job

STEPS = 4
KINDS = ("one loss", "two losses", "of objects", "hidden")
LONG, SHORT = 0.06, 0.02  # seconds that the first and the second model's backward sleeps


class Slow(torch.autograd.Function):  # type: ignore[misc]
    """What it is given; its backward sleeps."""

    @staticmethod
    def forward(ctx: Any, batch: torch.Tensor, seconds: float) -> torch.Tensor:
        ctx.seconds = seconds
        return batch.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        time.sleep(ctx.seconds)
        return gradient, None


class Held:
    def __init__(self, output: Any) -> None:
        self.output = output


class Model(nn.Module):  # type: ignore[misc]
    """Of one layer, whose output is held `deep`."""

    def __init__(self, seconds: float, deep: int) -> None:
        super().__init__()
        self.layer = nn.Linear(job.WIDTH, job.WIDTH)
        self.seconds, self.deep = seconds, deep

    def forward(self, batch: torch.Tensor) -> Any:
        output = Slow.apply(self.layer(batch), self.seconds)
        for _ in range(self.deep):
            output = Held(output)
        return output


def called(net: nn.Module, batch: torch.Tensor, deep: int) -> torch.Tensor:
    output = net(batch)
    for _ in range(deep):
        output = output.output
    return output


def train(kind: str, *, watched: bool) -> list[str]:
    torch.manual_seed(0)
    deep = {"of objects": 1, "hidden": 2}.get(kind, 0)
    nets = [DistributedDataParallel(Model(seconds, deep)) for seconds in (LONG, SHORT)]
    optimizers = [torch.optim.SGD(net.parameters(), lr=1e-2) for net in nets]
    said = []
    with job.attached(nets, optimizers, kind, watched=watched):
        for step in range(STEPS):
            batch = job.batch(step)
            first = called(nets[0], batch, deep)
            if kind == "two losses":
                losses = [first.square().mean(), called(nets[1], batch, deep).square().mean()]
            else:
                losses = [called(nets[1], first, deep).square().mean()]
            for loss in losses:
                loss.backward()
                said.append(loss.item().hex())
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
    return said


def main() -> None:
    dist.init_process_group("gloo")
    results: dict[str, Any] = {}
    for kind in KINDS:
        plain = train(kind, watched=False)
        before = job.issued()
        watched = train(kind, watched=True)
        results[kind] = {"plain": plain, "watched": watched, "issued": job.since(before)}
    job.finish(results)
