"""The barrier of c10d's store, in which the ranks of a new process group wait for each other."""

from __future__ import annotations

import re
from typing import Final

from dsprof.findings.finding import Advice

#: Of the barrier of c10d's store: how many ranks there are, and how many have come.
_BARRIER: Final = re.compile(
    r"world_size=(?P<size>\d{1,6}), (?:worker_count|num_workers_joined)=(?P<come>\d{1,6})"
)
_COME: Final = re.compile(r"(?P<come>\d{1,6}) of (?P<size>\d{1,6}) ranks have come")
_OF_LATER_GROUP: Final = re.compile(r"store_based_barrier_key:(?!1\b)\d{1,6}")
_TOO_MANY: Final = Advice(
    "MASTER_PORT",
    "",
    "one that no other launch uses; end what is left of earlier ones",
    "more workers than the job has are counted in its store: some are of another launch",
)
_OF_GROUP: Final = Advice(
    "torch.distributed.new_group()",
    "",
    "called by every rank, with a longer timeout where some come late",
    "it is the barrier of a later process group than the first: the ranks had met before",
)


def against_barrier(text: str) -> tuple[Advice, ...]:
    """What the barrier's own count asks for; empty where some may never have reached the store."""
    counted = _BARRIER.search(text) or _COME.search(text)
    if counted and int(counted["come"]) > int(counted["size"]):
        return (_TOO_MANY,)
    return (_OF_GROUP,) if _OF_LATER_GROUP.search(text) else ()
