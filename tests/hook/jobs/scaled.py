"""A loop of one's own in mixed precision, whose scaler multiplies the loss. Told to accumulate, it
divides the loss by its micro-batches before. Told to overflow, it has two optimizers, whose step
the scaler leaves out, and where told so names what holds one of them, or never calls the model as a
whole, whose first step is left out then. Told of Composer, its trainer's method multiplies the loss
of each micro-batch by its part of the batch."""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Iterable
from types import ModuleType
from typing import Any

import torch

import dsprof.hook
from tests.hook.jobs import job

STEPS = 4  # batches
OVERFLOWS = {1: (0, 1), 3: (1,)}  # whose gradients do, of the optimizers in that step from 0
AT_FIRST = {0: (0, 1)}


def batch(step: int) -> torch.Tensor:
    return torch.randn(8, job.WIDTH, generator=torch.Generator().manual_seed(step))


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
            loss = net(batch(step)).square().mean()
            losses.append(loss.item().hex())
            scaler.scale(loss / micros if micros > 1 else loss).backward()
            if (step + 1) % micros == 0:
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
    return losses


class Holder(torch.optim.Optimizer):  # type: ignore[misc]  # where torch is not installed
    """An optimizer by its class alone, as accelerate's is."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer


def by_layers(net: Iterable[Any], given: torch.Tensor) -> torch.Tensor:
    for layer in net:
        given = layer(given)
    return given


def overflow(*, watched: bool) -> list[str]:
    net, losses = job.model(), []
    parameters = list(net.parameters())
    both = [torch.optim.SGD(parameters[place::2], lr=1e-2) for place in (0, 1)]
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    is_whole = sys.argv[2] != "by layers"
    overflows = OVERFLOWS if is_whole else AT_FIRST
    with contextlib.ExitStack() as stack:
        if watched:
            named = Holder(both[0]) if sys.argv[2] == "held" else both[0]
            handle = dsprof.hook.attach(net, optimizer=named, out=job.out() / "run")
            stack.enter_context(handle)
        for step in range(STEPS + 1):
            given = net(batch(step)) if is_whole else by_layers(net, batch(step))
            loss = given.square().mean()
            losses.append(loss.item().hex())
            scaler.scale(loss).backward()
            for place, optimizer in enumerate(both):
                if place in overflows.get(step, ()):
                    parameters[place].grad.fill_(float("inf"))
                scaler.step(optimizer)
            scaler.update()
            net.zero_grad()
    return losses


class Trainer:
    """Composer's, as far as the loss is concerned. The last micro-batch of a batch is smaller."""

    def __init__(self) -> None:
        self.net = job.model()
        self.scaler = torch.amp.GradScaler("cpu", enabled=sys.argv[2] == "composer in fp16")

    def _train_microbatch(self, examples: torch.Tensor, part: float) -> float:
        loss = self.net(examples).square().mean()
        told: float = loss.item() * part
        loss.mul_(part)
        self.scaler.scale(loss).backward()
        return told


def compose(*, watched: bool) -> list[str]:
    trainer, losses = Trainer(), []
    optimizer = torch.optim.SGD(trainer.net.parameters(), lr=1e-2)
    library = sys.modules["composer.trainer.trainer"] = ModuleType("composer.trainer.trainer")
    library.Trainer = Trainer  # type: ignore[attr-defined]
    with contextlib.ExitStack() as stack:
        if watched:
            handle = dsprof.hook.attach(trainer.net, optimizer=optimizer, out=job.out() / "run")
            stack.enter_context(handle)
        for step in range(STEPS):
            whole = batch(step)
            micros = ((whole[:6], 0.75), (whole[6:], 0.25))
            losses.append(math.fsum(trainer._train_microbatch(*one) for one in micros).hex())
            trainer.scaler.step(optimizer)
            trainer.scaler.update()
            optimizer.zero_grad()
    return losses


def main() -> None:
    if not hasattr(torch.amp, "GradScaler"):
        return job.finish({"cannot": "before PyTorch 2.3 gradient scalers need a GPU"})
    ways = dict.fromkeys(("overflows", "held", "by layers"), overflow)
    ways |= dict.fromkeys(("composer", "composer in fp16"), compose)
    way = ways.get(sys.argv[2], train)
    result = {"plain": way(watched=False), "watched": way(watched=True)}
    tells = hasattr(torch._C._autograd.SavedTensor, "data")  # by what a loss was divided
    return job.finish(result | {"tells": tells})
