"""A loop of one's own with accelerate, DDP on two ranks, micro-batches accumulated."""

from __future__ import annotations

from typing import Any

import torch
from accelerate import Accelerator

import dsprof.hook
from tests.hook.jobs import job

STEPS, MICROS = 4, 4


def train() -> list[float]:
    """The loss of each micro-batch, before accelerate divides it."""
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=MICROS)
    net = job.model()
    net, optimizer = accelerator.prepare(net, torch.optim.SGD(net.parameters(), lr=1e-2))
    losses = []
    for micro in range(STEPS * MICROS):
        with accelerator.accumulate(net):
            loss = net(job.batch(micro)).square().mean()
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def main() -> None:
    plain = train()
    with dsprof.hook.attach(out=job.out() / "run"):
        watched: list[Any] = train()
    job.finish({"plain": plain, "watched": watched})
