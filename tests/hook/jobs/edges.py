"""Plain models of one process, used as people use them: copied, compiled, forked, in threads.

Each experiment says what it saw; what was recorded is in the folder of its name.
"""

from __future__ import annotations

import copy
import gc
import io
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch._subclasses import FakeTensorMode
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

import dsprof.hook
from dsprof.hook import Handle
from tests.hook.jobs import failing, job, touched

STEPS = 4


def batch(step: int) -> torch.Tensor:
    return torch.randn(8, job.WIDTH, generator=torch.Generator().manual_seed(step))


def attached(name: str, net: Any = None) -> tuple[Any, Any, Handle]:
    net = net or job.model()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
    return net, optimizer, dsprof.hook.attach(net, optimizer=optimizer, out=job.out() / name)


def train(net: Any, optimizer: Any, steps: int = STEPS) -> list[str]:
    losses = []
    for step in range(steps):
        loss = net(batch(step)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item().hex())
    return losses


def copies() -> dict[str, Any]:
    """What copies of an attached model compute, before and after the model itself has learned."""
    net, optimizer, handle = attached("copies")
    before = net(batch(0)).sum().item()
    pickled = io.BytesIO()
    torch.save(net, pickled)
    pickled.seek(0)
    made = {
        "deepcopy": copy.deepcopy(net),
        "pickle": torch.load(pickled, weights_only=False),
        "averaged": torch.optim.swa_utils.AveragedModel(net).module,
    }
    train(net, optimizer)
    told: dict[str, Any] = {name: one(batch(0)).sum().item() for name, one in made.items()}
    told |= {
        "before": before,
        "left": sorted(set().union(*map(vars, made.values())) - set(vars(job.model()))),
    }
    handle.detach()
    return told


def replicated() -> dict[str, Any]:
    """What the replica of an attached model computes that `nn.DataParallel` makes for a device.

    Its layers are replicas in their turn, with the weights of their device.
    """
    net, optimizer, handle = attached("replica")
    replica = net._replicate_for_data_parallel()
    for name, layer in net._modules.items():
        replica._modules[name] = copy.deepcopy(layer)
    train(net, optimizer)
    told = {"first": replica(batch(0)).sum().item(), "left": sorted(vars(replica))}
    handle.detach()
    plain = job.model()
    told |= {"plain": plain(batch(0)).sum().item()}
    told |= {"right": sorted(vars(plain._replicate_for_data_parallel()))}
    return told


def scripted() -> dict[str, Any]:
    """What TorchScript makes of an attached model computes as the model itself."""
    net, optimizer, handle = attached("scripted")
    train(net, optimizer, 1)
    ways: dict[str, Callable[[], Any]] = {
        "trace": lambda: torch.jit.trace(net, batch(0)),
        "script": lambda: torch.jit.script(net),
    }
    told = {way: made()(batch(0)).tolist() == net(batch(0)).tolist() for way, made in ways.items()}
    train(net, optimizer, 1)
    handle.detach()
    return told


def detached_in(order: str) -> list[str]:
    """What two handles leave changed."""
    pairs = [
        (net, torch.optim.SGD(net.parameters(), lr=1e-2)) for net in (job.model(), job.model())
    ]
    held = touched.look(*(owner for pair in pairs for owner in pair))
    handles = []
    for net, optimizer in pairs:
        handles.append(dsprof.hook.attach(net, optimizer=optimizer, out=job.out() / order))
        train(net, optimizer, 1)
    for handle in handles if order == "first in, first out" else reversed(handles):
        handle.detach()
    return touched.changed(held)


def nested() -> dict[str, Any]:
    """A block within a block of the same model; a wrong call beside it."""
    net, optimizer, handle = attached("nested")
    with handle:
        train(net, optimizer, 1)
        with dsprof.hook.attach(net, optimizer=optimizer) as again:
            train(net, optimizer, 1)
        nobody = dsprof.hook.attach(job.model())
        train(net, optimizer, 2)
    return {"same": again is handle, "nobody": nobody.folder == handle.folder}


def elsewhere() -> None:
    """A second model, asked for in another folder while the first one is recorded."""
    net, optimizer, first = attached("here")
    other, its, second = attached("elsewhere")
    train(net, optimizer, 2)
    train(other, its, 3)
    second.detach()
    first.detach()


class Large(nn.Linear):  # type: ignore[misc]
    """Of a size that no other object has, so that nothing else comes to lie where one lay."""

    __slots__ = tuple(f"slot{n}" for n in range(46))


def in_the_place_of_another() -> None:
    """A new model where the memory of one lay that was attached and is gone."""
    kept = [Large(job.WIDTH, 1) for _ in range(100)]  # else the memory may go to other sizes
    net, optimizer, first = attached("place", kept.pop(50))
    train(net, optimizer, 1)
    number = id(net)
    del net, optimizer
    gc.collect()
    kept += [Large(job.WIDTH, 1) for _ in range(100)]
    (again,) = (one for one in kept if id(one) == number)
    net, optimizer, second = attached("place", again)
    train(net, optimizer, 1)
    second.detach()
    first.detach()


def forked() -> int:
    """A process that records forks one that trains, too: its exit code."""
    net, optimizer, handle = attached("forked")
    train(net, optimizer, 2)
    if not (child := os.fork()):
        own, its, inner = attached("forked")
        train(own, its, 3)
        inner.detach()
        os._exit(7)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    train(net, optimizer, 2)
    handle.detach()
    return code


def loading_ahead() -> None:
    """Batches that a thread loads while the other one trains."""
    net, optimizer, handle = attached("ahead")
    train(net, optimizer, 1)
    loader = DataLoader(TensorDataset(batch(0)), batch_size=2)
    stop = threading.Event()

    def load() -> None:
        while not stop.is_set():
            list(loader)

    thread = threading.Thread(target=load)
    thread.start()
    train(net, optimizer, 20)
    stop.set()
    thread.join()
    handle.detach()


def epochs() -> None:
    """Each begins with an iterator of its own and ends with a save, of a file in two parts."""
    net, optimizer, handle = attached("epochs")
    torch.save({}, io.BytesIO())
    for epoch in range(2):
        data, stays = TensorDataset(batch(epoch)), bool(epoch)
        for _ in DataLoader(data, batch_size=4, num_workers=epoch, persistent_workers=stays):
            train(net, optimizer, 1)
        for what in (net.state_dict(), optimizer.state_dict()):
            torch.save(what, io.BytesIO())
    train(net, optimizer, 1)
    handle.detach()


def answering() -> None:
    """A thread that asks the model while another one trains it."""
    net, optimizer, handle = attached("answering")
    stop = threading.Event()

    def answer() -> None:
        with torch.no_grad():
            while not stop.is_set():
                net(batch(0))

    thread = threading.Thread(target=answer)
    train(net, optimizer, 1)
    thread.start()
    train(net, optimizer, 20)
    stop.set()
    thread.join()
    handle.detach()


def failed() -> list[float]:
    """A batch whose backward fails is left out, as one is that needs too much memory. The loss of
    each step."""
    net, optimizer, handle = attached("failed")
    losses = []
    for turn in range(2 * STEPS):
        loss = net(batch(turn)).square().mean()
        if turn % 2 == 0:
            loss.register_hook(job.failing_gradient)
        try:
            loss.backward()
        except ValueError:
            optimizer.zero_grad()
            continue
        optimizer.step()
        losses.append(loss.item())
    handle.detach()
    return losses


def pooled() -> None:
    """Steps that two threads take in turns, and a third one that asks the model meanwhile."""
    net, optimizer, handle = attached("pooled")
    pool = [ThreadPoolExecutor(1), ThreadPoolExecutor(1)]
    for turn in range(8):
        pool[turn % 2].submit(train, net, optimizer, 1).result()
        with torch.no_grad():
            net(batch(0))
    for one in pool:
        one.shutdown()
    handle.detach()


class Checkpointed(nn.Module):  # type: ignore[misc]  # where torch is not installed
    """Computes its first part, or all of it, again in backward."""

    def __init__(self, *, reentrant: bool) -> None:
        super().__init__()
        self.net, self.reentrant = job.model(), reentrant
        self.last = nn.Linear(1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.clone().requires_grad_()
        return self.last(checkpoint(self.net, x, use_reentrant=self.reentrant))


def checkpointed(name: str, net: nn.Module, target: nn.Module, forward: Callable[..., Any]) -> Any:
    """Losses without and with the hook."""
    plain = copy.deepcopy(net)
    losses = train(plain, torch.optim.SGD(plain.parameters(), lr=1e-2))
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
    with dsprof.hook.attach(target, optimizer=optimizer, out=job.out() / name):
        watched = []
        for step in range(STEPS):
            loss = forward(batch(step)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            watched.append(loss.item().hex())
    return [losses, watched]


def checkpoints() -> dict[str, Any]:
    told = {}
    for reentrant in (False, True):
        net = Checkpointed(reentrant=reentrant)
        told[f"reentrant {reentrant}"] = checkpointed(f"reentrant {reentrant}", net, net, net)
    net = job.model()
    told["whole"] = checkpointed(
        "whole", net, net, lambda x: checkpoint(net, x, use_reentrant=False)
    )
    return told


def compiled() -> dict[str, Any]:
    """Losses of a compiled model, without the hook and attached before or after."""
    told = {}
    for order in ("plain", "attached first", "compiled first", "in place", "in place first"):
        torch.compiler.reset()
        net: Any = job.model()
        optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
        handles = []

        def attach(target: Any, optimizer: Any = optimizer, order: str = order) -> Any:
            out = job.out() / order
            return dsprof.hook.attach(target, optimizer=optimizer, out=out)

        if order in {"attached first", "in place"}:
            handles.append(attach(net))
        if order.startswith("in place"):
            net.compile(backend="eager")
        else:
            net = torch.compile(net, backend="eager")
        if order in {"compiled first", "in place first"}:
            handles.append(attach(net))
        told[order] = train(net, optimizer)
        for handle in handles:
            handle.detach()
    return told


def compiled_replicas() -> None:
    """DDP that is compiled: attached by hand, and found."""
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    for how in ("by hand", "found"):
        torch.compiler.reset()
        search = dsprof.hook.attach(out=job.out() / how) if how == "found" else None
        net = torch.compile(DistributedDataParallel(job.model()), backend="eager")
        optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
        handle = search or dsprof.hook.attach(net, optimizer=optimizer, out=job.out() / how)
        train(net, optimizer)
        handle.detach()


def asked_again() -> None:
    """A search that has found nothing yet, and another one with a folder of its own."""
    first = dsprof.hook.attach(out=job.out() / "asked first")
    again = dsprof.hook.attach(out=job.out() / "asked again")
    net = DistributedDataParallel(job.model())
    train(net, torch.optim.SGD(net.parameters(), lr=1e-2))
    again.detach()
    first.detach()


def beside_a_search() -> None:
    """A model, attached by someone who names no folder, while a search that was given one looks."""
    search = dsprof.hook.attach(out=job.out() / "beside a search")
    net = job.model()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
    handle = dsprof.hook.attach(net, optimizer=optimizer)
    train(net, optimizer, 2)
    handle.detach()
    search.detach()


def replicas_that_share() -> None:
    """An actor and a critic, the larger one, on the same trunk, each with its optimizer."""
    search = dsprof.hook.attach(out=job.out() / "shared")
    trunk = nn.Linear(job.WIDTH, job.WIDTH)
    heads = (nn.Linear(job.WIDTH, 1), nn.Sequential(nn.Linear(job.WIDTH, 9), nn.Linear(9, 1)))
    nets = [DistributedDataParallel(nn.Sequential(trunk, head)) for head in heads]
    optimizers = [torch.optim.SGD(net.parameters(), lr=1e-2) for net in nets]
    for turns in (1, 2, 2):
        for net, optimizer, steps in zip(nets, optimizers, (turns, 1), strict=True):
            train(net, optimizer, steps)
    search.detach()


def transformed() -> None:
    """The model returns its loss: a gradient of each sample, shapes alone, and a usual step."""

    class Returning(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = job.model()

        def forward(self, vectors: torch.Tensor) -> torch.Tensor:
            return self.net(vectors).square().mean()

    net, optimizer, handle = attached("transformed", Returning())
    for step in range(STEPS):
        weights = {name: one.detach() for name, one in net.named_parameters()}

        def loss_of(weights: Any, vector: torch.Tensor) -> torch.Tensor:
            return torch.func.functional_call(net, weights, (vector[None],))

        gradients = torch.vmap(torch.func.grad(loss_of), (None, 0))(weights, batch(step))
        for name, one in net.named_parameters():
            one.grad = gradients[name].mean(0)
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            net(mode.from_tensor(batch(step)))
        optimizer.step()
    net(batch(0)).backward()
    optimizer.step()
    handle.detach()


def losses_of_one(net: Any) -> None:
    output = net(batch(0))
    output.mean().backward(retain_graph=True)
    torch.autograd.backward([output.square().mean()], None, True)
    output.abs().mean().backward()


def accumulates(net: Any) -> None:
    for step in range(3):
        net(batch(step)).mean().backward()


def all_forwards_first(net: Any) -> None:
    for output in [net(batch(step)) for step in range(3)]:
        output.mean().backward()


def compares(net: Any) -> None:
    for step in range(2):
        (net(batch(step)) - net(batch(step + 1))).square().mean().backward()


def compares_in_two_ways(net: Any) -> None:
    apart = net(batch(0)) - net(batch(1))
    apart.square().mean().backward(retain_graph=True)
    apart.abs().mean().backward()


def evaluates_with_gradients(net: Any) -> None:
    for step in range(3):
        net(batch(step))
    net(batch(0)).mean().backward()


ORDERS = (
    losses_of_one, accumulates, all_forwards_first, compares, compares_in_two_ways,
    evaluates_with_gradients,
)  # fmt: skip


def in_several_orders() -> None:
    """Forwards and backwards of one step as loops have them, each in a step of its own."""
    net, optimizer, handle = attached("orders")
    for order in ORDERS:
        order(net)
        optimizer.step()
        optimizer.zero_grad()
    handle.detach()


def experiments() -> dict[str, Any]:
    result: dict[str, Any] = {
        "copies": copies(),
        "replica": replicated(),
        "scripted": scripted(),
        "nested": nested(),
        "forked": forked(),
        "checkpoints": checkpoints(),
        "failed": failed(),
        "compiled": compiled(),
        "left": {
            order: detached_in(order) for order in ("first in, first out", "last in, first out")
        },
    }
    in_the_place_of_another()
    elsewhere()
    loading_ahead()
    epochs()
    answering()
    pooled()
    compiled_replicas()
    asked_again()
    beside_a_search()
    replicas_that_share()
    transformed()
    in_several_orders()
    return result


def main() -> None:
    with failing.stderr_to(job.out() / "stderr"):
        job.finish(experiments())
