"""PyTorch's Flight Recorder, which counts the collectives that a process issues."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Counted(NamedTuple):
    """What the Flight Recorder has counted in this process."""

    total: int
    point_to_point: bool  # whether it also counts point-to-point calls


def counted() -> Counted | None:
    """The Flight Recorder's count; None if this PyTorch has none, or none that dumps JSON (< 2.6).

    A PyTorch for CUDA has two since 2.8, one for NCCL and one for all other backends.
    """
    import torch._C._distributed_c10d as c10d

    names = ("_dump_fr_trace_json", "_dump_nccl_trace_json")
    found = [_counted_by(getattr(c10d, name)) for name in names if hasattr(c10d, name)]
    if not found:
        return None
    return Counted(sum(one.total for one in found), any(one.point_to_point for one in found))


def _counted_by(dumping: Callable[..., Any]) -> Counted:
    import json

    dump = json.loads(dumping(includeCollectives=True))
    entries = dump.get("entries") or []
    total = int(entries[-1]["record_id"]) + 1 if entries else 0
    return Counted(total, any(entry.get("is_p2p") for entry in entries))
