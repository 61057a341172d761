"""Ranks that work unequally long, often in turns: the others wait, but for none in particular."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from dsprof.analysis.checkpoints import apart_from_saves
from dsprof.analysis.collectives import TOGETHER, during_steps, operations
from dsprof.analysis.uneven import Uneven, uneven
from dsprof.analysis.whatif import waits_for_input
from dsprof.findings.communication.gathers import stall_seconds
from dsprof.findings.communication.small_messages import small_seconds
from dsprof.findings.facts import Facts, once
from dsprof.findings.ranks.accounted import late_seconds
from dsprof.findings.seen.unseen import calls_unseen
from dsprof.run.table import where

#: DDP's broadcast of its buffers in each forward: little more than the start-up of a call, and
#: where others wait longer, rank 0 came later.
BUFFERS: Final = "broadcast_in_forward"
_MEETINGS: Final = re.compile(f"{TOGETHER.pattern}|{BUFFERS}$", re.ASCII)


def uneven_work(facts: Facts, seconds: float) -> Uneven | None:
    """The part of `seconds` of communication that is due to uneven work of the ranks, at least.

    The rest of the communication belongs to other findings. That may be uneven work, too, so it is
    subtracted, except where the finding has none of it. None unless every rank is recorded, and all
    meet in the same calls.
    """
    if not _comparable(facts):
        return None
    found = uneven(apart_from_saves(facts.compared), _MEETINGS)
    if found is None or not _all_meet(facts):
        return None
    without = stall_seconds(facts) + small_seconds(facts)
    elsewhere = max((facts.seconds_of("communication") or 0.0) - without - seconds, 0.0)
    return replace(found, seconds=max(min(found.seconds, seconds) - elsewhere, 0.0))


@once
def input_seconds(facts: Facts) -> float:
    """The part of communication in which ranks wait for one whose input comes later, in turns: if
    it is always the same one, `straggler-rank` accounts for it. 0 where that is not known.
    """
    if not _comparable(facts) or facts.replay is None or late_seconds(facts):
        return 0.0
    found = waits_for_input(facts.replay[0])
    return min(found, facts.seconds_of("communication") or 0.0) if _all_meet(facts) else 0.0


def _comparable(facts: Facts) -> bool:
    return facts.run.is_recording and not facts.is_pipeline and not calls_unseen(facts)


def _all_meet(facts: Facts) -> bool:
    """Whether every call of the steps is of a group that holds all ranks."""
    comm = during_steps(facts.run.comm, facts.steps)
    groups = where(comm, operations(comm, TOGETHER))["group"].dropna().astype("str")
    every = f" ranks 0-{(facts.layout.world_size or 0) - 1}"
    return bool(len(groups)) and bool(groups.str.endswith(every).all())
