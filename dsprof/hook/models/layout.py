"""How ranks share the work of a DeepSpeed engine, and how many samples its steps have."""

from __future__ import annotations

from typing import Any

from dsprof.hook.models.sizes import parameters_of


def sizes(engine: Any) -> dict[str, int]:
    """Sizes by their names in `events.CONFIG`; those that the engine does not tell are absent."""
    stages = getattr(engine, "num_stages", None)  # only a pipeline has it
    model = getattr(engine, "mp_world_size", None)  # ranks per replica, pipeline stages included
    found = {
        "data_parallel_size": _replicas(engine),
        "tensor_parallel_size": model // (stages or 1) if model else None,
        "pipeline_parallel_size": stages,
        "sequence_parallel_size": getattr(engine, "sequence_parallel_size", None),
        "expert_parallel_size": _experts(engine),
        "train_batch_size": samples(engine),
        "parameters": _parameters(engine, stages),
    }
    return {name: int(size) for name, size in found.items() if size}


def _experts(engine: Any) -> int:
    """Over how many ranks the experts of its layers are spread, at most; 0 without any."""
    if not getattr(engine, "has_moe_layers", False):
        return 0
    sizes = [getattr(layer, "ep_size", 0) for layer in engine.module.modules()]
    return max((size for size in sizes if isinstance(size, int)), default=0)


def _parameters(engine: Any, stages: int | None) -> int:
    """Parameters of the model if each rank holds all of it or its ZeRO shard of it; else 0."""
    replicas, world = _replicas(engine), getattr(engine, "world_size", None)
    sharing = getattr(engine, "sequence_parallel_size", None) or 1
    if stages or not replicas or not world or replicas * sharing != world:
        return 0
    return parameters_of(engine.module)


class Batch:
    """Samples per step of an engine, over all ranks. Most steps have the configured number."""

    def __init__(self, engine: Any) -> None:
        self._configured = samples(engine)
        self._settings = self._told(engine, engine.gradient_accumulation_steps())

    def other(self, engine: Any, micros: int) -> int | None:
        """Samples of a step of `micros` micro-batches if they differ from the configured number;
        else None.
        """
        if self._told(engine, micros) == self._settings:  # shortcut, because every step asks
            return None
        found = samples(engine, micros)
        return None if found == self._configured else found

    @staticmethod
    def _told(engine: Any, micros: int) -> tuple[int, int]:
        return engine.train_batch_size(), micros


def samples(engine: Any, micros: int = 0) -> int | None:
    """Samples of one optimizer step, over all ranks.

    The step has the configured number of micro-batches, or `micros` if more ran, as under `no_sync`
    or where the loop decides by itself when to step.

    DeepSpeed's own number is not used if possible: where it created the tensor-parallel group
    itself (AutoTP), it counts the group's samples once for each of its ranks.
    """
    replicas = _replicas(engine)
    if replicas is None:
        return engine.train_batch_size()  # type: ignore[no-any-return]
    accumulated = max(engine.gradient_accumulation_steps(), micros)
    return int(engine.train_micro_batch_size_per_gpu() * accumulated * replicas)


def _replicas(engine: Any) -> int | None:
    """Number of model replicas, each with its own samples; None if unknown.

    The engine may not account for sequence parallelism, nor its configuration for tensor
    parallelism, so the smaller number is right.
    """
    settings = getattr(engine, "_config", None)
    told = (getattr(engine, "dp_world_size", None), getattr(settings, "world_size", None))
    known = [int(one) for one in told if one]
    return min(known) if known else None
