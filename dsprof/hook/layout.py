"""How ranks share the work of a DeepSpeed engine, and how many samples a step of it has."""

from __future__ import annotations

from typing import Any

from dsprof.hook.sizes import parameters_of


def sizes(engine: Any) -> dict[str, int]:
    """By the names of `events.CONFIG`; what the engine does not say is absent."""
    stages = getattr(engine, "num_stages", None)  # of a pipeline alone
    model = getattr(engine, "mp_world_size", None)  # ranks that share one copy: stages, too
    found = {
        "data_parallel_size": _replicas(engine),
        "tensor_parallel_size": model // (stages or 1) if model else None,
        "pipeline_parallel_size": stages,
        "sequence_parallel_size": getattr(engine, "sequence_parallel_size", None),
        "train_batch_size": samples(engine),
        "parameters": _parameters(engine, stages),
    }
    return {name: int(size) for name, size in found.items() if size}


def _parameters(engine: Any, stages: int | None) -> int:
    """Of an engine whose every rank has all of the model, if only in shards of ZeRO; else 0."""
    replicas, world = _replicas(engine), getattr(engine, "world_size", None)
    sharing = getattr(engine, "sequence_parallel_size", None) or 1
    if stages or not replicas or not world or replicas * sharing != world:
        return 0
    return parameters_of(engine.module)


class Batch:
    """Samples of an engine's steps, all ranks: most have as many as it is configured for."""

    def __init__(self, engine: Any) -> None:
        self._configured = samples(engine)
        self._settings = self._told(engine, engine.gradient_accumulation_steps())

    def other(self, engine: Any, micros: int) -> int | None:
        """Samples of a step of `micros` micro-batches, where it has others than configured."""
        if self._told(engine, micros) == self._settings:  # as ever: asked at each step's end
            return None
        found = samples(engine, micros)
        return None if found == self._configured else found

    @staticmethod
    def _told(engine: Any, micros: int) -> tuple[int, int]:
        return engine.train_batch_size(), micros


def samples(engine: Any, micros: int = 0) -> int | None:
    """Samples of one optimizer step, all ranks: of as many micro-batches as are configured, or of
    `micros` where more ran, as under `no_sync` or where the loop says by itself when to step.

    DeepSpeed's own number counts the samples of a tensor parallel group once for each of its
    ranks, where it made that group by itself (AutoTP).
    """
    replicas = _replicas(engine)
    if replicas is None:
        return engine.train_batch_size()  # type: ignore[no-any-return]
    accumulated = max(engine.gradient_accumulation_steps(), micros)
    return int(engine.train_micro_batch_size_per_gpu() * accumulated * replicas)


def _replicas(engine: Any) -> int | None:
    """Copies of the model with samples of their own. The engine may not know of ranks that share
    a sequence, its configuration not of those that share tensors: the smaller number holds."""
    settings = getattr(engine, "_config", None)
    told = (getattr(engine, "dp_world_size", None), getattr(settings, "world_size", None))
    known = [int(one) for one in told if one]
    return min(known) if known else None
