"""Whatever befalls the hook, training goes on as if it were not there, and one line says so."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

import dsprof
from tests.hook.jobs_of import ENVIRONMENT, interpreter, launch, run
from tests.hook.rows import folder, in_flight

STEPS, AT = 8, 4
WAYS = ("nothing", "exception", "disk", "folder", "workers", "checkpoint")


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("failing")


@pytest.fixture(scope="module")
def results(out: Path) -> list[dict[str, Any]]:
    """Of both ranks, each way in turn."""
    return run("failing", out, *WAYS)


@pytest.fixture
def losses(results: list[dict[str, Any]]) -> list[str]:
    """Where nothing happens."""
    return list(results[0]["nothing"]["losses"])


def said(folder: Path) -> list[str]:
    """Our lines on the standard error of both ranks."""
    text = "".join((folder / f"stderr-{rank}").read_text(encoding="utf-8") for rank in (0, 1))
    return [line for line in text.splitlines() if "dsprof" in line and "Warning" not in line]


@pytest.mark.parametrize(
    ("way", "words"),
    [
        ("exception", "ZeroDivisionError: planted"),
        ("disk", "cannot be written: No space left on device"),
    ],
)
def test_a_failure_inside_is_said_once_a_rank_and_training_goes_on(
    results: list[dict[str, Any]], out: Path, losses: list[str], way: str, words: str
) -> None:
    assert results[0][way]["losses"] == losses
    lines = said(out / way)
    assert len(lines) == 2
    assert all("training goes on" in line and words in line for line in lines)
    for rank in folder(out / way / "run"):
        steps = [row.step for row in rank.steps]
        assert steps == list(range(1, AT + 1))  # what was written stays readable
        recorded = [row.text for row in rank.problems if row.name == "recording-stopped"]
        assert recorded == ([words] if way == "exception" else [])  # a full disk takes no more


def test_a_folder_that_cannot_be_made_costs_the_recording_alone(
    results: list[dict[str, Any]], out: Path, losses: list[str]
) -> None:
    assert results[0]["folder"]["losses"] == losses
    assert results[0]["folder"]["folder"] is None
    assert 2 <= len(said(out / "folder")) <= 4  # each of two attempts on each of two ranks


def test_attaching_twice_gives_the_same_handle_and_counts_once(
    results: list[dict[str, Any]], out: Path
) -> None:
    assert all(result["nothing"]["same"] for result in results)
    for rank in folder(out / "nothing" / "run"):
        assert sum(row.path == "forward" for row in rank.spans) == STEPS


def test_workers_of_a_data_loader_write_nothing(
    results: list[dict[str, Any]], out: Path, losses: list[str]
) -> None:
    assert results[0]["workers"]["losses"] == losses
    assert said(out / "workers") == []
    ranks = folder(out / "workers" / "run")
    assert [rank.header["rank"] for rank in ranks] == [0, 1]
    assert all(rank.ended for rank in ranks)
    assert all(sum(row.path == "data" for row in rank.spans) >= STEPS - 1 for rank in ranks)


@pytest.mark.usefixtures("results")
def test_checkpoints_are_phases(out: Path) -> None:
    for rank in folder(out / "checkpoint" / "run"):
        paths = [row.path for row in rank.spans]
        assert paths.count("checkpoint") == 1
        assert paths.count("load_checkpoint") == 1
        assert rank.classes["checkpoint"] == "checkpoint"


def test_sigkill_loses_no_step_that_had_ended(tmp_path: Path) -> None:
    assert not launch("failing", (2, tmp_path, "kill"))
    killed = next(rank for rank in folder(tmp_path / "kill" / "run") if rank.header["rank"] == 1)
    assert not killed.ended
    assert [row.step for row in killed.steps] == list(range(1, AT + 1))
    file = next((tmp_path / "kill" / "run").glob("rank-00001*"))
    assert in_flight(file)[0] == ""  # it died between collectives


_ENDING = """
import sys, torch, dsprof
net = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(net.parameters(), 1e-3)
handle = dsprof.attach(net, optimizer=optimizer, out=sys.argv[1])
for step in range(3):
    net(torch.ones(2)).sum().backward()
    optimizer.step()
try:
    raise RuntimeError("somebody caught this")
except RuntimeError:
    pass
raise eval(sys.argv[2])
"""


@pytest.mark.parametrize(
    ("error", "problems"),
    [
        (
            "ValueError('planted\\nin two lines')",
            [("exception", "ValueError: planted\nin two lines")],
        ),
        ("torch.OutOfMemoryError('planted')", [("oom", "torch.OutOfMemoryError: planted")]),
        ("KeyboardInterrupt", []),
        ("SystemExit(1)", []),
    ],
)
def test_an_exception_that_ends_the_process_is_the_last_word_of_its_recording(
    tmp_path: Path, error: str, problems: list[tuple[str, str]]
) -> None:
    """Ctrl-C and a script that ends itself are no fault."""
    command = [interpreter("torch"), "-c", _ENDING, str(tmp_path), error]
    assert subprocess.run(command, env=os.environ | ENVIRONMENT, check=False).returncode != 0
    run = dsprof.load(str(tmp_path))
    assert list(run.steps["step"]) == [1, 2, 3]
    assert list(run.problems[["kind", "text"]].itertuples(index=False, name=None)) == problems
    assert list(run.problems["step"]) == [3] * len(problems)


_CHILD = """
import os, sys, time
import torch, dsprof
import torch.multiprocessing as mp

def train(rank, end):
    net = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(net.parameters(), 1e-3)
    handle = dsprof.attach(net, optimizer=optimizer, out=sys.argv[1])
    for step in range(3):
        net(torch.ones(2)).sum().backward()
        optimizer.step()
    exec(end)

if __name__ == "__main__":
    if sys.argv[2] == "alone":
        train(0, sys.argv[3])
    else:
        mp.start_processes(train, args=(sys.argv[3],), nprocs=1, start_method=sys.argv[2])
"""


def ended(out: Path, method: str, end: str, *attach: str) -> dsprof.Run:
    """What is recorded of a process that a script starts in that way, and that ends so."""
    script = out / "train.py"
    script.write_text(_CHILD, encoding="utf-8")
    command = [interpreter("torch"), *attach, str(script), str(out / "run"), method, end]
    environment = os.environ | ENVIRONMENT
    subprocess.run(command, env=environment, capture_output=True, timeout=120, check=False)
    return dsprof.load(str(out / "run"))


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize(
    ("end", "problems"),
    [
        ("pass", []),
        ("raise ValueError('planted')", [("exception", "ValueError: planted")]),
        ("sys.exit(3)", []),
    ],
)
def test_a_process_of_multiprocessing_ends_its_recording_with_what_ended_it(
    tmp_path: Path, method: str, end: str, problems: list[tuple[str, str]]
) -> None:
    """Its forks skip what Python does at exit, and PyTorch catches what ends its own."""
    run = ended(tmp_path, method, end)
    assert list(run.steps["step"]) == [1, 2, 3]
    assert list(run.problems[["kind", "text"]].itertuples(index=False, name=None)) == problems
    (rank,) = folder(tmp_path / "run")
    assert rank.ended
    assert rank.config["collectives_seen"] == 0  # closed in good order


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="Linux tells of processes, others do not")
@pytest.mark.parametrize(("code", "problems"), [(0, []), (7, [("exit", 7.0)])])
def test_a_process_that_skips_pythons_own_end_has_failed_only_if_its_exit_code_says_so(
    tmp_path: Path, code: int, problems: list[tuple[str, float]]
) -> None:
    out = str(tmp_path / "run")
    attach = ("-m", "dsprof.hook.launch", out, interpreter("torch"))
    run = ended(tmp_path, "alone", f"time.sleep(1); os._exit({code})", *attach)
    assert not folder(tmp_path / "run")[0].ended
    assert list(run.problems[["kind", "value"]].itertuples(index=False, name=None)) == problems
    critical = [one.rule for one in run.findings if one.severity == "critical"]
    assert critical == ["rank-died"] * len(problems)


_FULL = """
import resource, sys, torch, dsprof
net = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(net.parameters(), 1e-3)
handle = dsprof.attach(net, optimizer=optimizer, out=sys.argv[1])
before = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), before[1]))
for step in range(400):
    net(torch.ones(2)).sum().backward()
    optimizer.step()
print("trained")
"""


@pytest.mark.parametrize("room", [20_000, 20_480, 41_000])
def test_where_the_disk_is_full_the_recording_says_so_and_tells_of_whole_steps_alone(
    tmp_path: Path, room: int
) -> None:
    """A limit on the size of a file stands for the disk: it cuts a write in the middle, too."""
    command = [interpreter("torch"), "-c", _FULL, str(tmp_path), str(room)]
    done = subprocess.run(
        command, env=os.environ | ENVIRONMENT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "trained\n"
    assert done.stderr.count("training goes on") == 1
    (rank,) = folder(tmp_path)
    assert rank.ended
    steps = [row.step for row in rank.steps]
    assert steps == list(range(1, len(steps) + 1))
    assert {row.step for row in rank.metrics} <= {*steps}  # the step under way has phases alone
    ((name, text),) = [(row.name, row.text) for row in rank.problems]
    assert name == "recording-stopped"
    assert "File too large" in text
    run = dsprof.load(str(tmp_path))
    assert list(run.steps["step"]) == steps
    assert "recording-stopped" in list(run.problems["kind"])
