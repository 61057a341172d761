"""Process groups and their names in the recording."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any


class Group:
    """What the recording keeps about a process group."""

    __slots__ = ("blocks_host", "id", "ref", "sequence")

    def __init__(
        self, group: Any, id_: int, gone: Callable[[Any], object], *, blocks_host: bool
    ) -> None:
        self.ref = weakref.ref(group, gone)  # keeping a group alive would change how training ends
        self.id = id_
        self.blocks_host = blocks_host  # as with gloo, where a wait ends when the data has arrived
        self.sequence = 0


def told_of(group: Any) -> tuple[str, str]:
    """Name and backend of a group, with its ranks, or their number if PyTorch does not know them.

    PyTorch does not know the ranks of groups that a library created for itself.
    """
    import torch.distributed as dist

    try:
        ranks = _ranges(sorted(dist.get_process_group_ranks(group)))
        return f"{_name_of(group)} ranks {ranks}", dist.get_backend(group)
    except (KeyError, ValueError):
        return f"{_name_of(group)} of {group.size()} ranks".lstrip(), group.name()


def _name_of(group: Any) -> str:
    """PyTorch's name of the group; the group itself knows it since PyTorch 2.2."""
    from torch.distributed.distributed_c10d import _world

    known = hasattr(group, "group_name")
    return str(group.group_name if known else _world.pg_names.get(group, ""))


def _ranges(ranks: list[int]) -> str:
    """[0, 1, 2, 5] as "0-2,5"."""
    parts: list[list[int]] = []
    for rank in ranks:
        if parts and rank == parts[-1][1] + 1:
            parts[-1][1] = rank
        else:
            parts.append([rank, rank])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)
