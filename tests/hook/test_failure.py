"""Whatever befalls the hook, training goes on as if it were not there, and one line says so."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

import dsprof
from tests.hook.jobs_of import ENVIRONMENT, JOBS, interpreter, launch, run_each
from tests.hook.rows import folder, in_flight

STEPS, AT = 8, 4
#: The line of `tests.hook.jobs.ending` that ends it.
EXEC = next(
    number
    for number, line in enumerate((JOBS / "ending.py").read_text("utf-8").splitlines(), 1)
    if "exec(end)" in line
)
OF_NO_STEP = {"cpu_wait", "garbage", "garbage_collections"}
WAYS = ("nothing", "exception", "disk", "folder", "workers", "checkpoint")
JOB = ("failing", *WAYS)


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


def ended(out: Path, way: str, end: str, *attach: str) -> dsprof.Run:
    """What is recorded of a process that trains so and ends so."""
    told = (out, way, end)
    if attach:
        command = [*attach, interpreter("torch"), "-m", "tests.hook.jobs.ending", *map(str, told)]
        environment = os.environ | ENVIRONMENT
        subprocess.run(command, env=environment, capture_output=True, timeout=120, check=False)
    else:
        assert launch("ending", (1, *told), needs="torch") == (end == "pass")
    return dsprof.load(str(out / "run"))


@pytest.mark.parametrize(
    ("error", "problems"),
    [
        (
            "ValueError('planted\\nin two lines')",
            [("exception", "ValueError: planted\nin two lines")],
        ),
        ("torch.OutOfMemoryError('planted')", [("oom", "torch.OutOfMemoryError: planted")]),
        (
            "RuntimeError('[enforce fail at alloc_cpu.cpp:117] planted')",
            [("host-oom", "RuntimeError: [enforce fail at alloc_cpu.cpp:117] planted")],
        ),
        (
            "RuntimeError('CUDA error: out of memory')",
            [("oom", "RuntimeError: CUDA error: out of memory")],
        ),
        ("MemoryError", [("host-oom", "MemoryError")]),
        (  # of what a worker raised torch quotes the traceback first
            (
                "next(iter(torch.utils.data.DataLoader("
                "[1], num_workers=1, multiprocessing_context='fork', collate_fn=lambda _: 1 / 0)))"
            ),
            [("exception", "ZeroDivisionError: division by zero (in DataLoader worker process 0)")],
        ),
        ("KeyboardInterrupt", []),
        ("SystemExit(1)", []),
    ],
)
def test_an_exception_that_ends_the_process_is_the_last_word_of_its_recording(
    tmp_path: Path, error: str, problems: list[tuple[str, str]]
) -> None:
    """Ctrl-C and a script that ends itself are no fault."""
    run = ended(tmp_path, "alone", f"raise {error}")
    assert list(run.steps["step"]) == [1, 2, 3]
    assert list(run.problems[["kind", "text"]].itertuples(index=False, name=None)) == problems
    assert list(run.problems["step"]) == [3] * len(problems)
    told = "The last line in its traceback that is of no installed package is line "
    by_error = next((one for one in run.findings if one.rule == "rank-died"), None)
    assert by_error is None or f"{told}{EXEC} of ending.py, in train." in by_error.summary
    assert ("exception" in run.problems["kind"].tolist()) == (by_error is not None)


@pytest.mark.parametrize(
    ("end", "problems"),
    [
        ("raise ValueError('planted')", [("exception", "ValueError: planted")]),
        ("raise KeyboardInterrupt", []),
        ("sys.exit(3)", []),
    ],
)
def test_an_exception_that_leaves_the_block_of_its_recording_and_ends_the_process_is_told(
    tmp_path: Path, end: str, problems: list[tuple[str, str]]
) -> None:
    run = ended(tmp_path, "with", end)
    (rank,) = folder(tmp_path / "run")
    assert rank.ended
    assert list(run.steps["step"]) == [1, 2, 3]
    assert list(run.problems[["kind", "text"]].itertuples(index=False, name=None)) == problems


@pytest.mark.parametrize(
    ("method", "end", "problems"),
    [
        ("fork", "pass", []),
        ("fork", "raise ValueError('planted')", [("exception", "ValueError: planted")]),
        ("fork", "sys.exit(3)", []),
        ("spawn", "raise ValueError('planted')", [("exception", "ValueError: planted")]),
    ],
)
def test_a_process_of_multiprocessing_ends_its_recording_with_what_ended_it(
    tmp_path: Path, method: str, end: str, problems: list[tuple[str, str]]
) -> None:
    """Its forks skip what Python does at exit, and PyTorch catches what ends its own. Python 3.13
    has forgotten the exception by then: nothing is said of the end."""
    run = ended(tmp_path, method, end)
    (rank,) = folder(tmp_path / "run")
    forgets = tuple(map(int, rank.header["versions"]["python"].split("."))) >= (3, 13)
    assert list(run.steps["step"]) == [1, 2, 3]
    said = list(run.problems[["kind", "text"]].itertuples(index=False, name=None))
    assert said == ([] if forgets else problems)
    assert rank.ended
    assert rank.config["collectives_seen"] == 0  # closed in good order


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="Linux tells of processes, others do not")
@pytest.mark.parametrize(("code", "problems"), [(0, []), (7, [("exit", 7.0)])])
def test_a_process_that_skips_pythons_own_end_has_failed_only_if_its_exit_code_says_so(
    tmp_path: Path, code: int, problems: list[tuple[str, float]]
) -> None:
    attach = (interpreter("torch"), "-m", "dsprof.hook.entering.launch", str(tmp_path / "run"))
    run = ended(tmp_path, "alone", f"import os, time; time.sleep(1); os._exit({code})", *attach)
    assert not folder(tmp_path / "run")[0].ended
    assert list(run.problems[["kind", "value"]].itertuples(index=False, name=None)) == problems
    died = [one.severity for one in run.findings if one.rule == "rank-died"]
    assert died == ["critical"] * len(problems)


@pytest.mark.parametrize("room", [20_000, 20_480, 41_000])
def test_where_the_disk_is_full_the_recording_says_so_and_tells_of_whole_steps_alone(
    tmp_path: Path, room: int
) -> None:
    out = tmp_path / str(room)
    assert run_each("full", tmp_path, {out.name: 1}, "torch")  # trained to its end
    assert (out / "stderr").read_text(encoding="utf-8").count("training goes on") == 1
    (rank,) = folder(out / "run")
    assert rank.ended
    steps = [row.step for row in rank.steps]
    assert steps == list(range(1, len(steps) + 1))
    told = {row.step for row in rank.metrics if row.name not in OF_NO_STEP}
    assert told <= {*steps}  # the step under way has phases alone
    ((name, text),) = [(row.name, row.text) for row in rank.problems]
    assert name == "recording-stopped"
    assert "File too large" in text
    run = dsprof.load(str(out / "run"))
    assert list(run.steps["step"]) == steps
    assert "recording-stopped" in list(run.problems["kind"])
