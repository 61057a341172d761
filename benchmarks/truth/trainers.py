"""One training step of each kind of job, with places where faults can be planted."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.debugging_hooks import noop_hook
from torch.utils.data import DataLoader, Dataset

from benchmarks.truth.books import Books, asleep
from benchmarks.truth.cases import Job

BATCH = 4
ENDLESS = 1 << 30


class _Computing(torch.autograd.Function):  # type: ignore[misc]  # where torch is not installed
    """Takes its time in forward, and twice that in backward."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, seconds: float, books: Books) -> torch.Tensor:
        ctx.seconds, ctx.books = seconds, books
        books.device[books.step] += asleep(seconds)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        ctx.books.device[ctx.books.step] += asleep(2 * ctx.seconds)
        return gradient, None, None


class _Planted(torch.autograd.Function):  # type: ignore[misc]
    """The places "forward" and "backward"."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, books: Books) -> torch.Tensor:
        ctx.books = books
        books.point("forward")
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        ctx.books.point("backward")
        return gradient, None


class Block(nn.Module):  # type: ignore[misc]
    """A linear layer that computes as long as it is told to."""

    def __init__(self, width: int, seconds: float, books: Books) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.seconds, self.books = seconds, books

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _Computing.apply(x + self.linear(x), self.seconds, self.books)


class Head(nn.Module):  # type: ignore[misc]
    def __init__(self, width: int, books: Books) -> None:
        super().__init__()
        self.linear = nn.Linear(width, 1)
        self.books = books

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(_Planted.apply(x, self.books))


def layers(job: Job, books: Books) -> list[nn.Module]:
    torch.manual_seed(0)
    blocks = [Block(job.width, job.compute, books) for _ in range(job.depth)]
    return [*blocks, Head(job.width, books)]


class Samples(Dataset):  # type: ignore[misc]
    """Random vectors, the same ones for the same index."""

    def __init__(self, width: int) -> None:
        self.width = width

    def __len__(self) -> int:
        return ENDLESS

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        vector = torch.randn(self.width, generator=torch.Generator().manual_seed(index))
        return vector, vector[:1]


def batches(job: Job, books: Books) -> Iterator[Any]:
    """Batches out of a `DataLoader`, where the place "data" is."""

    def collate(samples: list[Any]) -> Any:
        books.point("data")
        return torch.utils.data.default_collate(samples)

    return iter(DataLoader(Samples(job.width), batch_size=BATCH, collate_fn=collate))


def loss_of(output: torch.Tensor, wanted: torch.Tensor, books: Books) -> torch.Tensor:
    loss = nn.functional.mse_loss(output, wanted.to(output.dtype))
    for place in ("inf", "nan"):
        if books.due(place):
            loss = loss * float(place)
    return loss


@dataclass(frozen=True)
class Trainer:
    """A job that is ready.

    Attributes:
        target: the engine or model.
        fetch: gives what one optimizer step works on.
        step: does that step.
        inner: the optimizer of torch's.
        optimizer: the same where there is no engine that has it.
    """

    target: Any
    fetch: Callable[[], Any]
    step: Callable[[Any], None]
    inner: Any
    optimizer: Any = None


def make(job: Job, books: Books) -> Trainer:
    if job.kind == "pipe":
        return _pipeline(job, books)
    if job.kind.startswith("zero"):
        return _engine(job, books)
    return _model(job, books)


def ds_config(job: Job) -> dict[str, Any]:
    """The engine's JSON: it says at each step what it can."""
    stage = int(job.kind[-1]) if job.kind.startswith("zero") else 0
    settings = dict(job.settings)
    return {
        "train_micro_batch_size_per_gpu": BATCH,
        "gradient_accumulation_steps": job.micro,
        "optimizer": {"type": "SGD", "params": {"lr": 1e-4}},
        "zero_allow_untested_optimizer": True,
        "zero_optimization": {"stage": stage, **settings.pop("zero_optimization", {})},
        "steps_per_print": 1,
        "log_level": "info",
        # DeepSpeed 0.18.3 to 0.19.8 starts a pipeline's timers twice, and fails.
        "wall_clock_breakdown": job.kind != "pipe",
        **settings,
    }


def _engine(job: Job, books: Books) -> Trainer:
    import deepspeed

    net = nn.Sequential(*layers(job, books))
    engine = deepspeed.initialize(
        model=net, model_parameters=net.parameters(), config=ds_config(job)
    )[0]
    loader = batches(job, books)
    dtype = next(net.parameters()).dtype

    def step(batches: Any) -> None:
        skipped = engine.skipped_steps
        for vectors, wanted in batches:
            engine.backward(loss_of(engine(vectors.to(dtype)), wanted, books))
            engine.step()
        books.skipped += engine.skipped_steps - skipped

    def fetch() -> Any:
        """All of a step's batches; of one after the other where there is more to do between."""
        return [next(loader)] if job.micro == 1 else islice(loader, job.micro)

    return Trainer(engine, fetch, step, engine.basic_optimizer)


def _pipeline(job: Job, books: Books) -> Trainer:
    import deepspeed
    from deepspeed.pipe import PipelineModule

    net = PipelineModule(
        layers(job, books), num_stages=dist.get_world_size(), partition_method="type:Block",
        loss_fn=lambda output, wanted: loss_of(output, wanted, books),
    )  # fmt: skip
    engine = deepspeed.initialize(
        model=net, model_parameters=net.parameters(), config=ds_config(job)
    )[0]
    loader = batches(job, books)

    def step(batches: Any) -> None:
        engine.train_batch(batches)  # by name: a recorder may have put its own there

    return Trainer(engine, lambda: loader, step, engine.basic_optimizer)


def _model(job: Job, books: Books) -> Trainer:
    net: Any = nn.Sequential(*layers(job, books))
    if job.kind == "fsdp2":
        from torch.distributed.fsdp import fully_shard

        for layer in net:
            fully_shard(layer)
        fully_shard(net)
    else:
        net = nn.parallel.DistributedDataParallel(net, bucket_cap_mb=job.bucket_mb)
        if job.silent:
            net.register_comm_hook(None, noop_hook)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4)
    loader = batches(job, books)

    def step(batch: Any) -> None:
        vectors, wanted = batch
        loss_of(net(vectors), wanted, books).backward()
        optimizer.step()
        optimizer.zero_grad()

    return Trainer(net, lambda: next(loader), step, optimizer, optimizer)


class _Done:
    """What a collective that moves nothing hands back."""

    def wait(self, *_: Any) -> bool:
        return True

    def is_completed(self) -> bool:
        return True


#: Where all collectives of Python pass through, by their names of torch 2.4 to 2.13.
_COLLECTIVES = (
    "allreduce", "allreduce_coalesced", "allgather", "_allgather_base", "reduce", "broadcast",
    "all_gather_single", "all_gather_single_coalesced", "allgather_into_tensor_coalesced",
    "reduce_scatter", "_reduce_scatter_base", "reduce_scatter_single",
    "reduce_scatter_single_coalesced", "reduce_scatter_tensor_coalesced",
)  # fmt: skip


@contextlib.contextmanager
def silence(which: str) -> Iterator[None]:
    """Collectives named so return at once and move nothing: a step without their network."""
    group = dist.ProcessGroup
    names = [name for name in _COLLECTIVES if which and (which == "." or which in name)]
    kept = {name: vars(group)[name] for name in names if name in vars(group)}
    for name in kept:
        setattr(group, name, lambda *_, **__: _Done())
    try:
        yield
    finally:
        for name, method in kept.items():
            setattr(group, name, method)
