"""Number of parameters of a model and of its ranks, under DDP, FSDP2 and a DeepSpeed engine.

This needs no device access and no communication. The number of parameters is not given if the model
may be only a part of the job's, or if it is only partly trained, so that there are fewer gradients
than parameters.
"""

from __future__ import annotations

import math
from typing import Any, Final

from dsprof.hook.models.parts import Parts


def tell(model: Any, parts: Parts) -> None:
    """Record the sizes once, when recording of a model begins. With several models, no number of
    parameters is that of the job.
    """
    from torch.distributed import get_world_size, is_initialized

    writer = parts.recorder.writer
    if parts.track.number:
        writer.config("parameters", math.nan)  # revokes that of the first model
    elif is_initialized():
        for name, value in sizes_of(model, get_world_size()).items():
            writer.config(name, value)
        if wrapper := wrapper_of(model):
            writer.config("wrapper", wrapper)


#: What shares a model among ranks: the name of its class, and its own.
_WRAPPERS: Final = {"DistributedDataParallel": "DDP", "FSDPModule": "FSDP2"}


def wrapper_of(model: Any) -> str | None:
    """What of PyTorch's wraps a model: DDP or FSDP2; None for any other, as Megatron's own DDP."""
    kinds = (one.__name__ for one in type(model).__mro__ if one.__module__.startswith("torch."))
    return next((_WRAPPERS[kind] for kind in kinds if kind in _WRAPPERS), None)


def wrapped_in(model: Any) -> Any:
    """The model, or what is wrapped inside it and holds all its parameters, as the network in a
    LightningModule is.
    """
    if wrapper_of(model):
        return model
    held = {id(one) for one in model.parameters()}
    inner = (part for part in model.modules() if wrapper_of(part))
    whole = (part for part in inner if held == {id(one) for one in part.parameters()})
    return next(whole, model)


def sizes_of(model: Any, world: int) -> dict[str, int]:
    """Sizes by their names in `events.CONFIG`; unknown ones are absent."""
    wrapper = wrapper_of(model)
    if wrapper == "DDP":
        ranks = model.process_group.size()
        is_whole = ranks == world and not model.parameters_to_ignore
    elif wrapper == "FSDP2":
        meshes = {getattr(one, "device_mesh", None) for one in model.parameters()}
        mesh = meshes.pop() if len(meshes) == 1 else None
        if mesh is None:
            return {}
        ranks = mesh.size() if mesh.ndim == 1 else 0  # other dimensions may be tensor parallel
        is_whole = mesh.size() == world
    else:
        return {}
    told = {"parameters": parameters_of(model) if is_whole else 0, "data_parallel_size": ranks}
    return {name: size for name, size in told.items() if size}


def parameters_of(model: Any) -> int:
    """Number of parameters of a model, also if this rank holds only a shard of each.

    0 if they are not exactly those whose gradients are reduced.
    """
    every = list(model.parameters())
    if not all(one.requires_grad and one.is_floating_point() for one in every):  # or quantized
        return 0
    if not all(getattr(one, "allreduce", True) for one in every):  # experts, some elsewhere
        return 0
    return sum(getattr(one, "ds_numel", None) or one.numel() for one in every)  # ZeRO-3: shards
