"""How a job is distributed over its GPUs, as far as its source tells."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dsprof.recording.launches import is_every_rank_recorded
from dsprof.run.job.config import setting as in_json

_ELEMENT_BYTES = {"fp16": 2, "bf16": 2, "fp32": 4}
_DATA_PARALLEL_ONLY = ("deepspeed", "huggingface", "deepspeed-chat")


@dataclass(frozen=True, slots=True)
class Layout:
    """Sizes of a job; None if the source does not tell."""

    world_size: int | None = None
    nodes: int | None = None
    data_parallel: int | None = None
    tensor_parallel: int | None = None
    stages: int | None = None  # of the pipeline
    chunks: int | None = None  # of the model in each stage; 1 if stages are not interleaved
    zero_bubble: bool = False  # a schedule that fills the bubble with gradients of weights
    micro_batches: int | None = None  # per optimizer step and replica
    samples: int | None = None  # per optimizer step, over all ranks
    zero_stage: int | None = None
    parameters: float | None = None
    element_bytes: int | None = None
    link_bytes_per_second: float | None = None

    @property
    def replica_bytes(self) -> float | None:
        """Bytes of one replica's parameters that cross one node's link.

        Tensor-parallel ranks share the link of their node; pipeline stages are on different nodes.
        """
        if self.parameters is None or self.element_bytes is None or self.stages is None:
            return None
        return self.parameters * self.element_bytes / self.stages


def offloads_optimizer(config: Mapping[str, Any]) -> bool:
    """Whether the optimizer states are known to be offloaded from the GPU."""
    return config.get("offload_optimizer") in ("cpu", "nvme")


def layout_of(
    config: Mapping[str, Any], meta: Mapping[str, Any], *, pipeline: bool = False
) -> Layout:
    """The layout that configuration and metadata state or imply.

    Args:
        config: `Run.config`.
        meta: `Run.meta`.
        pipeline: whether the run has pipeline timers. Without them, a plain DeepSpeed job that
            states no tensor or pipeline parallelism has none, by DeepSpeed's own defaults. Megatron
            and GPT-NeoX jobs usually have both, so nothing is assumed for them.
    """
    known = {**meta, **{key: value for key, value in config.items() if value is not None}}
    plain = not pipeline and known.get("framework") in _DATA_PARALLEL_ONLY
    world = _whole(known.get("world_size"))
    tensor = _whole(known.get("tensor_parallel_size")) or (1 if plain else None)
    stages = _whole(known.get("pipeline_parallel_size")) or (1 if plain else None)
    data = _whole(known.get("data_parallel_size"))
    if data is None and tensor and stages:
        data = _quotient(world, tensor * stages)
    batch = _setting_or(known, config, "train_batch_size", "train_batch_size")
    micro = _setting_or(known, config, "micro_batch_size", "train_micro_batch_size_per_gpu")
    accumulation = _setting_or(
        known, config, "gradient_accumulation_steps", "gradient_accumulation_steps"
    )
    if accumulation is None and batch and micro and data:
        accumulation = _quotient(batch, micro * data)
    return Layout(
        world_size=world,
        nodes=_whole(known.get("nodes")) or _hosts(known),
        data_parallel=data,
        tensor_parallel=tensor,
        stages=stages,
        chunks=_chunks(known, config),
        zero_bubble=known.get("pipeline_schedule") == "zero-bubble",
        micro_batches=accumulation,
        samples=batch,
        zero_stage=_zero_stage(known, config),
        parameters=_parameters(known, tensor, stages),
        element_bytes=_element_bytes(known, config),
        link_bytes_per_second=known.get("link_bytes_per_second"),
    )


def setting(config: Mapping[str, Any], path: str) -> Any:
    """The value at a dotted path in the job's DeepSpeed JSON; None if unset or "auto"."""
    return in_json(ds_config(config), path)


def ds_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The job's DeepSpeed JSON from `Run.config`; empty if the source does not show it."""
    value = config.get("ds_config")
    return value if isinstance(value, Mapping) else {}


def _whole(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return int(value) if value > 0 else None


def _quotient(total: int | None, part: int) -> int | None:
    return total // part if total and part and total % part == 0 else None


def _setting_or(
    known: Mapping[str, Any], config: Mapping[str, Any], name: str, path: str
) -> int | None:
    return _whole(known.get(name)) or _whole(setting(config, path))


def _chunks(known: Mapping[str, Any], config: Mapping[str, Any]) -> int | None:
    """DeepSpeed's pipeline engine interleaves no stages."""
    stated = _whole(known.get("virtual_pipeline_parallel_size"))
    by_deepspeed = known.get("framework") in ("deepspeed", "gpt-neox") or ds_config(config)
    return stated or (1 if by_deepspeed else None)


def _hosts(known: Mapping[str, Any]) -> int | None:
    """The number of hosts that were seen. A single one counts only if every rank of the job was
    recorded there, because others may not have been recorded.
    """
    hosts = known.get("hosts") or ()
    return len(hosts) if len(hosts) > 1 or (hosts and is_every_rank_recorded(known)) else None


def _zero_stage(known: Mapping[str, Any], config: Mapping[str, Any]) -> int | None:
    for value in (known.get("zero_stage"), setting(config, "zero_optimization.stage")):
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 3:
            return int(value)
    return None


def _parameters(known: Mapping[str, Any], tensor: int | None, stages: int | None) -> float | None:
    if known.get("parameters"):
        return float(known["parameters"])
    if known.get("parameters_per_gpu") and tensor and stages:
        return float(known["parameters_per_gpu"]) * tensor * stages
    return None


def _element_bytes(known: Mapping[str, Any], config: Mapping[str, Any]) -> int | None:
    if known.get("dtype") in _ELEMENT_BYTES:
        return _ELEMENT_BYTES[known["dtype"]]
    if setting(config, "fp16.enabled") or setting(config, "bf16.enabled"):
        return 2
    return 4 if ds_config(config) else None
