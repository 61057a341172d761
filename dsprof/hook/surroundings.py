"""What the process was given that decides how fast it is: variables of its environment, cores."""

from __future__ import annotations

import os
from typing import Any, Final

from dsprof.events import ENVIRONMENT, NCCL_SWITCHES

_VARIABLES: Final = (*NCCL_SWITCHES, "OMP_NUM_THREADS")


def config() -> dict[str, Any]:
    """By names of `events.CONFIG`; a variable as `env.NAME`, where it is set."""
    import torch

    found: dict[str, Any] = {
        f"{ENVIRONMENT}{name}": os.environ[name] for name in _VARIABLES if name in os.environ
    }
    found["cpu_threads"], found["cpu_cores"] = torch.get_num_threads(), _cores()
    ranks = os.environ.get("LOCAL_WORLD_SIZE", "")
    return found | ({"local_ranks": int(ranks)} if ranks.isdecimal() else {})


def _cores() -> int:
    """That it may use; all of the host where the system does not tell."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
