"""Jobs that run out of a host's memory before their first step: what they were loading."""

from __future__ import annotations

from typing import Final

import pandas as pd

from dsprof.findings.advice import fewer_workers, offload_less
from dsprof.findings.facts import Facts
from dsprof.findings.failures.ends import ended_launch
from dsprof.findings.finding import Advice
from dsprof.run.table import among
from dsprof.units import format_count

_OF_MODEL: Final = Advice(
    "loading of the model",
    "",
    "low_cpu_mem_usage=True, or under deepspeed.zero.Init()",
    "each process holds a copy of its own in the host's memory while it loads",
)
_OF_CHECKPOINT: Final = Advice(
    "loading of the checkpoint",
    "",
    "with more host memory, or fewer processes a host",
    "each process reads its states from files beside those that it has made",
)


def said_of_loading(facts: Facts) -> str:
    """What it had read of its weights or its checkpoint, where it ended before any step."""
    told = _before_steps(facts)
    read, total = _weights(told)
    if read < total:
        return f" It had read {format_count(read)} of {format_count(total)} parts of its weights."
    if _reads_checkpoint(told):
        return " It was loading a checkpoint, whose ZeRO states it had read."
    return " It had read its weights, and had done no step." if total else ""


def reads_weights(facts: Facts) -> bool:
    """Whether it ended while it read its weights."""
    read, total = _weights(_before_steps(facts))
    return read < total


def less_in_memory(facts: Facts) -> tuple[Advice, ...]:
    """What needs less of a host's memory: of what it was loading, or else of what trains. Workers
    begin to make batches when the loop asks for the first one, behind the set-up."""
    told = _before_steps(facts)
    if _reads_checkpoint(told):
        return (_OF_CHECKPOINT,)
    if _weights(told)[1]:
        return (_OF_MODEL,)
    sets_up = among(told["name"], ["op_load", "extension_begun"]).any()
    return (*(() if sets_up else fewer_workers(facts)), *offload_less(facts))


def _before_steps(facts: Facts) -> pd.DataFrame:
    """The events of the launch that ended; none if it has done a step, or a bar's turn."""
    told = facts.run.told
    mine = told[told["segment"] == ended_launch(facts.run)]
    begun = mine["step"].notna().any() or among(mine["name"], ["bar_position"]).any()
    return mine.head(0) if begun else mine


def _weights(told: pd.DataFrame) -> tuple[int, int]:
    """How many parts of the weights the last bar says to be read, and how many there are."""
    read, total = (told.loc[among(told["name"], [name]), "value"] for name in _BAR)
    return (int(read.iloc[-1]), int(total.iloc[-1])) if len(read) and len(total) else (0, 0)


_BAR: Final = ("weights_read", "weights")


def _reads_checkpoint(told: pd.DataFrame) -> bool:
    return bool(among(told["name"], ["checkpoint_shards_read"]).any())
