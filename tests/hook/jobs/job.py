"""What the jobs share: a small model, two gloo ranks, and a result file a rank."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch._C._distributed_c10d as c10d
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

NO_FSDP2 = "before PyTorch 2.7 FSDP2, where there is one, needs a GPU"
WIDTH = 64
#: PyTorch's operators that issue a collective, by the words that they begin with, and how the
#: Flight Recorder names it on gloo. That, too, leaves gloo's sends and receives out.
ISSUING = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reduce_scatter": "all_reduce",  # as which gloo carries it out
    "alltoall": "all_to_all",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "gather": "gather",
    "scatter": "scatter",
    "barrier": "barrier",
}


def out() -> Path:
    return Path(sys.argv[1])


def model(depth: int = 3, width: int = WIDTH) -> nn.Sequential:
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, 1))


@cache
def fully_shard() -> Any:
    """FSDP2 where there is one. What it imports takes half a second, and most jobs need none."""
    from torch.distributed import fsdp

    if not hasattr(torch.cpu.Stream, "record_event"):  # it asks a CPU for it, too
        return None
    return getattr(fsdp, "fully_shard", None)


def sharded(net: nn.Module) -> Any:
    """Under FSDP2, or under DDP where there is no other."""
    return (fully_shard() or DistributedDataParallel)(net)


def batch(step: int, width: int = WIDTH) -> torch.Tensor:
    generator = torch.Generator().manual_seed(step * 2 + dist.get_rank())
    return torch.randn(8, width, generator=generator)


def failing_gradient(_: torch.Tensor) -> None:
    """As a hook of a loss: its backward fails."""
    raise ValueError


def flown() -> list[str]:
    """Operations that the Flight Recorder has seen, in order."""
    if not hasattr(c10d, "_dump_fr_trace_json"):
        return []
    entries = json.loads(c10d._dump_fr_trace_json(True)).get("entries") or []
    return [entry["profiling_name"].removeprefix("gloo:") for entry in entries]


def issued() -> list[str] | torch.autograd.profiler.profile:
    """What `since` is to be told; where the Flight Recorder knows nothing of gloo (it does since
    PyTorch 2.8), a profile counts instead."""
    dist.barrier()
    return flown() or torch.autograd.profiler.profile().__enter__()


@contextmanager
def attached(nets: Any, optimizers: Any, kind: str, *, watched: bool) -> Iterator[None]:
    """Each model with its optimizer, recorded in a folder named `kind` if they are `watched`."""
    import dsprof.hook

    handles = [
        dsprof.hook.attach(net, optimizer=optimizer, out=out() / kind)
        for net, optimizer in zip(nets, optimizers, strict=True)
        if watched
    ]
    yield
    for handle in handles:
        handle.detach()


def each_kind(kinds: Iterable[str], train: Callable[[str], Any]) -> dict[str, Any]:
    """What each kind of training gives, or a sentence why this PyTorch cannot."""
    return {
        kind: NO_FSDP2 if "fsdp2" in kind and not fully_shard() else train(kind) for kind in kinds
    }


def since(before: list[str] | torch.autograd.profiler.profile) -> dict[str, int]:
    """How often each collective was issued, by PyTorch's own account.

    A profile is asked for the operators of who issued them. Gloo's own spans (`gloo:...`) end in
    its threads, after who waits may go on: a profile that ends then lacks the last of them.
    """
    if isinstance(before, list):
        return dict(Counter(flown()[len(before) :]))
    before.__exit__(None, None, None)
    names = (event.name for event in before.function_events or ())
    operators = (name[6:].lstrip("_") for name in names if name.startswith("c10d::"))
    return dict(Counter(filter(None, map(_carried_out, operators))))


def _carried_out(operator: str) -> str | None:
    """None: no collective."""
    return next((name for word, name in ISSUING.items() if operator.startswith(word)), None)


def start_deepspeed() -> None:
    import deepspeed

    # Else old versions ask `numactl`, which is not everywhere, how many there may be.
    os.environ.setdefault("LOCAL_SIZE", os.environ["WORLD_SIZE"])
    # Else DeepSpeed compiles a shared-memory collective: half a minute of g++ at the first run.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    # It refuses fp16 on CPUs without an instruction for it, where PyTorch computes it all the same.
    deepspeed.accelerator.get_accelerator().is_fp16_supported = lambda: True
    deepspeed.init_distributed(dist_backend="gloo")


def engine(stage: int, accumulation: int, net: Any = None, groups: Any = None, **more: Any) -> Any:
    import deepspeed

    net = net or model()
    config = {
        "train_micro_batch_size_per_gpu": 8,
        "gradient_accumulation_steps": accumulation,
        "gradient_clipping": 1.0,
        "optimizer": {"type": "Adam", "params": {"lr": 1e-2, "torch_adam": True}},
        "zero_optimization": {"stage": stage},
        "steps_per_print": 1_000_000,
        **more,
    }
    return deepspeed.initialize(
        model=net, model_parameters=groups or net.parameters(), config=config
    )[0]


def finish(result: dict[str, Any]) -> None:
    name = out() / f"result-{rank()}.json"
    name.write_text(json.dumps(result), encoding="utf-8")
    if not dist.is_initialized():
        return
    dist.barrier()
    dist.destroy_process_group()


def rank() -> int:
    return int(os.environ.get("RANK", "0"))
