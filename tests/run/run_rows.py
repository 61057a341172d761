"""Hand-made events: small enough that every number can be worked out on paper."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import count
from types import SimpleNamespace
from typing import Any

import pandas as pd


def flavour(sums: str, tree: Mapping[str, str], **more: Any) -> SimpleNamespace:
    return SimpleNamespace(
        sums=sums,
        place=more.get("place", "before"),
        tree=dict(tree),
        aliases=more.get("aliases", {}),
        ignore=frozenset(more.get("ignore", ())),
        overlaps=more.get("overlaps", {}),
        rough=frozenset(),
    )


ENGINE_TREE = {
    "forward": "compute",
    "backward": "other",
    "backward/backward_inner": "compute",
    "backward/backward_allreduce": "communication",
    "step": "optimizer",
    "step/optimizer_allgather": "communication",
    "step/optimizer_step": "optimizer",
}

FLAVOURS = {
    "zero-micro": flavour(
        "micro",
        ENGINE_TREE,
        aliases={f"{name}_microstep": name for name in ("forward", "backward", "step")},
    ),
    "zero": flavour("step", ENGINE_TREE, place="end"),
    "zero-optimizer": flavour("step", ENGINE_TREE),
    "pipeline": flavour(
        "window",
        {
            "forward": "compute",
            "backward": "compute",
            "pipe_recv_grad": "wait",
            "step": "optimizer",
        },
        aliases={"forward_microstep": "forward"},
        ignore=["backward_allreduce"],
    ),
    "pipeline-p2p": flavour("window", {"pipe_recv_grad": "wait"}, place="after"),
    "deeper": flavour(
        "window",
        {
            "batch_input": "data",
            "forward": "compute",
            "backward": "compute",
            "comms": "communication",
            "comms/pipe_send_output": "wait",
            "comms/pipe_recv_grad": "wait",
            "comms/reduce_tied_grads": "communication",
            "comms/reduce_grads": "communication",
            "step": "optimizer",
            "step/_step_step": "optimizer",
        },
        ignore=["train_batch"],
        overlaps={"comms": "step/_step_step"},
    ),
    "loop": flavour("mean", {**ENGINE_TREE, "optimizer": "optimizer"}, place="after"),
    "megatron": flavour("mean", {"forward-backward": "compute", "optimizer": "optimizer"}),
    "save": flavour("step", {"save": "checkpoint"}),
    "setup": flavour("once", {}),
}


def grammar_with(flavours: Mapping[str, Any] = FLAVOURS) -> Any:
    named = {name: SimpleNamespace(**vars(one) | {"name": name}) for name, one in flavours.items()}
    return SimpleNamespace(timers=named, patterns=())  # all of a Grammar that Run reads


def events(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Rows as given, `line` counted from 1 unless said."""
    filled = [
        {"segment": 0, "engine": 0, "source": "a.log", "line": number, "record": number} | dict(row)
        for number, row in enumerate(rows, 1)
    ]
    return pd.DataFrame(filled)


#: Rows of one timer line share a record.
_RECORDS = count(1_000_000)


def timers(
    flavour_name: str, step: int, /, steps: int | None = 1, rank: int = 0, **seconds: float
) -> list[dict[str, Any]]:
    """One timer line: a row per timer."""
    record = next(_RECORDS)
    return [
        {
            "record": record,
            "kind": "phase",
            "name": name,
            "raw": name,
            "seconds": value,
            "step": step,
            "steps": steps,
            "rank": rank,
            "timers": flavour_name,
        }
        for name, value in seconds.items()
    ]


def metric(name: str, step: int, value: float, **more: Any) -> dict[str, Any]:
    column = "seconds" if name == "step_seconds" else "value"
    return {
        "kind": "metric",
        "name": name,
        "raw": name,
        "step": step,
        "steps": 1,
        column: value,
    } | more


def config(name: str, value: float | str, **more: Any) -> dict[str, Any]:
    column = "text" if isinstance(value, str) else "value"
    return {"kind": "config", "name": name, column: value} | more


def seed_line_30() -> list[dict[str, Any]]:
    """The timer line of step 30 of sample_logs/neox_pipeline_2023.log, in seconds."""
    milliseconds = {
        "train_batch": 0.0, "batch_input": 9.04, "forward": 3517.88, "pipe_send_output": 93.22,
        "comms": 44044.57, "pipe_recv_grad": 40996.54, "backward": 9708.67,
        "reduce_tied_grads": 0.25, "reduce_grads": 1930.56, "step": 1656.12,
        "_step_clipping": 0.09, "_step_step": 1654.67, "_step_zero_grad": 0.32,
        "_step_check_overflow": 0.49,
    }  # fmt: skip
    seconds: dict[str, Any] = {k: v / 1000 for k, v in milliseconds.items()}
    return [
        metric("step_seconds", 30, 5.792),
        metric("loss", 30, 9.2521),
        *timers("deeper", 30, steps=10, **seconds),
    ]
