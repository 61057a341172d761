"""What the job is: framework, versions, ranks, hosts, layout, batch sizes, sources."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pandas as pd

_FROM_CONFIG: Final = (
    "world_size", "nodes", "zero_stage", "micro_batch_size", "gradient_accumulation_steps",
    "train_batch_size", "data_parallel_size", "tensor_parallel_size", "pipeline_parallel_size",
    "expert_parallel_size", "sequence_parallel_size", "parameters", "dtype",
)  # fmt: skip


def meta(
    events: pd.DataFrame, config: Mapping[str, Any], facts: Mapping[str, Any]
) -> dict[str, Any]:
    """What is known, under the canonical names; what is not known is absent."""
    known = {name: config[name] for name in _FROM_CONFIG if name in config}
    hosts = [str(host) for host in events["host"].dropna().unique()]
    sources = list(facts.get("sources") or map(str, events["source"].dropna().unique()))
    return {**known, **({"hosts": hosts} if hosts else {}), "sources": sources}
