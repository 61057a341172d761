"""Which ZeRO stage a run is of, and which of its timers hold compute and communication together.

What each optimizer of DeepSpeed prints was read from its source, v0.3.10 to v0.19.8: ZeRO-3
alone prints `init_optimizer_state` once and `optimizer_step` without other timers on its line,
at every step it does not skip; ZeRO 1 and 2 print `optimizer_gradients`, `optimizer_step` and
`optimizer_allgather` on one line; the fp16 optimizer without ZeRO prints its own. BF16_Optimizer
(bf16 parameters and fp32 gradients, stage 1 or a pipeline) gathers what it has updated, untimed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd

from dsprof.events import Class, Kind
from dsprof.grammar import TimerFlavour
from dsprof.recording.table import FLAVOUR
from dsprof.run.job.config import setting
from dsprof.run.steps.classes import SEEN
from dsprof.run.steps.words import words_of
from dsprof.run.table import LONGEST, among, numbers, of_kind, where
from dsprof.units import listed

#: Flavours of DeepSpeed's own forward, backward and step, and those of ZeRO-3 alone.
ENGINE_TIMERS: Final = frozenset({"zero", "zero-micro"})
ZERO3_TIMERS: Final = frozenset({"zero3-init", "zero3-fetch", "swap"})
SHARDED: Final = frozenset({"optimizer_gradients", "optimizer_allgather"})

#: Files of DeepSpeed's optimizers → their stages: that of ZeRO-2 is ZeRO-1's, too, since 0.3.
_CODE: Final = {
    "stage3.py": (3,),
    "stage_1_and_2.py": (1, 2),
    "stage2.py": (1, 2),
    "stage1.py": (1,),
}

#: Flavours of Megatron's own timers.
MEGATRONS: Final = ("megatron", "megatron-wrapped")

#: How flavours of pipeline engines begin.
PIPELINES: Final = ("pipeline", "deeper")

#: Flavours of timers around whole engines: what those communicate they hold, but for one kind.
AROUND: Final = ("hybrid", "rlhf")

#: Timers that hold parameter gathering wherever there is any.
GATHERING: Final = frozenset(
    {
        "forward", "backward", "backward_inner", "forward_moe",
        "forward-backward", "forward-compute", "backward-compute", "generate", "train",
    }
)  # fmt: skip

ALL: Final = (0, 1, 2, 3)

#: Why the engine's step is a mixture where no timer of the optimizer was printed.
UNTIMED: Final = "ZeRO gathers updated parameters inside step, whose parts no timer shows"

#: The timer of autograd alone, and why under ZeRO-2 it holds reduction, too.
INNER: Final = "backward_inner"
BUCKETS: Final = "ZeRO-2 reduces gradients inside backward whenever a bucket is full"
#: The same where the timers of 1 and 2 are all that is known of the stage.
PERHAPS_BUCKETS: Final = (
    "whether the ZeRO stage is 1 or 2 is not known: if it is 2, gradients are reduced inside "
    "backward whenever a bucket is full"
)

#: The same of stage 1, whose gradients have hooks where they are to overlap with backward.
OVERLAPPING: Final = (
    "ZeRO-1 with overlap_comm reduces gradients inside backward whenever a bucket is full"
)

#: Ways of sharing layers among ranks that hand activations to each other.
_SHARED: Final = ("tensor", "context", "sequence", "expert")

#: Why compute timers are a mixture where nothing else was timed.
UNSEEN: Final = "no timer shows the communication that several ranks need"


@dataclass(frozen=True)
class Zero:
    """The stages a run may be of, and why no others."""

    stages: tuple[int, ...]
    why: str

    @property
    def stage(self) -> int | None:
        """The stage, where it can be one only."""
        return self.stages[0] if len(self.stages) == 1 else None


@dataclass(frozen=True)
class Mixture:
    """Timers that hold compute and communication unseparated, and why they do."""

    names: frozenset[str]
    why: str


def zero_of(events: pd.DataFrame, config: Mapping[str, Any], lines: Collection[str] = ()) -> Zero:
    """What the job was told, else what the timers it printed (or did not print) allow, else whose
    code stands in the headers of its logger.

    Args:
        lines: `file:line` of these headers.
    """
    stated = config.get("zero_stage")
    if stated in ALL:
        return Zero((int(stated),), "the job was told so")
    timers, names = timers_of(events), _optimizer_timers(events)
    marks = (
        (timers & ZERO3_TIMERS, (3,), "only ZeRO-3 prints such timers"),
        (names & SHARDED, (1, 2), "its optimizer times gradients and gathering separately"),
        ("optimizer_step" in names, (3,), "only ZeRO-3 times optimizer_step alone"),
        ("fp16-optimizer" in timers, (0,), "only the optimizer without ZeRO has such timers"),
        *((True, stages, "only its optimizer's code logs such lines") for stages in _logged(lines)),
        (
            not _headers(lines) and "zero3_frame" in set(events["name"]),
            (3,),
            "a traceback passes through ZeRO-3's code",
        ),
    )
    return next((Zero(stages, why) for met, stages, why in marks if met), Zero(ALL, "nothing says"))


def _logged(lines: Collection[str]) -> tuple[tuple[int, ...], ...]:
    """The stages whose optimizer logged lines of its own; none where several engines differ."""
    stages = {_CODE[name] for name in _headers(lines)}
    return tuple(stages) if len(stages) == 1 else ()


def _headers(lines: Collection[str]) -> set[str]:
    """Files of optimizers that are in headers of loggers."""
    return {line.partition(":")[0] for line in lines} & _CODE.keys()


def mixture_of(
    zero: Zero,
    timers: frozenset[str],
    config: Mapping[str, Any],
    blind: frozenset[str] = frozenset(),
    untimed: frozenset[str] = frozenset(),
) -> Mixture | None:
    """What hides communication; None if nothing does, or there is nobody to talk to.

    Args:
        timers: flavours of the run.
        blind: its compute timers, if no other timer saw communication (`blind_timers`).
        untimed: timers of the whole step of the optimizer, if none tells what is inside
            (`untimed_steps`).
    """
    if not timers or config.get("world_size") == 1:
        return None
    if zero.stage == 3:
        fetches = "zero3-fetch" in timers  # forward and backward are then split by their children
        names = untimed | {"step"} if fetches else GATHERING | untimed | {"step"}
        where = "at the end of step" if fetches else "inside forward, backward and step"
        return Mixture(names, f"ZeRO-3 gathers parameters {where}")
    if 3 in zero.stages and timers & ENGINE_TIMERS:
        return Mixture(
            GATHERING,
            "the ZeRO stage is not known: if it is 3, forward and backward hold parameter "
            "gathering, and the share of communication is larger than it seems",
        )
    if untimed and 0 not in zero.stages:
        return Mixture(blind | untimed, UNTIMED + f"; {UNSEEN}" * bool(blind))
    return Mixture(blind, UNSEEN) if blind else None


def exchanged(config: Mapping[str, Any]) -> str:
    """What ranks that share layers exchange inside forward and backward, in words; "" if the source
    tells of no such ranks."""
    shared = [name for name in _SHARED if (config.get(f"{name}_parallel_size") or 1) > 1]
    verb = "exchanges" if len(shared) == 1 else "exchange"
    return f"what {listed(shared)} parallelism {verb}" if shared else ""


def fills_buckets(zero: Zero, names: Collection[str], config: Mapping[str, Any]) -> str | None:
    """Why `backward_inner`, if it is among the timers' `names`, holds reduction, too, or may.

    Not where the first bucket is known to hold all gradients: it is reduced after backward, in a
    timer of its own. Nor where one rank has nobody to reduce with.
    """
    why = {(2,): BUCKETS, (1, 2): PERHAPS_BUCKETS}.get(zero.stages)
    if zero.stage == 1 and _overlaps(names, config):
        why = OVERLAPPING
    if INNER not in names or config.get("world_size") == 1:
        return None
    sizes = (config.get(name) for name in ("parameters", "reduce_bucket_size"))
    gradients, bucket = (x if isinstance(x, int | float) else np.nan for x in sizes)
    return None if gradients <= bucket else why


def _overlaps(names: Collection[str], config: Mapping[str, Any]) -> bool:
    """Whether ZeRO-1 reduces by hooks: not beside a pipeline, for which DeepSpeed turns that off,
    nor in BF16_Optimizer, which has none and times nothing."""
    asked = setting(config.get("ds_config", {}), "zero_optimization.overlap_comm") is True
    stages = config.get("pipeline_parallel_size", 1)
    return asked and stages == 1 and not SHARDED.isdisjoint(names)


def blind_timers(events: pd.DataFrame, flavours: Mapping[str, TimerFlavour]) -> frozenset[str]:
    """Compute timers of a log whose timers ran around no communication; none if one did.

    A pipeline's engine communicates between its compute timers, not inside them.
    """
    rows = of_kind(events[["kind", "step", "timers", "name", "seconds"]], Kind.PHASE)
    if any(name.startswith(PIPELINES) for name in timers_of(where(rows, rows["step"].notna()))):
        return frozenset()
    flavoured = timers_of(rows)
    rows = where(rows, among(rows["timers"], flavoured) & rows["step"].notna().to_numpy())
    words, which = words_of(rows, flavours)
    classes = np.array([str(word.class_) for word in words], dtype=object)[which]
    seconds = numbers(rows["seconds"])
    seconds = np.where((seconds >= 0) & (seconds <= LONGEST), seconds, 0.0)
    inside = np.isin(classes, [Class.COMMUNICATION, Class.WAIT]) & ~among(rows["timers"], AROUND)
    moving = seconds[inside].sum()
    if moving >= SEEN * seconds.sum():
        return frozenset()
    return frozenset(word.name for word in words if word.class_ == Class.COMPUTE)


def untimed_steps(events: pd.DataFrame) -> frozenset[str]:
    """`step`, where the engine timed it and no optimizer of this log timed its parts.

    Or Megatron's `optimizer`, which is DeepSpeed's step where that is Megatron's engine: an
    optimizer of Megatron's own times its parts (Megatron-LM, optimizer.py).
    """
    timers = timers_of(events)
    timed = "fp16-optimizer" in timers or _optimizer_timers(events)
    if timers & ENGINE_TIMERS and not timed:
        return frozenset({"step"})
    names = _words(where(events[["name"]], among(events["timers"], MEGATRONS))["name"])
    parts = any(name.startswith("optimizer-") for name in names)
    return frozenset() if parts or timed else names & {"optimizer"}


def timers_of(events: pd.DataFrame) -> frozenset[str]:
    """Flavours of the timer lines of a log; those of a recording are of another kind."""
    return _words(events["timers"]) - {FLAVOUR}


def _words(column: pd.Series[Any]) -> frozenset[str]:
    """The categories that a column holds."""
    held = np.bincount(column.cat.codes.to_numpy() + np.int64(1), minlength=1)[1:]
    return frozenset(str(column.cat.categories[code]) for code in np.flatnonzero(held).tolist())


def _optimizer_timers(events: pd.DataFrame) -> frozenset[str]:
    return _words(where(events[["name"]], among(events["timers"], ["zero-optimizer"]))["name"])
