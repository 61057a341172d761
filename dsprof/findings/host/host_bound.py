"""GPUs that wait for the host between their kernels."""

from __future__ import annotations

from typing import Final, NamedTuple

import pandas as pd

from dsprof.analysis.ahead import forwards
from dsprof.events import Class, Severity
from dsprof.findings.evidence import largest, row_evidence
from dsprof.findings.facts import Facts, once, promise
from dsprof.findings.finding import Advice, Evidence, Finding
from dsprof.findings.seen.places import look_into
from dsprof.findings.thresholds import (
    HOST_BOUND_CRITICAL,
    HOST_BOUND_FORWARDS,
    HOST_BOUND_SAMPLES,
    HOST_BOUND_TOGETHER,
    HOST_BOUND_WARNING,
    grade,
)
from dsprof.run.table import within
from dsprof.units import format_seconds, format_share

_RANKS: Final = 8
#: Counter of `dsprof.events.GPU`: percent of the time in which at least one kernel ran.
_BUSY: Final = "utilization"
#: Classes in which the compute stream has kernels, its own or those of NCCL, which it waits for.
_KERNELS: Final = (Class.COMPUTE, Class.OPTIMIZER, Class.COMMUNICATION, Class.WAIT)


@once
def host_bound(facts: Facts) -> list[Finding] | str:
    """GPUs have no kernel to run for part of the phases that compute.

    NVML tells how much of the time no kernel runs; what exceeds the other time of a step, in which
    none need run, lies in those phases, at least. Gain: at best all of that.
    """
    if facts.run.config.get("phases_on") != "gpu":
        return "no phases in the time of a GPU: only a recording on one has them"
    if facts.breakdown is None or facts.too_few:
        return facts.too_few or "no step was recorded"
    idle, together = _idle(facts), _together(facts)
    if idle is None:
        share, severity = None, Severity.INFO if together else None
    else:
        share = facts.share(idle.seconds) or 0.0
        severity = grade(share, HOST_BOUND_WARNING, HOST_BOUND_CRITICAL)
    if severity is None:
        return []
    return [
        Finding(
            rule="host-bound",
            severity=severity,
            title=_UNTOLD if share is None else _TITLE.format(format_share(share)),
            summary=_why(facts) + (_sampled(facts, idle) if idle else _NO_SAMPLES),
            share=share,
            seconds_per_step=idle.seconds if idle else None,
            phase="forward" if together else None,
            evidence=_lines(_forwards(facts)) if together else (),
            advice=_ADVICE,
            gain=promise(idle.seconds) if idle else None,
            confidence="low" if idle is None else "high" if together else "medium",
        )
    ]


class Idle(NamedTuple):
    """A step in which no kernel runs though it is in phases that have kernels."""

    seconds: float  # at least
    samples: int  # by which that is known
    busy: float  # share of the time in which a kernel runs, 0 to 1


def _why(facts: Facts) -> str:
    """What forwards tell of it."""
    looked = _forwards(facts)
    if len(looked) < HOST_BOUND_FORWARDS:
        return ""
    seen = _SEEN.format(int(looked["at_once"].sum()), len(looked))
    return seen + (_EITHER if _together(facts) else _ELSEWHERE)


_TITLE: Final = "The GPUs have nothing to run for at least {} of each step, while it computes"
_UNTOLD: Final = "The host is not ahead of its GPU, which may idle between kernels"
_SAMPLED: Final = (
    "At least one kernel runs in {} of the time (NVML, mean of {:,} samples), though only {} of a "
    "step is spent where none need run."
)
_SEEN: Final = "In {:,} of {:,} forwards the GPU has nothing left to do when the host ends them"
_EITHER: Final = (
    ": the host launches kernels no faster than the GPU runs them, or waits for the GPU inside (a "
    "number that is read, nonzero(), a mask that is looked at). "
)
_ELSEWHERE: Final = "; in the others the host is ahead: it is not there that the GPUs wait. "
_NO_SAMPLES: Final = "How long the GPU idles is unknown: there are no samples of how busy it is."
_ADVICE: Final = (
    Advice(
        "torch.compile, CUDA graphs or fused kernels",
        "",
        "use one",
        "fewer launches: what the host takes for each is longer than the kernel",
    ),
    Advice(
        "train_micro_batch_size_per_gpu", "", "larger", "kernels run longer, launches take the same"
    ),
    Advice(
        ".item(), nonzero() and copies to the host inside the model",
        "",
        "avoid",
        "each makes the host wait for the GPU, which then waits for the host",
    ),
)


@once
def _forwards(facts: Facts) -> pd.DataFrame:
    """Those of some of the steps and ranks, see `forwards`."""
    steps, ranks = look_into(facts, _RANKS, facts.steps)
    return forwards(facts.run.moments(steps, ranks=ranks))


@once
def _together(facts: Facts) -> bool:
    """Whether the GPU is done with nearly every forward as soon as the host is."""
    looked = _forwards(facts)
    enough = len(looked) >= HOST_BOUND_FORWARDS
    return enough and bool(looked["at_once"].mean() >= HOST_BOUND_TOGETHER)


def _idle(facts: Facts) -> Idle | None:
    """None if there are too few samples."""
    rows = within(facts.steps, facts.run.gpu, "segment")
    steps = facts.steps["step"]
    rows = rows[(rows["name"] == _BUSY) & rows["value"].notna() & rows["rank"].notna()]
    rows = rows[rows["step"].between(int(steps.iloc[0]), int(steps.iloc[-1])).fillna(value=False)]
    if len(rows) < HOST_BOUND_SAMPLES or facts.step_seconds is None:
        return None
    busy = float(rows["value"].mean()) / 100
    free = (1 - busy) * facts.step_seconds
    return Idle(max(0.0, free - _without_kernels(facts)), len(rows), busy)


def _sampled(facts: Facts, idle: Idle) -> str:
    free = facts.share(_without_kernels(facts)) or 0.0
    return _SAMPLED.format(format_share(idle.busy), idle.samples, format_share(free))


def _without_kernels(facts: Facts) -> float:
    """Seconds of a step in which the GPU need not run any: the host updates what is offloaded."""
    on_host = facts.seconds_of(Class.OPTIMIZER) if facts.is_offloaded else 0.0
    busy = (facts.seconds_of(*_KERNELS) or 0.0) - (on_host or 0.0)
    return max(0.0, (facts.step_seconds or 0.0) - busy)


def _lines(looked: pd.DataFrame) -> tuple[Evidence, ...]:
    """The longest such forward."""
    held = looked[looked["at_once"]]
    if held.empty:
        return ()
    row = largest(held, "seconds")
    behind = format_seconds(max(0.0, float(row["behind"])))
    return (
        row_evidence(
            row,
            f"rank {int(row['rank'])}, step {int(row['step']):,}: forward takes "
            f"{format_seconds(row['seconds'])} on the GPU and is over {behind} after the host",
        ),
    )
