"""What DDP's reducer does and leaves, in ways of training that differ from the plain one."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import (
    PowerSGDState,
    powerSGD_hook,
)
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import dsprof.hook
from tests.hook.jobs import job

STEPS = 4
LEAVES = ("a leaf", "leaves of two")
AGAIN = ("checkpointed", "whole", "checkpointed two")  # computed again in backward
#: How a model without DDP waits for what reduces its gradients.
FUTURES: dict[str, Callable[[Any], Any]] = {
    "a future": lambda work: work.get_future().wait(),
    "what follows": lambda work: work.get_future().then(_gradient).wait(),
    "the work": lambda work: (work.get_future().then(_gradient), work.wait()),
}
POWERED = "powered"  # by a communication hook whose futures C++ alone holds
BY_HAND = ("waited for behind", "waited for inside")  # of backward; PyTorch 2.15 can
KINDS = (
    *LEAVES, "attacked", "synchronized late", "synchronized early", "halved", "asked",
    *AGAIN, *FUTURES, POWERED,
    *(BY_HAND if hasattr(DistributedDataParallel, "finalize_backward") else ()),
)  # fmt: skip
LATE = 0.1  # seconds by which the second rank's backward begins late where it is computed again


class Tempered(nn.Module):  # type: ignore[misc]
    """Returns a parameter of its own beside what it computes."""

    def __init__(self) -> None:
        super().__init__()
        self.net, self.scale = job.model(), nn.Parameter(torch.ones(()))

    def forward(self, batch: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.scale, self.net(batch)


class Again(nn.Module):  # type: ignore[misc]
    """Computes its halves again in backward."""

    def __init__(self) -> None:
        super().__init__()
        net = job.model()
        self.halves = nn.ModuleList([net[:4], net[4:]])

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        for half in self.halves:
            batch = checkpoint(half, batch, use_reentrant=True)
        return batch


def made(kind: str) -> Any:
    torch.manual_seed(0)
    if kind in FUTURES:
        return job.model()
    if kind.startswith("checkpointed"):
        return DistributedDataParallel(Again())
    net = DistributedDataParallel(Tempered() if kind in LEAVES else job.model())
    if kind == POWERED:
        net.register_comm_hook(
            PowerSGDState(None, 1, 0, use_error_feedback=False, warm_start=False), powerSGD_hook
        )
    if kind == "halved":
        net.register_comm_hook(None, fp16_compress_hook)
    if kind == "asked":
        first = next(net.parameters())
        first.register_hook(lambda _: asked_by_another_thread(net, job.batch(0)))
    net.require_manual_backward_finalization = kind in BY_HAND
    return net


def loss_of(kind: str, net: Any, batch: torch.Tensor) -> torch.Tensor:
    if kind in AGAIN:
        batch = batch.requires_grad_()
    output = checkpoint(net, batch, use_reentrant=True) if kind == "whole" else net(batch)
    if isinstance(output, tuple):
        output = output[0] * output[1]
    return output.square().mean()


def step_of(kind: str, net: Any, batch: torch.Tensor) -> float:
    """One forward and backward, and the loss."""
    if kind == "attacked":  # by the gradient of its input, which exchanges none of its own
        batch.requires_grad_()
        batch = (batch + torch.autograd.grad(loss_of(kind, net, batch), batch)[0]).detach()
    whole = contextlib.nullcontext
    alone = getattr(net, "no_sync", whole)
    with alone() if kind == "synchronized late" else whole():
        loss = loss_of(kind, net, batch)
    if kind in AGAIN or kind in BY_HAND or kind == POWERED:
        time.sleep(LATE * dist.get_rank())
    inside = kind == BY_HAND[1] and not net.should_finalize_after_backward
    if inside:
        engine = torch.autograd.Variable._execution_engine
        loss.register_hook(lambda _: engine.queue_callback(net.finalize_backward))
    with alone() if kind == "synchronized early" else whole():
        loss.backward()
    if kind in BY_HAND and not inside:
        net.finalize_backward()
    if kind in FUTURES:
        time.sleep(LATE * dist.get_rank())
        for parameter in net.parameters():
            FUTURES[kind](dist.all_reduce(parameter.grad, async_op=True))
    return float(loss.item())


def asked_by_another_thread(net: Any, batch: torch.Tensor) -> None:
    """As by one that evaluates while this one is in backward."""

    def ask() -> None:
        with torch.no_grad():
            net(batch)

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()


def _gradient(future: Any) -> Any:
    return future.value()


def train(kind: str, *, watched: bool) -> dict[str, Any]:
    nets = [made(kind) for _ in range(2 if kind.endswith("two") else 1)]
    optimizers = [torch.optim.SGD(net.parameters(), lr=1e-2) for net in nets]
    before, losses = job.issued(), []
    handles = [
        dsprof.hook.attach(net, optimizer=optimizer, out=job.out() / kind)
        for net, optimizer in zip(nets, optimizers, strict=True)
        if watched
    ]
    for step in range(STEPS):
        for net, optimizer in zip(nets, optimizers, strict=True):
            losses.append(step_of(kind, net, job.batch(step)).hex())
            optimizer.step()
            optimizer.zero_grad()
    hooks = [len(one._backward_hooks or {}) for net in nets for one in net.parameters()]
    issued = job.since(before)
    for handle in handles:
        handle.detach()
    return {"losses": losses, "hooks": sum(hooks), "issued": issued}


def main() -> None:
    dist.init_process_group("gloo")
    ways = {"plain": False, "watched": True}
    job.finish({kind: {way: train(kind, watched=on) for way, on in ways.items()} for kind in KINDS})
