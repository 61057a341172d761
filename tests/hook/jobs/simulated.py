"""Training on a simulated GPU that is slower than its host: ZeRO, DDP and FSDP2.

Results are, by kind, what each step but the first took, and how long the device waited in it for
communication.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist
from deepspeed.accelerator import set_accelerator
from deepspeed.accelerator.cpu_accelerator import CPU_Accelerator
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import dsprof.hook
from tests.hook.jobs import job
from tests.hook.simulated import DEVICE, Event, Stream, install

STEPS, MANY = 8, 24
WIDTH, LAYERS = 512, 4
FORWARD, BACKWARD, UPDATE = 0.003, 0.006, 0.004  # seconds, the first two of a layer
LATE = 2.5  # times as long is the forward of rank 1, in kinds of that name; `small` ones take none
SECONDS_PER_BYTE = 8e-9  # 8.4 ms for a layer's gradients
RECORD, WAIT = Event.record, Event.wait  # as the hook does not see them
KINDS = ("zero1", "zero1,small", "zero2,apart", "zero3", "zero3,late", "ddp,late")
FSDP2 = ("fsdp2", "fsdp2,late")


class Kernel(torch.autograd.Function):  # type: ignore[misc]
    """Work of the device in forward, and in backward."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, seconds: tuple[float, float]) -> torch.Tensor:
        now, ctx.later = seconds
        DEVICE.works(now)
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        DEVICE.works(ctx.later)
        return gradients[0].clone(), None


class Layer(nn.Linear):  # type: ignore[misc]
    seconds = FORWARD, BACKWARD

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return Kernel.apply(super().forward(value), self.seconds)


class Updating(torch.optim.SGD):  # type: ignore[misc]
    def step(self, *args: Any, **kwargs: Any) -> Any:
        DEVICE.works(UPDATE)
        return super().step(*args, **kwargs)


class Accelerator(CPU_Accelerator):  # type: ignore[misc]
    """DeepSpeed's, of the simulated GPU."""

    Event, Stream = Event, Stream

    def is_synchronized_device(self) -> bool:
        return False

    def synchronize(self, *_: Any) -> None:
        torch.cuda.synchronize()

    def current_stream(self, *_: Any) -> Any:
        return DEVICE.current

    def default_stream(self, *_: Any) -> Any:
        return DEVICE.compute

    def stream(self, stream: Any) -> Any:
        return DEVICE.on(stream)


class Reducing(DistributedDataParallel):  # type: ignore[misc]
    """Its reducer is C++ and waits in C++: here the device does what that would make it do. Each
    layer's gradients are a bucket; the stream waits for the last at the end of backward.
    """

    def __init__(self, net: nn.Module) -> None:
        super().__init__(net)
        self.reduced: list[Event] = []
        for layer in net.children():
            layer.bias.register_post_accumulate_grad_hook(self._issue)

    def _issue(self, bias: torch.Tensor) -> None:
        if not self.reduced:
            torch.autograd.Variable._execution_engine.queue_callback(self._waits)
        self.reduced.append(DEVICE.collective(bias.nbytes * (WIDTH + 1)))

    def _waits(self) -> None:
        for event in self.reduced:
            WAIT(event)
        self.reduced.clear()


def engine(stage: int, net: nn.Module, **zero: Any) -> Any:
    import deepspeed

    config = {
        "train_micro_batch_size_per_gpu": 8,
        "zero_optimization": {"stage": stage, "reduce_bucket_size": WIDTH * (WIDTH + 1), **zero},
        "zero_allow_untested_optimizer": True,
        "steps_per_print": 1_000_000,
    }
    return deepspeed.initialize(
        model=net, optimizer=Updating(net.parameters(), lr=1e-3), config=config
    )[0]


def model(kind: str) -> nn.Sequential:
    net = nn.Sequential(*(Layer(WIDTH, WIDTH) for _ in range(LAYERS)))
    late, small = "late" in kind and job.rank() == 1, "small" in kind
    for layer in net:
        layer.seconds = FORWARD * (LATE if late else 1), BACKWARD
        if small:
            layer.seconds = 0.0, 0.0
    return net


def built(kind: str) -> tuple[Any, Any]:
    """What trains, and its optimizer unless it is an engine."""
    net, made = model(kind), kind.partition(",")[0]
    if made.startswith("zero"):
        gathering: Any = {
            "stage3_prefetch_bucket_size": WIDTH * WIDTH,
            "stage3_max_live_parameters": 2 * WIDTH * WIDTH,
            "stage3_param_persistence_threshold": 0,
        }
        stage = int(made.removeprefix("zero"))
        overlap = {"overlap_comm": "apart" not in kind}
        return engine(stage, net, **overlap, **(gathering if stage == 3 else {})), None
    if made == "fsdp2":
        for layer in net:
            job.fully_shard()(layer)
        job.fully_shard()(net)
        trained: nn.Module = net
    else:
        trained = Reducing(net)
    return trained, Updating(trained.parameters(), lr=1e-3)


def timed(
    steps: int, does: Callable[[int], None], seconds_of: Callable[[int], float]
) -> list[tuple[float, float]]:
    """Does that many steps. Of each but the first: how long the device took, and waited for
    communication.

    Args:
        seconds_of: what a collective of so many bytes takes.
    """
    DEVICE.compute.exposed.clear()
    DEVICE.seconds_of, ends = seconds_of, list[Event]()
    for step in range(steps):
        does(step)
        ends.append(Event())
        RECORD(ends[-1])
    DEVICE.settle()
    DEVICE.seconds_of = None
    at = [end.at or 0.0 for end in ends]
    return [
        (end - begin, sum(wait for when, wait in DEVICE.compute.exposed if begin < when <= end))
        for begin, end in pairwise(at)
    ]


def train(kind: str) -> list[tuple[float, float]]:
    trained, optimizer = built(kind)
    given = {} if optimizer is None else {"optimizer": optimizer}

    def does(step: int) -> None:
        loss = trained(job.batch(step, WIDTH)).square().mean()
        if optimizer is None:
            trained.backward(loss)
            trained.step()
        else:
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

    dist.barrier()
    with dsprof.hook.attach(trained, out=job.out() / kind, **given):
        steps = MANY if {"late", "small"} & {*kind.split(",")} else STEPS
        return timed(steps, does, lambda size: size * SECONDS_PER_BYTE)


def main() -> None:
    set_accelerator(Accelerator())
    job.start_deepspeed()
    install(job.out() / "board")
    kinds = KINDS + FSDP2 if job.fully_shard() else KINDS
    job.finish({kind: train(kind) for kind in kinds})
