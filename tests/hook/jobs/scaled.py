"""A loop of one's own in mixed precision, whose scaler multiplies the loss. Told to accumulate, it
divides the loss by its micro-batches before."""

from __future__ import annotations

import contextlib
import sys

import torch

import dsprof.hook
from tests.hook.jobs import job

STEPS = 4  # batches


def train(*, watched: bool) -> list[str]:
    net = job.model()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    losses, micros = [], 2 if sys.argv[2] == "divided" else 1
    with contextlib.ExitStack() as stack:
        if watched:
            handle = dsprof.hook.attach(net, optimizer=optimizer, out=job.out() / "run")
            stack.enter_context(handle)
        for step in range(STEPS):
            batch = torch.randn(8, job.WIDTH, generator=torch.Generator().manual_seed(step))
            loss = net(batch).square().mean()
            losses.append(loss.item().hex())
            scaler.scale(loss / micros if micros > 1 else loss).backward()
            if (step + 1) % micros == 0:
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
    return losses


def main() -> None:
    job.finish({"plain": train(watched=False), "watched": train(watched=True)})
