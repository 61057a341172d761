"""Runs jobs on gloo ranks with an interpreter that has torch and DeepSpeed."""

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
    name: str, *groups: tuple[object, ...], needs: str = "deepspeed"
) -> subprocess.CompletedProcess[str]:
    """`main` of `jobs/NAME.py` in each group in turn: how many ranks, their folder, arguments."""
    told = json.dumps([[group[0], *map(str, group[1:])] for group in groups])
    return subprocess.run(
        [interpreter(needs), "-m", "tests.hook.forked", name, needs, told],
        env=os.environ | ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def run(name: str, out: Path, *args: object) -> list[dict[str, Any]]:
    """The results of a job on two ranks that must succeed, by rank."""
    done = launch(name, (2, out, *args))
    assert done.returncode == 0, done.stderr[-3000:]
    return _results(out, 2)


def run_each(
    name: str, out: Path, kinds: dict[str, int], needs: str
) -> dict[str, list[dict[str, Any]]]:
    """The same of a job that is told its kind, in a folder of that name, by kind and rank.

    Args:
        kinds: on how many ranks each runs; one is a process that knows of no ranks.
        needs: the library that all of them import.
    """
    for kind in kinds:
        (out / kind).mkdir()
    done = launch(name, *((ranks, out / kind, kind) for kind, ranks in kinds.items()), needs=needs)
    assert done.returncode == 0, done.stderr[-3000:]
    return {kind: _results(out / kind, ranks) for kind, ranks in kinds.items()}


def _results(out: Path, ranks: int) -> list[dict[str, Any]]:
    files = (out / f"result-{rank}.json" for rank in range(ranks))
    return [json.loads(file.read_text(encoding="utf-8")) for file in files]
