"""A fault at each place where training enters the hook, one after the other: argv[2:] are kinds.

The places are found by running: whatever is given to `Guard` is one. For each of them the same
steps run once more, from the same weights, while that one place fails at its n-th call.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from itertools import cycle
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import dsprof.hook
from dsprof.hook.guard import Guard
from tests.hook.jobs import failing, job, pipeline, touched

STEPS = 2


class Fault:
    """Fails at the place that is armed, and notes all places."""

    def __init__(self) -> None:
        self.places: dict[str, int] = {}
        self.armed = ""
        self.whole: Any = Guard.__call__
        self.around: Any = Guard.around
        self.behind: Any = Guard.behind

    @contextlib.contextmanager
    def planted(self, place: str = "") -> Iterator[None]:
        self.armed, self.failed = place, False
        with (
            patch.object(Guard, "__call__", self._whole()),
            patch.object(Guard, "around", self._around()),
            patch.object(Guard, "behind", self._behind()),
        ):
            yield
        self.armed = ""

    def _whole(self) -> Any:
        return lambda guard, action: self.whole(guard, self._at("", action))

    def _around(self) -> Any:
        def around(guard: Guard, raw: Any, before: Any, after: Any, then: Any = None) -> Any:
            ends = [self._at(word, end) for word, end in (("before ", before), ("after ", after))]
            return self.around(guard, raw, *ends, then and self._at("then ", then))

        return around

    def _behind(self) -> Any:
        return lambda guard, raw, after, what: self.behind(guard, raw, self._at("", after), what)

    def _at(self, word: str, action: Callable[..., Any]) -> Callable[..., Any]:
        inner: Any = action
        detail = ""
        while hasattr(inner, "func"):  # a partial: of which phase
            detail += " ".join(str(one.id) for one in inner.args if hasattr(one, "class_"))
            inner = inner.func
        place = f"{word}{inner.__qualname__} {detail}".strip()

        def call(*args: Any, **kwargs: Any) -> Any:
            self.places[place] = self.places.get(place, 0) + 1
            if place == self.armed:
                self.failed = True
                raise ZeroDivisionError(f"planted at {place}")
            return action(*args, **kwargs)

        return call


def engine(stage: int) -> tuple[Any, Any, Callable[[int], float]]:
    made = job.engine(stage, 2)

    def step(number: int) -> float:
        for micro in (0, 1):
            loss = made(job.batch(2 * number + micro)).square().mean()
            made.backward(loss)
            made.step()
        return float(loss.item())

    return made, None, step


def module(kind: str) -> tuple[Any, Any, Callable[[int], float]]:
    net: Any = job.model()
    if kind == "ddp":
        net = DistributedDataParallel(net)
    if kind == "fsdp2":
        net = job.sharded(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)

    def step(number: int) -> float:
        loss = net(job.batch(number)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return float(loss.item())

    return net, optimizer, step


def pipe() -> tuple[Any, None, Callable[[int], float]]:
    """With rows of our own: the engine's loader starts processes, for whose end each run waits."""
    made = pipeline.engine()
    rows = cycle(DataLoader(pipeline.data(), batch_size=pipeline.BATCH))
    return made, None, lambda _: made.train_batch(rows).item()


def made(kind: str) -> tuple[Any, Any, Callable[[int], float]]:
    name, _, stage = kind.partition("-")
    if name == "zero":
        return engine(int(stage))
    return pipe() if name == "pipeline" else module(name)


def trained(kind: str, *, attach: bool, out: str = "") -> tuple[list[str], list[str]]:
    """Losses of a few steps and weights after them; what was left changed."""
    target, optimizer, step = made(kind)
    held = touched.look(target, *[optimizer or target.optimizer])
    handle = (
        dsprof.hook.attach(target, optimizer=optimizer, out=job.out() / "runs" / out)
        if attach
        else None
    )
    loader = iter(DataLoader(TensorDataset(torch.arange(STEPS)), batch_size=1))
    told = []
    for number in range(STEPS):
        next(loader)
        told.append(step(number).hex())
    if handle:
        handle.metric("score", 1.0, STEPS)
        handle.detach()
    weights = [one.detach().double().sum() for one in target.parameters()]
    told += [getattr(one, "full_tensor", lambda one=one: one)().item().hex() for one in weights]
    return told, touched.changed(held)


def faults_of(kind: str) -> dict[str, Any]:
    """By place: whether it failed, what was left, and whether training noticed."""
    plain, _ = trained(kind, attach=False)
    fault = Fault()
    with fault.planted():
        same, left = trained(kind, attach=True, out=f"{kind}-whole")
    found = {"nothing": {"failed": True, "left": left, "same": same == plain}}
    fault.places.pop("Handle._detach")  # what it may meet has tests of its own
    for number, place in enumerate(list(fault.places)):
        with fault.planted(place):
            watched, left = trained(kind, attach=True, out=f"{kind}-{number}")
        found[place] = {"failed": fault.failed, "left": left, "same": watched == plain}
    return found


def main() -> None:
    kinds = sys.argv[2:]
    if set(kinds) <= {"ddp", "fsdp2", "plain"}:
        dist.init_process_group("gloo")
    else:
        job.start_deepspeed()
    result = {}
    for kind in kinds:
        with failing.stderr_to(job.out() / f"{kind}-{job.rank()}"):
            result[kind] = faults_of(kind)
    job.finish(result)
