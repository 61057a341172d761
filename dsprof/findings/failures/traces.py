"""ZeRO-3's trace of the modules that run: by it parameters are gathered ahead, on all ranks."""

from __future__ import annotations

from typing import Final

import pandas as pd

from dsprof.findings.failures.ends import ended_launch
from dsprof.findings.finding import Advice
from dsprof.run import Run
from dsprof.run.table import where

LEAVES: Final = Advice(
    "deepspeed.utils.set_z3_leaf_modules",
    "",
    "the blocks of which each batch uses other parts, such as experts",
    "each rank then gathers all of such a block, whichever part runs (DeepSpeed 0.13 and later)",
)


def lost(run: Run) -> pd.DataFrame:
    """The lines that say that other modules ran than in the trace, or in another order."""
    return where(run.problems, run.problems["kind"] == "prefetch-broken")


def said_if_lost(run: Run, inside: str) -> str:
    """What it may have to do with a gather that timed out (` in ALLGATHER, call 7`), in the launch
    that ended; else ""."""
    rows = lost(run)
    many = int((rows["segment"] == ended_launch(run)).sum()) if "ALLGATHER" in inside else 0
    if not many:
        return ""
    times = f"{many:,} times" if many > 1 else "once"
    return (
        f" ZeRO-3 lost its trace of modules {times}: other modules ran than before. Ranks that run "
        "different ones gather different parameters, and wait for each other for ever."
    )
