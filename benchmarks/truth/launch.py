"""Start the jobs, with many cases in one launch if they leave their processes alive.

Jobs run with the interpreter that DSPROF_TORCH_PYTHON names (torch, deepspeed), or this one.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Final

from benchmarks.truth.cases import Case

ROOT: Final = Path(__file__).parents[2]
RANKS: Final = 2
LIMIT: Final = 900  # seconds a launch may take
#: A job that hangs is ended by then, as its user would; some ranks give up before.
HANGING: Final = 60
#: The rate of a throttled network, and how much may pass at once.
RATE, BURST = "1gbit", "256kb"
NAMESPACE: Final = "dsprof-truth"
VARIABLES: Final = {"OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu", "PYTHONPATH": str(ROOT)}


def interpreter() -> str:
    return os.environ.get("DSPROF_TORCH_PYTHON", sys.executable)


def launches(cases: Iterable[Case]) -> list[list[Case]]:
    """Cases that share a launch: of one framework, unless they end their process."""
    alone = [[case] for case in cases if case.launch in {"alone", "restarted"}]
    shared = [case for case in cases if case.launch in {"shared", "throttled"}]
    together = groupby(sorted(shared, key=_group), _group)
    return [*(list(found) for _, found in together), *alone]


def _group(case: Case) -> tuple[str, str]:
    """A pipeline leaves its layout behind in DeepSpeed, so no other engine can follow."""
    return case.launch, "pipe" if case.job.kind == "pipe" else ""


def run(cases: Sequence[Case], out: Path) -> None:
    """One launch; what it printed beside the cases' own logs goes to `out`/launch.txt."""
    first = cases[0]
    command = [*torchrun(first), "-m", "benchmarks.truth.job", str(out), *(c.name for c in cases)]
    environment = {**os.environ, **VARIABLES}
    if first.launch == "throttled":
        with throttled() as inside:
            _wait(inside + command, environment | {"GLOO_SOCKET_IFNAME": "lo"}, out / "launch.txt")
    elif first.launch == "shared":
        _wait(command, environment, out / "launch.txt")
    else:
        folder = out / first.name
        shutil.rmtree(folder, ignore_errors=True)  # else an earlier bench is an earlier launch
        folder.mkdir(parents=True)
        attach = [sys.executable, "-m", "dsprof", "attach", "--out", str(folder / "recording")]
        patience = {"TRUTH_PATIENCE": "8"}
        with contextlib.suppress(RuntimeError):  # they are to fail
            _wait([*attach, "--", *command], environment | patience, folder / "log.txt", HANGING)


def torchrun(case: Case) -> list[str]:
    again = ["--max-restarts", "1"] if case.launch == "restarted" else []
    return [interpreter(), "-m", "torch.distributed.run", "--standalone", "--nproc_per_node",
            str(RANKS), *again]  # fmt: skip


def _wait(
    command: Sequence[str], environment: Mapping[str, str], log: Path, limit: float = LIMIT
) -> None:
    """Until the command ends, or the limit ends it.

    Raises:
        RuntimeError: it failed.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as file:
        job = subprocess.Popen(
            list(command), env=dict(environment), stdout=file, stderr=subprocess.STDOUT, cwd=ROOT
        )
        try:
            code = job.wait(limit)
        except subprocess.TimeoutExpired:
            job.terminate()
            code = job.wait(limit)
    if code:
        raise RuntimeError(f"the jobs failed, see {log}: {' '.join(command)}")


@contextlib.contextmanager
def throttled() -> Iterator[list[str]]:
    """A network of its own whose loopback is slow; gives what runs a command inside it.

    Raises:
        PermissionError: this machine lets us make none.
    """
    inside = ["ip", "netns", "exec", NAMESPACE]
    limit = ["rate", RATE, "burst", BURST, "latency", "400ms"]
    try:
        _do(["ip", "netns", "add", NAMESPACE])
        _do([*inside, "ip", "link", "set", "lo", "up"])
        _do([*inside, "tc", "qdisc", "add", "dev", "lo", "root", "tbf", *limit])
        yield inside
    finally:
        with contextlib.suppress(PermissionError):
            _do(["ip", "netns", "delete", NAMESPACE])


def can_throttle() -> bool:
    try:
        with throttled():
            return True
    except PermissionError:
        return False


def _do(command: list[str]) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=20)
    except (OSError, subprocess.CalledProcessError) as error:
        raise PermissionError(f"{' '.join(command)}: {error}") from error
