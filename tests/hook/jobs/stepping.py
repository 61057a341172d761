"""Models that several optimizers train: one after another, seldom, inside backward, or one by the
other; and one whose class is derived from one that is in use."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim import PostLocalSGDOptimizer
from torch.nn.parallel import DistributedDataParallel

import dsprof.hook
from tests.hook.jobs import job

STEPS = 6
SLEEP = 0.01  # seconds of each step of a slow optimizer
SELDOM = 3  # steps of which the second optimizer takes part in one
KINDS = (
    "one", "two", "seldom", "inside backward", "found", "derived", "derived found", "fails",
    "tries", "wraps", "wraps found", "holds", "turns",
)  # fmt: skip
ALONE = {"one", "derived", "derived found", "fails", "wraps", "wraps found", "holds"}
TRIES = 3  # of its closure, in a step
FAILS = 3  # the step in which the optimizer does, once its base class's `step` has begun


class Slow(torch.optim.SGD):  # type: ignore[misc]  # where torch is not installed
    """An optimizer with work of its own."""

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def step(self, *args: Any) -> None:
        time.sleep(SLEEP)
        super().step(*args)


class Wrapping(torch.optim.Optimizer):  # type: ignore[misc]  # where torch is not installed
    """An optimizer that lets another one step, as ZeroRedundancyOptimizer and look-aheads do."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner.param_groups, {})
        self.inner = inner

    def step(self, *args: Any) -> None:
        self.inner.step(*args)
        time.sleep(SLEEP)


def averaging(inner: Any) -> Any:
    """PyTorch's optimizer that also averages the ranks' models, which has no hooks of its own."""
    return PostLocalSGDOptimizer(inner, PeriodicModelAverager(period=2))


def trained(kind: str, net: Any) -> tuple[list[Any], Callable[[int], None]]:
    """The optimizers, and what the loop does at the end of a step."""
    parameters = list(net.parameters())
    if kind in {"inside backward", "found"}:
        own = {one: Slow([one], lr=1e-2) for one in parameters}

        def accumulated(one: Any) -> None:
            own[one].step()
            own[one].zero_grad()

        for one in parameters:
            one.register_post_accumulate_grad_hook(accumulated)
        return list(own.values()), lambda _: None
    if kind == "tries":
        return [torch.optim.LBFGS(parameters, lr=1e-2, max_iter=TRIES)], lambda _: None
    if kind in ALONE:
        optimizers = [Slow(parameters, lr=1e-2)]
        optimizers = [Wrapping(*optimizers)] if "wraps" in kind else optimizers
        optimizers = [averaging(*optimizers)] if kind == "holds" else optimizers
    else:
        optimizers = [Slow(parameters[::2], lr=1e-2), Slow(parameters[1::2], lr=1e-2)]

    def step(number: int) -> None:
        if kind == "fails" and number == FAILS:
            with suppress(RuntimeError):
                optimizers[0].step(_fail)
            return
        for place, one in enumerate(optimizers):
            if place in part(kind, number):
                one.step()
        net.zero_grad()

    return optimizers, step


def part(kind: str, number: int) -> tuple[int, ...]:
    """The places of those that take part in a step."""
    seldom = number % SELDOM == 0
    if kind == "turns":  # each with a backward of its own
        return (int(seldom),)
    return (0, 1) if seldom or kind != "seldom" else (0,)


def _fail() -> None:
    raise RuntimeError("planted")


def _loss(net: Any, number: int) -> torch.Tensor:
    net.zero_grad()
    loss: torch.Tensor = net(job.batch(number)).square().mean()
    loss.backward()
    return loss


def train(kind: str, *, watched: bool) -> list[str]:
    net: Any = job.model()
    net = job.sharded(net) if kind == "found" else DistributedDataParallel(net)
    if kind == "derived":  # from here on of the processes' later kinds, too
        torch.optim.SGD([torch.zeros(1, requires_grad=True)])
    if kind == "inside backward":  # before gradients are exchanged
        net = net.module
    optimizers, ends = trained(kind, net)
    target = {} if "found" in kind else {"target": net, "optimizer": optimizers[0]}
    handle = dsprof.hook.attach(**target, out=job.out() / kind) if watched else None
    losses = []
    for number in range(1, STEPS + 1):
        if kind == "tries":
            loss = optimizers[0].step(lambda number=number: _loss(net, number))
        else:
            loss = net(job.batch(number)).square().mean()
            loss.backward()
        ends(number)
        losses.append(loss.item().hex())
    if handle:
        handle.detach()
    first = getattr(optimizers[0], "optim", optimizers[0])
    left = [*first._optimizer_step_pre_hooks, *first._optimizer_step_post_hooks]
    return [*losses, str(len(left))]


def main() -> None:
    dist.init_process_group("gloo")
    ways = {"plain": False, "watched": True}
    job.finish({kind: {way: train(kind, watched=on) for way, on in ways.items()} for kind in KINDS})
