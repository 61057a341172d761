"""Work that several processes share: every job once, in order, whatever becomes of the others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dsprof.logs import workers
from dsprof.logs.workers import shared
from tests.conftest import heeding_sigint

JOBS = list(range(12))


def square(number: int) -> tuple[int, int]:
    """The process that did it, and its result."""
    time.sleep(0.02)
    return os.getpid(), number * number


def when_both_work(file: Path) -> int:
    """This process waits until another one is at work too, or for a minute."""
    if _is_other():
        file.touch()
    for _ in range(6000):
        if file.exists():
            break
        time.sleep(0.01)
    return os.getpid()


def fatal_to_others(number: int) -> int:
    if _is_other():
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.1)
    return number


def _is_other() -> bool:
    return sys.argv[0] == workers.__file__


def wrong(number: int) -> int:
    if number == 7:
        raise ValueError("seven")
    return number


@pytest.mark.parametrize("processes", [1, 2, 4])
def test_every_job_is_done_once_and_in_order(processes: int) -> None:
    assert [found for _, found in shared(JOBS, square, processes)] == [n * n for n in JOBS]


def test_another_process_takes_jobs_while_this_one_is_at_work(tmp_path: Path) -> None:
    assert len(set(shared([tmp_path / "other"] * 3, when_both_work, 2))) == 2


def test_jobs_of_a_process_that_died_are_done_here() -> None:
    assert list(shared([*JOBS] * 2, fatal_to_others, 2)) == [*JOBS] * 2


def test_an_error_of_another_process_is_met_here() -> None:
    with pytest.raises(ValueError, match="seven"):
        list(shared(JOBS, wrong, 2))


def test_where_no_process_can_be_started_this_one_does_everything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert [found for _, found in shared(JOBS, square, 2)] == [n * n for n in JOBS]


def test_nothing_is_left_behind_when_the_results_are_not_wanted_any_more(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    started: list[subprocess.Popen[bytes]] = []
    start = workers._start

    def noted(folder: Path) -> subprocess.Popen[bytes]:
        started.append(start(folder))
        return started[-1]

    monkeypatch.setattr(workers, "_start", noted)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    results = shared(JOBS, square, 2)
    next(results)
    results.close()
    assert [process.poll() is not None for process in started] == [True]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.name != "posix", reason="process groups are POSIX's")
def test_an_interrupt_of_the_terminal_is_heard_by_one_process_only(tmp_path: Path) -> None:
    script = tmp_path / "run.py"
    script.write_text(
        "import sys\n"
        "from tests.logs.test_workers import square\n"
        "from dsprof.logs.workers import shared\n"
        "try:\n"
        "    for found in shared([1] * 100_000, square, 2):\n"
        "        print(found, flush=True)\n"
        "except KeyboardInterrupt:\n"
        "    sys.exit(130)\n"
    )
    with heeding_sigint():
        process = subprocess.Popen(
            [sys.executable, str(script)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
    assert process.stdout is not None
    process.stdout.readline()
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (130, b"")
