"""Runs a job on two gloo ranks with an interpreter that has torch and DeepSpeed."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
JOBS = Path(__file__).parent / "jobs"
ENVIRONMENT = {
    "PYTHONPATH": str(ROOT),
    "OMP_NUM_THREADS": "1",
    "PYTHONFAULTHANDLER": "1",  # a rank that is aborted says where
    "TORCH_FR_BUFFER_SIZE": "50000",  # the Flight Recorder is the oracle: it must hold them all
}


@cache
def interpreter(needs: str = "deepspeed") -> str:
    """DSPROF_TORCH_PYTHON, or this interpreter if it can; else the test is skipped."""
    named = os.environ.get("DSPROF_TORCH_PYTHON")
    if named:
        return named
    if importlib.util.find_spec("torch") and importlib.util.find_spec(needs):
        return sys.executable
    pytest.skip(f"no {needs} here: name an interpreter that has it in DSPROF_TORCH_PYTHON")


def launch(
    name: str,
    out: Path,
    *args: object,
    ranks: int = 2,
    needs: str = "deepspeed",
    **environment: str,
) -> subprocess.CompletedProcess[str]:
    """`jobs/NAME.py OUT ARGS...` on two ranks, or as a process that knows of no ranks."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", ranks]
    command = [
        interpreter(needs), *(launcher if ranks > 1 else []), JOBS / f"{name}.py", out, *args
    ]  # fmt: skip
    return subprocess.run(
        list(map(str, command)),
        env=os.environ | ENVIRONMENT | environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def run(
    name: str, out: Path, *args: object, ranks: int = 2, needs: str = "deepspeed"
) -> list[dict[str, Any]]:
    """The results of a job that must succeed, by rank."""
    done = launch(name, out, *args, ranks=ranks, needs=needs)
    assert done.returncode == 0, done.stderr[-3000:]
    return [
        json.loads((out / f"result-{rank}.json").read_text(encoding="utf-8"))
        for rank in range(ranks)
    ]
