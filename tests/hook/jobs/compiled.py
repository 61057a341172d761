"""Optimizer steps that are compiled, alone or with what is around them, and models that are
compiled in place: how many graphs and breaks that makes, what PyTorch warns of, and the losses."""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch._dynamo.utils import counters
from torch.nn.parallel import DistributedDataParallel

import dsprof.hook
from tests.hook.jobs import job

STEPS = 4
IN_PLACE = ("in place", "in place, DDP")
KINDS = ("all", "method", "as it is", "lambda", "found", "before", *IN_PLACE, "DDP")
REPLICATED = ("found", "in place, DDP", "DDP")


def train(kind: str, *, watched: bool) -> dict[str, Any]:
    torch.compiler.reset()
    counters.clear()
    made, backend = counted()

    def attach(*target: Any) -> None:
        named = {"target": target[0], "optimizer": target[1]} if target else {}
        if watched:
            handles.append(dsprof.hook.attach(**named, out=job.out() / kind))

    handles: list[Any] = []
    if kind == "found":
        attach()
    net = model(kind, backend)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2, momentum=0.9)
    if kind not in {"found", "before"}:
        attach(net, optimizer)
    if kind in IN_PLACE:
        net.compile(backend=backend)
    ways: dict[str, Any] = dict.fromkeys(("all", *IN_PLACE, "DDP"))
    ways |= dict.fromkeys(("method", "as it is"), optimizer.step)
    made_step = ways.get(kind, lambda: optimizer.step())  # noqa: PLW0108 - as jobs compile it
    step = torch.compile(made_step, backend=backend) if made_step else optimizer.step
    if kind == "before":
        attach(net, optimizer)

    def one(batch: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = net(batch).square().mean()
        loss.backward()
        optimizer.step() if kind == "all" else step()
        optimizer.zero_grad()
        return loss

    if kind == "all":
        one = torch.compile(one, backend=backend)
    with stance(kind):
        losses, warned = losses_of(one)
    for handle in handles:
        handle.detach()
    return {
        "graphs": len(made),
        "broken by": sorted(reason.partition("\n")[0] for reason in counters["graph_break"]),
        "warned": [said for said in warned if "ynamo" in said],
        "losses": losses,
    }


def stance(kind: str) -> Any:
    """What is compiled may run as it is all the same, with whatever hooks it calls."""
    stances = getattr(torch.compiler, "set_stance", None)  # since PyTorch 2.6
    return stances("force_eager") if stances and kind == "as it is" else nullcontext()


def counted() -> tuple[list[Any], Any]:
    """The graphs that a backend was given, and that backend: it runs them as they are."""
    made: list[Any] = []

    def backend(graph: Any, _: Any) -> Any:
        made.append(graph)
        return graph.forward

    return made, backend


def model(kind: str, backend: Any) -> Any:
    net = DistributedDataParallel(job.model()) if kind in REPLICATED else job.model()
    return torch.compile(net, backend=backend) if kind == "DDP" else net


def losses_of(step: Any) -> tuple[list[str], list[str]]:
    """And what was warned of meanwhile."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        generator = torch.Generator().manual_seed(0)
        losses = [step(torch.randn(8, job.WIDTH, generator=generator)) for _ in range(STEPS)]
    return [loss.item().hex() for loss in losses], [str(one.message) for one in warned]


def hooks_run() -> bool:
    """Whether hooks of a compiled optimizer, anybody's, run as they are: on Python 3.13 PyTorch
    cannot go on behind a break in what calls them, and compiles what that calls alone."""
    torch.compiler.reset()
    counters.clear()
    optimizer = torch.optim.SGD(job.model().parameters(), lr=1e-2)
    optimizer.register_step_pre_hook(lambda *_: None)
    torch.compile(optimizer.step, backend="eager")()
    return not counters["graph_break"]


def main() -> None:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    results: dict[str, Any] = {
        kind: {"plain": train(kind, watched=False), "watched": train(kind, watched=True)}
        for kind in KINDS
    }
    job.finish(results | {"hooks run": hooks_run()})
