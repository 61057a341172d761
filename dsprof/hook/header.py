"""What the header of a recording says of its process: rank, launch, versions, and what it was given
that decides how fast it is.
"""

from __future__ import annotations

import os
import socket
import sys
import uuid
from collections.abc import Mapping
from types import FrameType
from typing import Any, Final

from dsprof.events import ENVIRONMENT, NCCL_SWITCHES
from dsprof.hook.process.cpu import Limit
from dsprof.recording.alive import pid_namespace

_VARIABLES: Final = (*NCCL_SWITCHES, "OMP_NUM_THREADS")
_LIBRARIES: Final = ("torch", "deepspeed", "transformers", "accelerate")


def header_of(
    config: Mapping[str, Any], before: str | None, *, shares_launch: bool
) -> dict[str, Any]:
    """The header, but for what every writer adds.

    Args:
        config: settings of what is recorded.
        before: the recording of the same process that this one continues.
        shares_launch: with all ranks of the job, which number their steps alike.
    """
    rank, world = _rank()
    header = {
        "host": socket.gethostname(),
        "rank": rank,
        "world": world,
        "local_rank": int(os.environ.get("LOCAL_RANK") or os.environ.get("SLURM_LOCALID") or 0),
        "restart": int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")),
        "launch": _shared_launch() if shares_launch else _launch(),
        "pids": pid_namespace(),
        "versions": _versions(),
        "config": environment() | _loop() | dict(config),
    }
    return header | ({"continues": before} if before else {})


def environment() -> dict[str, Any]:
    """Threads, cores and variables, by names of `events.CONFIG`; a variable as `env.NAME`, where it
    is set.
    """
    import torch

    found: dict[str, Any] = {
        f"{ENVIRONMENT}{name}": os.environ[name] for name in _VARIABLES if name in os.environ
    }
    found["cpu_threads"], found["cpu_cores"] = torch.get_num_threads(), _cores()
    limit = Limit().cpus
    if limit:
        found["cpu_limit"] = limit
    ranks = os.environ.get("LOCAL_WORLD_SIZE", "")
    return found | ({"local_ranks": int(ranks)} if ranks.isdecimal() else {})


def _loop() -> dict[str, str]:
    """Whose loop calls, as far as that has settings of its own: those of libraries that build on
    Hugging Face's Trainer (TRL, LLaMA-Factory, ms-swift) are called as its are."""
    frame: FrameType | None = sys._getframe()  # noqa: SLF001
    while frame is not None:
        if frame.f_globals.get("__name__") == "transformers.trainer":
            return {"trainer": "huggingface"}
        frame = frame.f_back
    return {}


def _cores() -> int:
    """The cores that this process may use; all of the host where the system does not tell."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _rank() -> tuple[int, int]:
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def _shared_launch() -> str:
    """A word that identifies this launch, the same on all ranks if they share a store.

    The first rank to call this decides: each node may have been given a word of its own, as when
    `torchrun` is started by hand on every node.
    """
    import torch.distributed as dist

    word = _launch()
    if not (dist.is_available() and dist.is_initialized()):
        return word
    store = dist.distributed_c10d._get_default_store()  # noqa: SLF001
    try:  # the store of the rendezvous: no collective is needed and no rank waits for another
        return str(store.compare_set("dsprof/launch", "", word or uuid.uuid4().hex).decode())
    except RuntimeError:  # a store that does not support this, or that is closed
        return word


def _launch() -> str:
    """The word by which the environment identifies this launch; "" if it has none."""
    names = ("DSPROF_LAUNCH", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID")
    words = [os.environ[name] for name in names if os.environ.get(name, "none") != "none"]
    return words[0] if words else ""


def _versions() -> dict[str, str]:
    """Versions of the libraries that are already imported. Attaching never imports any of them."""
    loaded = {name: sys.modules[name] for name in _LIBRARIES if name in sys.modules}
    found = {name: str(getattr(module, "__version__", "")) for name, module in loaded.items()}
    return found | {"python": ".".join(map(str, sys.version_info[:3]))}
