"""Plain torch: DDP, its no_sync oracle, FSDP2 and a model by itself, with and without the hook."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import _functional_collectives as functional
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.parallel import DistributedDataParallel

import dsprof.hook
from tests.hook.jobs import job

try:
    from torch.distributed.device_mesh import init_device_mesh
except ImportError:
    init_device_mesh = None

STEPS = 5
WIDE = 1024
LATE = 0.03  # seconds
KINDS = (
    "ddp",
    "ddp of an object",
    "ddp with buffers",
    "ddp inside",
    "fsdp2",
    "tensor parallel",
    "plain",
)
BY_FUNCTION = ("ddp of an object", "plain")  # backward is `torch.autograd.backward` of a list


class Held:
    """What DDP does not look into: it cannot know what a model's own class holds."""

    def __init__(self, output: torch.Tensor) -> None:
        self.output = output


class Holding(nn.Module):  # type: ignore[misc]
    """A model that returns an object of its own."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, batch: torch.Tensor) -> Held:
        return Held(self.net(batch))


def wide(kind: str) -> nn.Module:
    """Large gradients, small batch: DDP spends its backward on the network."""
    net: nn.Module = job.model(depth=6, width=WIDE)
    if kind == "ddp of an object":
        return DistributedDataParallel(Holding(net))
    if kind == "ddp with buffers":
        return DistributedDataParallel(nn.Sequential(net, nn.BatchNorm1d(1)))
    if kind in ("ddp", "ddp inside"):
        wrapped = DistributedDataParallel(net)
        return wrapped if kind == "ddp" else nn.Sequential(wrapped)
    if kind == "fsdp2":
        for layer in net:
            if isinstance(layer, nn.Linear):
                job.fully_shard()(layer)
        return job.fully_shard()(net)
    if kind == "tensor parallel":
        ways = [ColwiseParallel(), RowwiseParallel()] * 3
        plan = {str(2 * number): way for number, way in enumerate(ways)}
        return parallelize_module(net, init_device_mesh("cpu", (2,)), plan)
    return net


def train(
    net: nn.Module, optimizer: Any, *, sync: bool = True, by_function: bool = False
) -> tuple[list[str], list[float]]:
    losses, backwards = [], []
    for step in range(STEPS):
        context = contextlib.nullcontext() if sync else net.no_sync()
        with context:
            output = net(job.batch(step, WIDE))
            loss = getattr(output, "output", output).square().mean()
            begin = time.perf_counter()
            if by_function:
                torch.autograd.backward([loss])
            else:
                loss.backward()
            backwards.append(time.perf_counter() - begin)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item().hex())
    return losses, backwards


def both_ways(kind: str) -> dict[str, Any]:
    """One set of steps without the hook, one with it, from the same weights."""
    net, by_function = wide(kind), kind in BY_FUNCTION
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    plain, _ = train(net, optimizer, by_function=by_function)
    net = wide(kind)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    before, held = job.issued(), set(vars(net))
    with dsprof.hook.attach(net, optimizer=optimizer, out=job.out() / kind):
        watched, _ = train(net, optimizer, by_function=by_function)
        issued = job.since(before)
    left = set(vars(net)) ^ held
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)  # wraps what detach gave back
    scheduler.step()
    return {"plain": plain, "watched": watched, "issued": issued, "left": sorted(left)}


def oracle() -> dict[str, Any]:
    """Backward with and without gradient exchange, in turns: the difference is communication."""
    net = wide("ddp")
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    train(net, optimizer)
    exchanging, alone = [], []
    with dsprof.hook.attach(net, optimizer=optimizer, out=job.out() / "oracle"):
        for _ in range(3):
            exchanging += train(net, optimizer)[1]
            alone += train(net, optimizer, sync=False)[1]
    return {"exchanging": exchanging, "alone": alone}


def reducers_own() -> list[float]:
    """Seconds by which DDP's own timers say that communication outlasted compute, by step.

    It times its first ten steps, and tells of each in the next one.
    """
    net: Any = wide("ddp")
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    said = []
    with dsprof.hook.attach(net, optimizer=optimizer, out=job.out() / "reducer"):
        for step in range(STEPS):
            net(job.batch(step, WIDE)).square().mean().backward()
            optimizer.step()
            data = net._get_ddp_logging_data()
            overlap = data.get("backward_compute_comm_overlap_time", 0)
            said.append((data.get("backward_comm_time", 0) - overlap) * 1e-9)
    return said[1:]


def graphs(order: str) -> int:
    """How many graphs a model compiles to, with the hook attached before, after or not."""
    torch.compiler.reset()
    made: list[Any] = []

    def backend(graph: Any, _: Any) -> Any:
        made.append(graph)
        return graph.forward

    net: Any = job.model()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    if order == "attached first":
        dsprof.hook.attach(net, optimizer=optimizer, out=job.out() / "compiled")
    compiled = torch.compile(net, fullgraph=True, backend=backend)
    if order == "compiled first":
        dsprof.hook.attach(compiled, optimizer=optimizer, out=job.out() / "compiled")
    for step in range(2):
        compiled(job.batch(step)).square().mean().backward()
        optimizer.step()
    return len(made)


def traced(*, watched: bool) -> dict[str, Any]:
    """What a function that communicates is traced and compiled to."""
    torch.compiler.reset()
    made: list[str] = []

    def backend(graph: Any, _: Any) -> Any:
        made.append(graph.code)
        return graph.forward

    def sum_up(batch: torch.Tensor) -> torch.Tensor:
        return functional.all_reduce(batch * 2, "sum", dist.group.WORLD) + 1

    net: Any = job.model()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    batch = torch.ones(4)
    place = job.out() / "traced"
    handle = dsprof.hook.attach(net, optimizer=optimizer, out=place) if watched else None
    for _ in range(2):
        torch.compile(sum_up, fullgraph=True, backend=backend)(batch)
    made.append(make_fx(sum_up)(batch).code)
    made.append(make_fx(sum_up, tracing_mode="fake")(batch).code)
    if handle:
        handle.detach()
    return {"graphs": made, "sum": sum_up(batch).tolist()}


def can_wait_for_several() -> torch.library.Library | None:
    """`wait_tensors`, which PyTorch 2.15 has for what one call gave; made here for older ones."""
    if hasattr(torch.ops._c10d_functional, "wait_tensors"):
        return None
    one = torch.ops._c10d_functional.wait_tensor.default
    made = torch.library.Library("_c10d_functional", "FRAGMENT")
    made.define("wait_tensors(Tensor[] tensors) -> Tensor[]")
    made.impl("wait_tensors", lambda all_: [one(each) for each in all_], "CPU")
    return made


def together() -> None:
    """Steps that wait at once for all that one call gave, on the first rank for the second."""
    library = can_wait_for_several()
    net: Any = job.model()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    several, group = torch.ops._c10d_functional, dist.group.WORLD.group_name
    with dsprof.hook.attach(net, optimizer=optimizer, out=job.out() / "together"):
        for step in range(STEPS):
            net(job.batch(step)).square().mean().backward()
            time.sleep(LATE * dist.get_rank())
            gradients = [parameter.grad for parameter in net.parameters()]
            several.wait_tensors(several.all_reduce_coalesced(gradients, "sum", group))
            optimizer.step()
    del library


def unseen() -> list[str]:
    """Methods of ProcessGroup that give a Work and are left alone."""
    before = dict(vars(dist.ProcessGroup))
    net: Any = job.model()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    with dsprof.hook.attach(net, optimizer=optimizer, out=job.out() / "unseen"):
        same = {name for name, method in vars(dist.ProcessGroup).items() if method is before[name]}
    return sorted(name for name in same if "-> c10d::Work" in (before[name].__doc__ or ""))


def main() -> None:
    if init_device_mesh is None:
        return job.finish({"cannot": "before PyTorch 2.2 a DTensor has no device mesh of its own"})
    dist.init_process_group("gloo")
    result: dict[str, Any] = job.each_kind(KINDS, both_ways)
    result["oracle"] = oracle()
    result["reducer"] = reducers_own()
    together()
    result["unseen"] = unseen()
    result["traced"] = [traced(watched=watched) for watched in (False, True)]
    orders = ("not at all", "attached first", "compiled first")
    result["graphs"] = {order: graphs(order) for order in orders}
    return job.finish(result)
