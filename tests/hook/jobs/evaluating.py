"""A plain model whose forwards in evaluation mode have gradients, for training or not."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch._dynamo import compiled_autograd
from torch._dynamo.utils import counters

import dsprof.hook
from dsprof.hook import spans
from tests.hook.jobs import job

STEPS = 4
BATCHES = 3  # of an evaluation
MICROS = 2


class Scored(nn.Module):  # type: ignore[misc]
    """Returns its loss; perhaps by a call of itself."""

    def __init__(self, slow: float, *, calls_itself: bool) -> None:
        super().__init__()
        self.net, self.slow, self.calls_itself = job.model(), slow, calls_itself

    def forward(self, x: torch.Tensor, *, again: bool = False) -> dict[str, torch.Tensor]:
        if self.calls_itself and not again:
            return self.forward(x, again=True)
        time.sleep(self.slow)
        out = self.net(x)
        return {"loss": out.square().mean(), "out": out}


def batch(number: int) -> torch.Tensor:
    return torch.randn(8, job.WIDTH, generator=torch.Generator().manual_seed(number))


def compiled() -> AbstractContextManager[None]:
    """Backward in one graph, which nothing may break."""
    enable = getattr(compiled_autograd, "_enable", None) or compiled_autograd.enable
    context: AbstractContextManager[None] = enable(torch.compile(backend="eager", fullgraph=True))
    return context


def trained(net: Any, number: int, way: str) -> list[float]:
    """A step of two micro-batches."""
    losses = []
    for micro in range(MICROS):
        loss = net(batch(MICROS * number + micro))["loss"]
        with compiled() if way == "compiled" else nullcontext():
            (loss / MICROS).backward()
        losses.append(loss.item())
    return losses


def late_and_in_time(net: Any, number: int) -> list[float]:
    """Two losses: the rows of the first one's forwards are written before its backward begins, that
    of the second one's is kept.
    """
    net.slow = 0.06
    first = sum(net(batch(MICROS * number + half))["loss"] for half in range(2))
    net.slow = 0.0
    second = net(batch(number))["loss"]
    first.backward()
    second.backward()
    return [first.item(), second.item()]


def evaluated(net: Any) -> None:
    net.eval()
    for number in range(BATCHES):
        net(100 * batch(number))["loss"].item()


def attacked(net: Any, number: int) -> None:
    """What an attack changes of a batch to mislead the model."""
    given = batch(number).requires_grad_()
    torch.autograd.grad(net(given)["loss"], given)


def another(out: Path) -> Callable[[], None]:
    """A step of another model, recorded too."""
    net = job.model()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
    dsprof.hook.attach(net, optimizer=optimizer, out=out)

    def step() -> None:
        net(batch(0)).square().mean().backward()
        optimizer.step()

    return step


def one(way: str, *, watched: bool) -> list[float]:
    net = Scored(0.06 if way == "slow" else 0.0, calls_itself=way == "nested")
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
    handle = dsprof.hook.Handle()
    first = another(job.out() / way) if watched and way == "second" else None
    if watched:
        handle = dsprof.hook.attach(net, optimizer=optimizer, out=job.out() / way)
    counters.clear()  # nothing was compiled yet
    told = []
    for step in range(STEPS):
        net.train(way in {"forgotten", "attacked"})
        if way == "attacked":
            net.eval()
            attacked(net, step)
            net.train()
        if first is not None:
            first()
        losses = late_and_in_time(net, step) if way == "both" else trained(net, step, way)
        optimizer.step()
        optimizer.zero_grad()
        told.append(sum(losses) / MICROS)
        if way in {"forgotten", "tuned"} and step % 2 == 0:
            evaluated(net)
    handle.detach()
    return told


def main() -> None:
    result = {}
    for way, patience in (
        ("forgotten", 1.0),
        ("tuned", 1.0),
        ("attacked", 1.0),
        ("slow", 0.05),  # a forward takes longer than rows are kept
        ("late", 0.0),  # no row is kept
        ("both", 0.05),
        ("nested", 1.0),
        ("compiled", 1.0),
        ("second", 1.0),
    ):
        spans.PATIENCE = int(patience * 1e9)  # type: ignore[misc]
        result[way] = [one(way, watched=watched) for watched in (False, True)]
    job.finish(result)
