"""Which processes are ranks, of trees of processes that only look like training."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dsprof.errors import DsprofError
from dsprof.hook.entering.ranks import ranks_below

LONG = 60.0  # seconds; what takes so long hangs
#: Loads a file of the name of PyTorch, is connected if told so, starts others, each in a process of
#: its own, and then says that it is there.
LOOKS_LIKE_TRAINING = """
import json, mmap, os, socket, subprocess, sys
out, (name, connected, others) = sys.argv[1], json.loads(sys.argv[2])
with open(out + "/libtorch.so", "rb") as file:
    held = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
if connected:
    listening = socket.create_server(("127.0.0.1", 0))
for told, other in others:
    command = [sys.executable, sys.argv[0], out, json.dumps(other)]
    subprocess.Popen(command, env={**os.environ, **told})
with open(out + "/" + name, "w") as file:
    file.write(str(os.getpid()))
sys.stdin.read()
"""
#: Its environment, and itself: its name, whether it is connected, and what it starts.
Process = tuple[dict[str, str], tuple[str, bool, list[Any]]]


def process(name: str, told: str = "", *starts: Process, connected: bool = True) -> Process:
    return dict(word.split("=") for word in told.split()), (name, connected, [*starts])


class Tree:
    """Processes that a shell starts, by name."""

    def __init__(self, out: Path) -> None:
        self.out = out
        (out / "libtorch.so").write_bytes(b"torch")
        (out / "train.py").write_text(LOOKS_LIKE_TRAINING, encoding="utf-8")

    @contextmanager
    def running(self, *processes: Process) -> Iterator[int]:
        """The number of the shell; all end when its input does."""
        clean = {name: value for name, value in os.environ.items() if "RANK" not in name}
        lines = "".join(map(self._line, processes))
        command = ["/bin/sh", "-c", f"exec 3<&0\n{lines}wait\ncat"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, env=clean) as shell:
            until = time.monotonic() + LONG
            while not all((self.out / name).exists() for name in _names(*processes)):
                assert time.monotonic() < until
                time.sleep(0.02)
            try:
                yield shell.pid
            finally:
                shell.communicate()

    def _line(self, one: Process) -> str:
        told, itself = one
        words = [*(f"{name}={value}" for name, value in told.items()), sys.executable]
        words += [f"{self.out}/train.py", str(self.out), shlex.quote(json.dumps(itself))]
        return f"{' '.join(words)} <&3 &\n"

    def pids(self, *names: str) -> set[int]:
        return {int((self.out / name).read_text(encoding="ascii")) for name in names}


def _names(*processes: Process) -> list[str]:
    return [name for _, (one, _, others) in processes for name in (one, *_names(*others))]


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


@pytest.mark.parametrize(
    "told",
    ["RANK={}", "RANK={} LOCAL_RANK={}", "SLURM_PROCID={}", "OMPI_COMM_WORLD_RANK={}"],
    ids=["shell", "torchrun", "srun", "mpirun"],
)
def test_ranks_that_a_shell_started_are_found(tree: Tree, told: str) -> None:
    with tree.running(*(process(name, told.replace("{}", name)) for name in "01")) as shell:
        assert set(ranks_below(shell)) == tree.pids("0", "1")
        assert ranks_below(*tree.pids("1")) == [*tree.pids("1")]


def test_workers_of_a_rank_and_its_launcher_are_none(tree: Tree) -> None:
    """They have its environment, and a launcher has connections and its batch script's number."""
    rank = process("rank", "RANK=0 LOCAL_RANK=0", process("worker"))
    with tree.running(process("launcher", "SLURM_PROCID=0", rank)) as shell:
        assert set(ranks_below(shell)) == tree.pids("rank")
        assert set(ranks_below(*tree.pids("launcher"))) == tree.pids("rank")


def test_lightnings_first_rank_is_found_with_those_that_it_started(tree: Tree) -> None:
    other = process("1", "LOCAL_RANK=1 NODE_RANK=0")
    with tree.running(process("0", "", other)) as shell:
        assert set(ranks_below(shell)) == tree.pids("0", "1")
        assert set(ranks_below(*tree.pids("0"))) == tree.pids("0", "1")


def test_a_process_alone_is_found_below_its_shell(tree: Tree) -> None:
    with tree.running(process("train"), process("other", connected=False)) as shell:
        assert set(ranks_below(shell)) == tree.pids("train")


@pytest.mark.parametrize(
    "told",
    [
        ("RANK=0 LOCAL_RANK=0 MASTER_PORT=1", "RANK=1 LOCAL_RANK=1 MASTER_PORT=2"),
        ("RANK=0 LOCAL_RANK=0", "RANK=0 LOCAL_RANK=0"),
        ("RANK=0 LOCAL_RANK=0", ""),
        ("", ""),
    ],
    ids=["two ports", "the same number", "one without", "no numbers"],
)
def test_what_may_be_several_jobs_is_not_taken_for_one(tree: Tree, told: tuple[str, str]) -> None:
    with tree.running(*map(process, "ab", told)) as shell, pytest.raises(DsprofError) as raised:
        ranks_below(shell)
    assert raised.value.where == f"--pid {shell}"
    assert "of train.py" in raised.value.what


def test_a_process_with_nothing_of_training_is_what_is_asked(tree: Tree) -> None:
    with tree.running() as shell:
        assert ranks_below(shell) == [shell]
