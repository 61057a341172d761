"""Everything that attaching may touch, by identity: what is changed afterwards was not restored."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import torch
from torch._C._distributed_c10d import ProcessGroup, Work
from torch.optim import optimizer as optimizers
from torch.utils.data.dataloader import _BaseDataLoaderIter

Held = dict[str, tuple[Any, dict[str, Any]]]


def look(*owners: Any) -> Held:
    """What classes, modules and `owners` hold now; training itself changes no callable."""
    every = [
        torch, torch.Tensor, ProcessGroup, Work, _BaseDataLoaderIter, torch.cuda, torch.cuda.Stream,
        torch.nn.Module, torch.nn.parallel.DistributedDataParallel, torch.optim.Optimizer, *owners,
    ]  # fmt: skip
    every += [
        sys.modules[name] for name in ("deepspeed", "torch.distributed.fsdp") if name in sys.modules
    ]
    held: Held = {f"{_name(owner)} {id(owner)}": (owner, _callables(owner)) for owner in every}
    held["meta_path"] = sys, {str(place): finder for place, finder in enumerate(sys.meta_path)}
    held["hooks"] = optimizers, {"steps": len(optimizers._global_optimizer_post_hooks)}
    return held


def changed(held: Held) -> list[str]:
    """Names of what is not the object it was then."""
    owners = [owner for owner, _ in held.values()]
    now = look(*owners)
    return sorted(
        f"{place}.{name}"
        for place, (_, before) in held.items()
        for name in before.keys() | now[place][1].keys()
        if before.get(name) is not now[place][1].get(name)
    )


def _name(owner: Any) -> str:
    return owner.__name__ if isinstance(owner, type | ModuleType) else type(owner).__name__


def _callables(owner: Any) -> dict[str, Any]:
    found = {name: value for name, value in vars(owner).items() if callable(value)}
    found.pop("_exec_instr", None)  # what a pipeline engine did last, by its own note
    for hooks in ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks"):
        found |= {f"{hooks} {key}": hook for key, hook in vars(owner).get(hooks, {}).items()}
    if "_INSTRUCTION_MAP" in vars(owner):
        found["_INSTRUCTION_MAP"] = vars(owner)["_INSTRUCTION_MAP"]
    return found
