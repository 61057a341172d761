"""How large a model is and on how many ranks: under DDP, FSDP2 and a DeepSpeed engine.

Neither a device nor another rank is asked. A model that may be only a part of the job's is left
out, and so is one that is only partly trained: its gradients are fewer than its parameters.
"""

from __future__ import annotations

import math
from typing import Any

from dsprof.hook.parts import Parts


def tell(model: Any, parts: Parts) -> None:
    """Once, when recording begins. Of several models no number of parameters is the job's."""
    from torch.distributed import get_world_size, is_initialized

    writer = parts.recorder.writer
    if parts.track.number:
        writer.config("parameters", math.nan)  # what was said of the first one holds no longer
    elif is_initialized():
        for name, value in sizes_of(model, get_world_size()).items():
            writer.config(name, value)


def sizes_of(model: Any, world: int) -> dict[str, int]:
    """By the names of `events.CONFIG`; what is not known is absent."""
    kinds = {kind.__name__ for kind in type(model).__mro__}
    if "DistributedDataParallel" in kinds:
        ranks = model.process_group.size()
        is_whole = ranks == world and not model.parameters_to_ignore
    elif "FSDPModule" in kinds:
        meshes = {getattr(one, "device_mesh", None) for one in model.parameters()}
        mesh = meshes.pop() if len(meshes) == 1 else None
        if mesh is None:
            return {}
        ranks = mesh.size() if mesh.ndim == 1 else 0  # of more, some may split what FSDP shards
        is_whole = mesh.size() == world
    else:
        return {}
    told = {"parameters": parameters_of(model) if is_whole else 0, "data_parallel_size": ranks}
    return {name: size for name, size in told.items() if size}


def parameters_of(model: Any) -> int:
    """All of a model that this rank holds or shards; 0 where that is not what it reduces."""
    every = list(model.parameters())
    if not all(one.requires_grad and one.is_floating_point() for one in every):  # or it is packed
        return 0
    if not all(getattr(one, "allreduce", True) for one in every):  # experts, some on other ranks
        return 0
    return sum(getattr(one, "ds_numel", None) or one.numel() for one in every)  # ZeRO-3 keeps parts
