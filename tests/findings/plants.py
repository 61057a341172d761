"""Runs with planted faults: small enough that every number can be worked out on paper."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pandas as pd

from dsprof.findings import RULES, Abstention, Finding, abstentions_of, findings_of
from dsprof.findings.facts import Facts
from dsprof.grammar import builtin
from dsprof.run import Run, from_events

CLASSES = {
    "data": "data",
    "forward": "compute",
    "backward": "other",  # what its parts leave of it
    "backward_inner": "compute",
    "generate": "compute",
    "recompute": "compute",
    "backward_allreduce": "communication",
    "optimizer_allgather": "communication",
    "reduce_grads": "communication",
    "forward_fetch_wait": "communication",
    "optimizer_step": "optimizer",
    "step": "optimizer",
    "swap": "offload",
    "pipe_send_output": "wait",
    "pipe_recv_grad": "wait",
    "pipe_recv_input": "wait",
    "save_checkpoint": "checkpoint",
    "barrier_in_checkpoint": "communication",
    "broadcast_in_forward": "communication",
    "all_reduce_in_forward": "communication",
    "reduce_scatter_tensor_in_forward": "communication",
    "synchronize": "other",
}

#: A step of one second of which 0.4 are collectives.
EXPOSED = {
    "forward": 0.2,
    "backward_inner": 0.35,
    "backward_allreduce": 0.3,
    "optimizer_allgather": 0.1,
    "optimizer_step": 0.05,
}

#: A step of one second that is well: 85 % compute, 10 % communication.
WELL = {
    "forward": 0.30,
    "backward_inner": 0.55,
    "backward_allreduce": 0.06,
    "optimizer_allgather": 0.04,
    "optimizer_step": 0.05,
}

_BUILTIN = builtin()
_FLAT = replace(
    next(iter(_BUILTIN.timers.values())),
    name="flat",
    sums="step",
    place="before",
    tree=CLASSES,
    aliases={},
    ignore=frozenset(),
    overlaps={},
    rough=frozenset(),
)
_GRAMMAR = replace(_BUILTIN, timers={**_BUILTIN.timers, "flat": _FLAT})

Row = dict[str, Any]


def phase(name: str, step: int, seconds: float, rank: int = 0) -> Row:
    return {
        "kind": "phase",
        "name": name,
        "raw": name,
        "step": step,
        "steps": 1,
        "rank": rank,
        "seconds": seconds,
        "timers": "flat",
    }


def metric(name: str, step: int | None, value: float | None, **more: Any) -> Row:
    column = "seconds" if name == "step_seconds" else "value"
    return {"kind": "metric", "name": name, "raw": name, "step": step, "steps": 1, "rank": 0,
            column: value} | more  # fmt: skip


def config(name: str, value: float | str) -> Row:
    column = "text" if isinstance(value, str) else "value"
    return {"kind": "config", "name": name, "raw": name, column: value}


def problem(kind: str, text: str, **more: Any) -> Row:
    return {"kind": "problem", "name": kind, "raw": kind, "text": text, "pattern": "t.p"} | more


def memory(name: str, step: int, **more: Any) -> Row:
    return {"kind": "memory", "name": name, "raw": name, "step": step, "rank": 0} | more


def memory_breakdown(step: int) -> list[Row]:
    """The six looks at memory of one step that the setting of that name prints."""
    return [
        memory("max_allocated", step, bytes=1e9, text=f"Engine {when} {what}",
               pattern="deepspeed_memory.see_memory")
        for what in ("forward", "backward", "step")
        for when in ("before", "after")
    ]  # fmt: skip


def call(op: str, step: int, size: float, seconds: float, rank: int = 0, **more: Any) -> Row:
    return {"kind": "comm", "name": op, "raw": op, "step": step, "rank": rank, "bytes": size,
            "count": 1, "seconds": seconds} | more  # fmt: skip


def recorded(op: str, step: int, size: float, exposed: float, phase: str = "") -> Row:
    """A call as a recording on the host has it: what it held up, and no duration; beside all
    phases, or in one."""
    path = f"{phase}/{op}" if phase else op
    return call(op, step, size, float("nan"), value=exposed, timers="hook", raw=path)


def steps(
    count: int, phases: Mapping[str, float], seconds: float | None = 1.0, ranks: int = 1
) -> list[Row]:
    """`count` equal steps, each rank with the same timers."""
    rows = []
    for step in range(1, count + 1):
        for rank in range(ranks):
            rows += [phase(name, step, value, rank) for name, value in phases.items()]
        if seconds is not None:
            rows.append(metric("step_seconds", step, seconds))
    return rows


def run_of(
    rows: Iterable[Row], meta: Mapping[str, Any] | None = None, **settings: float | str
) -> Run:
    """A run of these events, its configuration in `settings`."""
    told = [*(config(name, value) for name, value in settings.items()), *rows]
    common = {"segment": 0, "engine": 0, "source": "planted.log"}
    events = pd.DataFrame(
        [common | {"line": line, "record": line} | row for line, row in enumerate(told, 1)]
    )
    return from_events(events, meta=dict(meta or {}), grammar=_GRAMMAR)


def one(run: Run, rule: str) -> Finding:
    """The only finding of a rule."""
    found = [finding for finding in findings_of(run) if finding.rule == rule]
    assert len(found) == 1, (rule, [finding.title for finding in findings_of(run)])
    return found[0]


def alone(run: Run, rule: str) -> Finding:
    """`one`, where only that rule is asked: of many runs that are alike, each all over again."""
    found = RULES[rule](Facts(run))
    assert isinstance(found, list), found
    (only,) = found
    return only


def words_of(found: Finding) -> str:
    """All that it says, without its proofs."""
    return " ".join([found.title, found.summary, *(str(advice) for advice in found.advice)])


def silent(run: Run, rule: str) -> bool:
    """The rule looked, and nothing is wrong."""
    return rule not in rules(run) and why(run, rule) is None


def quiet(run: Run, rule: str) -> bool:
    """`silent`, where only that rule is asked: of many runs that are alike, each all over again."""
    return all(RULES[rule](facts) == [] for facts in run.judged)


def why(run: Run, rule: str) -> str | None:
    """Why a rule abstained; None if it did not."""
    reasons: list[Abstention] = [a for a in abstentions_of(run) if a.rule == rule]
    return reasons[0].why if reasons else None


def rules(run: Run) -> list[str]:
    return [finding.rule for finding in findings_of(run)]
