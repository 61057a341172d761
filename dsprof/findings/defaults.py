"""What DeepSpeed takes for a key that its JSON does not set, and which versions have the key.

Sources: docs/_pages/config-json.md, and the configuration of each release, 0.3.1 to 0.19.8.
"""

from __future__ import annotations

from typing import Any, Final

from dsprof.findings.facts import Facts
from dsprof.findings.versions import is_known, predates
from dsprof.run.releases import parse

DEFAULTS: Final[dict[str, Any]] = {
    "zero_optimization.reduce_bucket_size": 5e8,
    "zero_optimization.allgather_bucket_size": 5e8,
    "zero_optimization.stage3_prefetch_bucket_size": 5e7,
    "zero_optimization.stage3_param_persistence_threshold": 1e5,
    "zero_optimization.stage3_max_live_parameters": 1e9,
    "zero_optimization.overlap_comm": False,  # of stages 1 and 2; true for 3
    "zero_optimization.offload_optimizer.pin_memory": False,
    "zero_optimization.offload_optimizer.pipeline_read": False,
    "zero_optimization.offload_optimizer.pipeline_write": False,
    "zero_optimization.offload_optimizer.ratio": 1.0,
    "checkpoint.parallel_write.pipeline_stage": False,
    "optimizer.params.torch_adam": False,
    "bf16.enabled": False,
}

#: Key -> the version from which on it is another, and that one.
_SINCE: Final[dict[str, tuple[str, Any]]] = {
    "zero_optimization.offload_optimizer.pin_memory": ("0.19.5", True),
}

#: Key, or what it begins with -> the first release that has it.
_FIRST: Final = {
    "bf16": "0.6.0",
    "checkpoint.parallel_write": "0.7.4",
    "comms_logger": "0.7.0",
    "zero_optimization.offload_optimizer": "0.3.12",
    "zero_optimization.offload_optimizer.ratio": "0.12.3",
}


def default_of(facts: Facts, path: str) -> Any:
    """What this job's DeepSpeed takes where the key is not set; None where that is not known."""
    version, later = _SINCE.get(path, ("", None))
    if not version or predates(facts, version):
        return DEFAULTS.get(path)
    first = parse(version)
    return later if is_known(facts, lambda oldest, _: oldest >= first) else None


def has_key(facts: Facts, path: str) -> bool:
    """False where this job's DeepSpeed surely knows no such key, and so would not obey it."""
    return not facts.shows_deepspeed or not any(
        f"{path}.".startswith(f"{key}.") and predates(facts, version)
        for key, version in _FIRST.items()
    )
