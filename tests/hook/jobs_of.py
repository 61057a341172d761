"""Runs jobs on gloo ranks with an interpreter that has torch and DeepSpeed."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from select import select
from tempfile import TemporaryFile
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
JOBS = Path(__file__).parent / "jobs"
PATIENCE = 300.0  # seconds
#: With a startup file that spares torch's import the search for garbage.
PATHS = os.pathsep.join([str(ROOT), str(ROOT / "tests/hook/startup")])
ENVIRONMENT = {
    "PYTHONPATH": PATHS,
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


class Forking:
    """A process that has imported a library and forks jobs, for as long as this process lives."""

    def __init__(self, library: str) -> None:
        self._said = TemporaryFile("a+", encoding="utf-8")  # noqa: SIM115  # closed with us
        self._process = subprocess.Popen(
            [interpreter(library), "-m", "tests.hook.forked", library],
            env=os.environ | ENVIRONMENT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
        )

    def begin(self, name: str, groups: Sequence[tuple[object, ...]]) -> None:
        """Start a job; the next one may begin once `ends_well` has told of this one."""
        asked = self._process.stdin
        assert asked is not None
        self._name, self._before = name, self._said.seek(0, os.SEEK_END)
        told = [[group[0], *map(str, group[1:])] for group in groups]
        print(json.dumps([name, told]), file=asked, flush=True)

    def is_over(self, patience: float = 0.0) -> bool:
        """Whether the job has ended, or does so soon."""
        answer = self._process.stdout
        assert answer is not None
        return bool(select([answer], [], [], patience)[0])

    def ends_well(self) -> bool:
        """Whether all ranks do of the job."""
        if not self.is_over(PATIENCE):
            self._process.kill()
            forking.cache_clear()
            pytest.fail(f"{self._name} hangs: {self.said()[-3000:]}")
        answer = self._process.stdout
        assert answer is not None
        return answer.readline() == "true\n"

    def said(self) -> str:
        """What the job wrote to standard error."""
        self._said.seek(self._before)
        return self._said.read()


@cache
def forking(needs: str) -> Forking:
    return Forking(needs)


def launch(name: str, *groups: tuple[object, ...], needs: str = "deepspeed") -> bool:
    """`main` of `jobs/NAME.py` in each group in turn: how many ranks, their folder, arguments.

    Returns:
        Whether all ranks ended well.
    """
    one = forking(needs)
    one.begin(name, groups)
    return one.ends_well()


def run(name: str, out: Path, *args: object) -> list[dict[str, Any]]:
    """The results of a job on two ranks that must succeed, by rank."""
    assert launch(name, (2, out, *args)), forking("deepspeed").said()[-3000:]
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
    groups = [(ranks, out / kind, kind) for kind, ranks in kinds.items()]
    assert launch(name, *groups, needs=needs), forking(needs).said()[-3000:]
    return {kind: _results(out / kind, ranks) for kind, ranks in kinds.items()}


def _results(out: Path, ranks: int) -> list[dict[str, Any]]:
    """Of a job that this PyTorch cannot do, its sentence says why, and the test is skipped."""
    files = (out / f"result-{rank}.json" for rank in range(ranks))
    results = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    if "cannot" in results[0]:
        pytest.skip(results[0]["cannot"])
    return results
