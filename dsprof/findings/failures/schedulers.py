"""Why a scheduler ended a job, and what helps."""

from __future__ import annotations

import re
from typing import Final

from dsprof.findings.finding import Advice

_TIME: Final = r"TIME LIMIT|walltime|RUNLIMIT|its timeout of "

#: What a scheduler gives as its reason -> what helps.
_BY_REASON: Final = {
    _TIME: Advice(
        "time limit of the job",
        "",
        "longer, or resume from a checkpoint",
        "the scheduler ended the job, not one of its ranks",
    ),
    r"MEMLIMIT|\bmem ": Advice(
        "memory that the job asks for",
        "",
        "more; or fewer workers of data loaders, less on the host",
        "the scheduler ended the job, which took more than that",
    ),
    r"PREEMPTION|REQUEUE|^Preempted |worker preemption": Advice(
        "checkpoints",
        "",
        "often, and resume from the last one",
        "the scheduler gave the nodes to another job",
    ),
    r"low on resource: memory": Advice(
        "resources.requests.memory",
        "",
        "as much as the job uses",
        "of pods that use more than they asked for, Kubernetes ends the largest first",
    ),
    r"low on resource: (?:ephemeral-storage|inodes)": Advice(
        "resources.requests.ephemeral-storage",
        "",
        "as much as the job writes there; or caches and checkpoints on a volume",
        "the disk of the node was full, by this pod or by others",
    ),
    r"NODE FAILURE|^Node failure": Advice(
        "sinfo -R", "", "leave that node out (--exclude)", "a node failed, not a rank"
    ),
}


def against_reason(text: str) -> tuple[Advice, ...]:
    """What helps against the reason that its line gives; empty if it gives none that is known."""
    return tuple(advice for reason, advice in _BY_REASON.items() if re.search(reason, text))


def may_be_time(text: str) -> bool:
    """Whether the job may have taken too long: its line says so, or gives no known reason."""
    return bool(re.search(_TIME, text)) or not against_reason(text)
