"""Two models in one loop: adversaries, one beside a DeepSpeed engine, one under FSDP2."""

from __future__ import annotations

import time
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from tests.hook.jobs import job
from tests.hook.jobs.chained import LONG, SHORT, Slow

STEPS = 5
FOUND = "adversaries that are found"
KINDS = ("adversaries", "beside an engine", "through an engine", "fsdp2 and ddp", FOUND)


def layer() -> nn.Module:
    return nn.Linear(job.WIDTH, job.WIDTH)


def update(*optimizers: Any) -> None:
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad()


def adversaries(batch: torch.Tensor, nets: Any, optimizers: Any) -> list[torch.Tensor]:
    """The generator's loss goes through the discriminator, which has learned from its own."""
    generator, discriminator = nets
    made = generator(batch)
    told = discriminator(made.detach()) - discriminator(batch)
    own = Slow.apply(told, SHORT).square().mean()
    own.backward()
    update(optimizers[1])
    fooled = discriminator(Slow.apply(made, LONG)).mean()
    fooled.backward()
    update(optimizers[0])
    optimizers[1].zero_grad()
    return [fooled, own]


def beside(batch: torch.Tensor, nets: Any, optimizers: Any) -> list[torch.Tensor]:
    """The engine's forward is the last one before the other model's backward."""
    engine, critic = nets
    value, policy = critic(batch), engine(batch)
    lost = Slow.apply(value, SHORT).square().mean()
    lost.backward()
    update(optimizers[1])
    loss = Slow.apply(policy, LONG).square().mean()
    engine.backward(loss)
    engine.step()
    return [loss, lost]


def through(batch: torch.Tensor, nets: Any, optimizers: Any) -> list[torch.Tensor]:
    """One loss of both: nobody can say which part of backward is whose."""
    engine, first = nets
    loss = engine(first(batch)).square().mean()
    engine.backward(loss)
    engine.step()
    update(optimizers[1])
    return [loss]


def both(batch: torch.Tensor, nets: Any, optimizers: Any) -> list[torch.Tensor]:
    sharded, replicated = nets
    loss = replicated(sharded(batch)).square().mean()
    time.sleep(SHORT * dist.get_rank())
    loss.backward()
    update(*optimizers)
    return [loss]


WAYS = dict(zip(KINDS, (adversaries, beside, through, both, adversaries), strict=True))


def train(kind: str, *, watched: bool) -> list[list[str]]:
    import dsprof.hook

    torch.manual_seed(0)
    found = dsprof.hook.attach(out=job.out() / kind) if watched and kind == FOUND else None
    if "engine" in kind:
        nets: list[Any] = [job.engine(1, 1), DistributedDataParallel(layer())]
    elif "adversaries" in kind:
        nets = [DistributedDataParallel(layer()) for _ in range(2)]
    else:
        nets = [job.sharded(layer()), DistributedDataParallel(layer())]
    optimizers = [torch.optim.SGD(net.parameters(), lr=1e-2) for net in nets]
    said = []
    with job.attached(nets, optimizers, kind, watched=watched and found is None):
        for step in range(STEPS):
            losses = WAYS[kind](job.batch(step), nets, optimizers)
            said.append([loss.item().hex() for loss in losses])
    if found is not None:
        found.detach()
    return said


def main() -> None:
    job.start_deepspeed()
    ways = {"plain": False, "watched": True}
    both_ways = lambda kind: {way: train(kind, watched=on) for way, on in ways.items()}  # noqa: E731
    job.finish(job.each_kind(KINDS, both_ways))
