"""TraceML on the same jobs, and its verdicts translated into ours.

It runs as its own guide says: `traceml run`, `traceml.init(mode="auto")`, batches fetched before
`trace_step(model)`, one launch per case, and as many steps as dsprof sees. While it summarises a
case whose training is over, the next launch starts up; no two train at the same time. What counts
is `primary_diagnosis` of its final summary and, if that names no bottleneck, a warning of its
memory and process sections: the most favourable reading of "what does it say first".
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.truth.cases import Case
from benchmarks.truth.launch import RANKS, ROOT, VARIABLES, interpreter, throttled

#: Its word, and the rules whose faults it stands for. RESIDUAL_HEAVY sends its reader to
#: logging, checkpointing and validation, so it is right where the host stops beside training.
MEANING: Final[dict[str, tuple[str, ...]]] = {
    "INPUT_BOUND": ("data-bound",),
    "INPUT_STRAGGLER": ("straggler-rank",),
    "COMPUTE_STRAGGLER": ("straggler-rank",),
    "H2D_STRAGGLER": ("straggler-rank",),
    "STRAGGLER": ("straggler-rank",),
    "RESIDUAL_HEAVY": ("checkpoint-stall", "step-spikes"),
    "CREEP_EARLY": ("memory-growth",),
    "CREEP_CONFIRMED": ("memory-growth",),
    "HIGH_PROCESS_RSS": ("memory-growth",),
    "HIGH_HOST_MEMORY": ("memory-growth",),
    "COMPUTE_BOUND": ("", "compute-bound"),
    "BALANCED": ("",),
    "NO_CLEAR_PERFORMANCE_BOTTLENECK": ("",),
}
#: It says that it cannot judge: neither right nor wrong.
ABSTAINS: Final = (
    "", "NO_DATA", "WARMUP", "INCOMPLETE_DATA", "INSUFFICIENT_STEP_TIME_DATA",
)  # fmt: skip
#: Seconds for its training, and for its summary.
PATIENCE: Final = 300
_QUIET: Final = ("COMPUTE_BOUND", "BALANCED", "NO_CLEAR_PERFORMANCE_BOTTLENECK")
_LOUD: Final = ("warn", "warning", "crit", "critical")


@dataclass(frozen=True)
class Opinion:
    """What it said of a case."""

    case: Case
    said: str
    rank: int | None

    @property
    def right(self) -> bool:
        """By rule, and by rank where it names one; it is not asked for the phase."""
        meant = set(MEANING.get(self.said, ())) & set(self.case.right.rules)
        wanted = self.case.right.rank
        return bool(meant) and (wanted is None or self.rank in {None, wanted})


def run(cases: Sequence[Case], out: Path) -> None:
    last = None
    for case in cases:
        if case.launch == "throttled":
            with throttled() as inside:
                _over(_start(case, out / case.name, inside, {"GLOO_SOCKET_IFNAME": "lo"}))
        elif case.launch == "shared":
            job = _start(case, out / case.name)
            _trained(job, out / case.name)
            _over(last)
            last = job
    _over(last)


def _start(
    case: Case, folder: Path, inside: Sequence[str] = (), more: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    shutil.rmtree(folder, ignore_errors=True)  # TraceML refuses a folder that is there
    folder.mkdir(parents=True)
    command = [
        *inside, str(Path(interpreter()).with_name("traceml")), "run", "--nproc-per-node",
        str(RANKS), "--master-port", str(free_port()), "--aggregator-port", str(free_port()),
        "--logs-dir", str(folder), "--run-name", "traceml",
        str(Path(__file__).with_name("job.py")), "--args", str(folder / "job"), case.name,
    ]  # fmt: skip
    environment = os.environ | VARIABLES | {"TRUTH_RIVAL": "1"} | dict(more or {})
    with (folder / "traceml.txt").open("wb") as file:
        return subprocess.Popen(
            command, env=environment, stdout=file, stderr=subprocess.STDOUT, cwd=ROOT
        )


def _trained(job: subprocess.Popen[bytes], folder: Path) -> None:
    """Wait until every rank has written what it knows of itself, or the launch is over."""
    begin = time.monotonic()
    while job.poll() is None and time.monotonic() - begin < PATIENCE:
        if len(list(folder.glob("job/*/rank-*.json"))) == RANKS:
            return
        time.sleep(0.05)


def _over(job: subprocess.Popen[bytes] | None) -> None:
    if job is None:
        return
    try:
        job.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        job.terminate()
        job.wait(PATIENCE)


def free_port() -> int:
    with socket.create_server(("", 0)) as listener:
        return int(listener.getsockname()[1])


def opinions(cases: Sequence[Case], out: Path) -> list[Opinion]:
    """Of the cases that it was run on."""
    return [opinion(case, out) for case in cases if (out / case.name).exists()]


def opinion(case: Case, out: Path) -> Opinion:
    found = sorted((out / case.name).rglob("final_summary.json"))
    if not found:
        return Opinion(case, "", None)
    summary = json.loads(found[-1].read_text(encoding="utf-8"))
    first = summary.get("primary_diagnosis") or {}
    loud = [one for one in _resources(summary) if one.get("severity") in _LOUD]
    if first.get("kind") in {*_QUIET, *ABSTAINS} and loud:
        first = loud[0]
    return Opinion(case, str(first.get("kind") or ""), _culprit(first))


def _resources(summary: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        issue
        for section in ("step_memory", "process", "system")
        for issue in (summary.get(section) or {}).get("issues") or []
        if issue.get("kind") in MEANING
    ]


def _culprit(issue: dict[str, Any]) -> int | None:
    """The rank it blames, wherever its evidence has it."""
    evidence = issue.get("evidence") or {}
    for key in ("culprit_rank", "worst_rank", "rank"):
        value = evidence.get(key, issue.get(key))
        if isinstance(value, int):
            return value
    culprit = evidence.get("culprit")
    if isinstance(culprit, dict):
        value = culprit.get("rank", culprit.get("global_rank"))
        return value if isinstance(value, int) else None
    return None
