"""A loop of one's own in mixed precision, whose scaler multiplies the loss."""

from __future__ import annotations

import contextlib

import torch

import dsprof.hook
from tests.hook.jobs import job

STEPS = 4


def train(*, watched: bool) -> list[str]:
    net = job.model()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    losses = []
    with contextlib.ExitStack() as stack:
        if watched:
            handle = dsprof.hook.attach(net, optimizer=optimizer, out=job.out() / "run")
            stack.enter_context(handle)
        for step in range(STEPS):
            batch = torch.randn(8, job.WIDTH, generator=torch.Generator().manual_seed(step))
            loss = net(batch).square().mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            losses.append(loss.item().hex())
    return losses


def main() -> None:
    job.finish({"plain": train(watched=False), "watched": train(watched=True)})
