"""A whole step in one compiled function: how many graphs it makes, and its losses."""

from __future__ import annotations

from typing import Any

import torch

import dsprof.hook
from tests.hook.jobs import job

STEPS = 4


def train(*, watched: bool) -> dict[str, Any]:
    torch.compiler.reset()
    made: list[Any] = []

    def backend(graph: Any, _: Any) -> Any:
        made.append(graph)
        return graph.forward

    net = job.model()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
    handle = dsprof.hook.attach(net, optimizer=optimizer, out=job.out()) if watched else None

    @torch.compile(backend=backend)  # type: ignore[untyped-decorator]
    def step(batch: torch.Tensor) -> torch.Tensor:
        loss = net(batch).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    generator = torch.Generator().manual_seed(0)
    losses = [step(torch.randn(8, job.WIDTH, generator=generator)) for _ in range(STEPS)]
    if handle:
        handle.detach()
    return {"graphs": len(made), "losses": [loss.item().hex() for loss in losses]}


def main() -> None:
    job.finish({"plain": train(watched=False), "watched": train(watched=True)})
