"""What to look at where steps take longer than before."""

from __future__ import annotations

from typing import Final

import pandas as pd

from dsprof.analysis.ranks import Straggler
from dsprof.analysis.trends import Level
from dsprof.findings.facts import Facts
from dsprof.findings.finding import Advice
from dsprof.findings.thresholds import WAITING_EXPLAINS

#: What to look at first if one class of time holds most of the rise.
_GREW: Final = {
    "compute": Advice(
        "samples of a batch, and their length",
        "",
        "look whether they grew",
        "batches of more or longer samples compute longer: nothing is wrong then",
    ),
    "optimizer": Advice(
        "what the optimizer keeps from step to step",
        "",
        "look whether it grew",
        "an update takes longer the more it goes through, as L-BFGS does through its history",
    ),
}

#: What to look at first if nothing tells what holds a rise that came little by little.
LITTLE_BY_LITTLE: Final = Advice(
    "samples, and what the script keeps from step to step (losses, hooks)",
    "",
    "look whether they grew, and the host's memory with them",
    "time that rises little by little is often that of something that grows",
)


def own_work(steps: pd.DataFrame, before: Level, after: Level) -> tuple[Advice, ...]:
    """What to look at first if all ranks only work longer."""
    earlier, later = (
        steps[[*_GREW, "seconds"]].iloc[level.start : level.stop].astype(float).mean()
        for level in (before, after)
    )
    more = later - earlier
    return tuple(  # none where a class is unknown
        advice
        for class_, advice in _GREW.items()
        if more[class_] >= WAITING_EXPLAINS * more["seconds"]
    )[:1]


def look(facts: Facts, late: Straggler | None, *, comes_and_goes: bool) -> tuple[Advice, ...]:
    """At what slows a host down for some time."""
    how = "come and go" if comes_and_goes else "start at one step and stay"
    whose, shows = ("CPU", "top") if facts.on_cpu else ("GPU", "nvidia-smi -q -d PERFORMANCE")
    of = f" of {late.who}" if late else ""
    return (
        Advice(
            f"{whose} clocks and neighbours{of} at that time",
            "",
            shows,
            f"thermal throttling, or a shared node or network, {how}",
        ),
    )
