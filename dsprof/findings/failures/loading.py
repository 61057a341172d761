"""Jobs that run out of a host's memory before their first step: what they were loading."""

from __future__ import annotations

from typing import Final

from dsprof.events import Kind
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


#: Of a bar of weights: how many of their parts are read, and how many there are.
_BAR: Final = ("weights_read", "weights")
_READ: Final = "checkpoint_shards_read"
_SET_UP: Final = ("op_load", "extension_begun")
#: How patterns begin of which it is not told what a job was doing: DeepSpeed's reports on memory,
#: and what says that something failed.
_ASIDE: Final = ("deepspeed_memory.", "failures.", "launcher.")


def said_of_loading(facts: Facts) -> str:
    """What it had read of its weights or its checkpoint, if that is the last that is told of it."""
    last = _last_told(facts)
    read, total = _weights(facts)
    if last in _BAR and read < total:
        return f" It had read {format_count(read)} of {format_count(total)} parts of its weights."
    whats = {_READ: "ZeRO's states of a checkpoint"} | dict.fromkeys(_BAR, "its weights")
    what = whats.get(last)
    return f" The last that is told before is that it had read {what}." if what else ""


def reads_weights(facts: Facts) -> bool:
    """Whether it ended while it read its weights."""
    read, total = _weights(facts)
    return _last_told(facts) in _BAR and read < total


def less_in_memory(facts: Facts) -> tuple[Advice, ...]:
    """What needs less of a host's memory: of what it was loading, and else of what trains. Workers
    begin to make batches when the loop asks for the first one, behind the set-up."""
    last = _last_told(facts)
    if reads_weights(facts):
        return (_OF_MODEL,)
    loads = {_READ: _OF_CHECKPOINT} | dict.fromkeys(_BAR, _OF_MODEL)
    first = (loads[last],) if last in loads else ()
    return (*first, *(() if last in _SET_UP else fewer_workers(facts)), *offload_less(facts))


def _last_told(facts: Facts) -> str:
    """What the launch that ended tells last, but for failures; "" if it has done a step, or a bar's
    turn."""
    told = facts.run.told
    mine = told[told["segment"] == ended_launch(facts.run)]
    if mine["step"].notna().any() or among(mine["name"], ["bar_position"]).any():
        return ""
    aside = mine["pattern"].astype("str").str.startswith(_ASIDE).to_numpy(bool, na_value=False)
    names = mine["name"][~(aside | mine["kind"].eq(Kind.PROBLEM).to_numpy(bool))]
    return str(names.iloc[-1]) if len(names) else ""


def _weights(facts: Facts) -> tuple[int, int]:
    """How many parts of the weights the last bar says to be read, and how many there are."""
    told = facts.run.told
    mine = told[told["segment"] == ended_launch(facts.run)]
    read, total = (mine.loc[among(mine["name"], [name]), "value"] for name in _BAR)
    return (int(read.iloc[-1]), int(total.iloc[-1])) if len(read) and len(total) else (0, 0)
