"""How large a model is and on how many ranks, where its wrapper tells: under DDP and FSDP2.

Neither a device nor another rank is asked. A model that may be only a part of the job's is left
out.
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
    parameters = list(model.parameters())
    is_whole = is_whole and all(one.is_floating_point() for one in parameters)  # none is packed
    told = {"parameters": sum(one.numel() for one in parameters) if is_whole else 0}
    return {name: size for name, size in (told | {"data_parallel_size": ranks}).items() if size}
