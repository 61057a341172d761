"""Whether the process of a recording is there."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dsprof.recording import Writer
from dsprof.recording import writer as writing
from dsprof.recording.alive import is_gone, is_stopped, is_writing, pid_namespace, shares_clock
from dsprof.recording.read import Recording
from dsprof.recording.writer import clocks
from tests.recording.recorded import CLASSES, header

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="no /proc here")


def test_a_process_writes_the_recording_of_which_it_has_a_file_open(tmp_path: Path) -> None:
    writer, other = (Writer.create(tmp_path, header(rank)) for rank in range(2))
    other.close()
    assert is_writing(os.getpid(), writer.path)
    assert is_writing(os.getpid(), writer.path.with_suffix(".7.dsprof"))  # a part that is gone
    assert not is_writing(os.getpid(), other.path)
    assert not is_writing(1 << 30, writer.path)
    writer.close()
    assert not is_writing(os.getpid(), writer.path)


def test_that_a_process_is_there_is_known_on_its_own_host_until_it_closes(tmp_path: Path) -> None:
    writers = [
        Writer.create(tmp_path, header(rank, host=host))
        for rank, host in enumerate((socket.gethostname(), "elsewhere"))
    ]
    found = [Recording(writer.path) for writer in writers]
    assert [bool(one.facts["alive_at"]) for one in found] == [True, False]
    for writer, one in zip(writers, found, strict=True):
        writer.close()
        one.follow()
    assert [one.facts["alive_at"] for one in found] == [None, None]


@pytest.mark.parametrize("seconds", [3600, -3600])
def test_whose_wall_clock_was_set_or_stood_still_is_seen_by_its_own(
    seconds: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host that was suspended: its newest rows look old until both clocks are read again."""
    perf, wall, _ = clocks()
    monkeypatch.setattr(writing, "clocks", lambda: (perf, wall - seconds * 10**9, 0))
    writer = Writer.create(tmp_path, header(host=socket.gethostname()))
    now = time.perf_counter_ns()
    for step in range(1, 21):
        writer.step(step, now - (21 - step) * 10**8, now - (20 - step) * 10**8, CLASSES)
        writer.flush()
    one = Recording(writer.path)
    last = one.follow()["at"].combine_chunks().cast("int64")[-1].as_py() * 1000
    seen = one.facts["alive_at"]
    assert 0 <= seen - last < 10**9
    time.sleep(0.1)
    assert one.facts["alive_at"] == seen  # whatever was written since then was not looked for
    writer.close()


def test_processes_of_one_host_count_from_one_moment() -> None:
    assert shares_clock(os.getpid())
    assert shares_clock(os.getppid())
    assert not shares_clock(1 << 30)


def test_a_process_is_surely_gone_only_where_its_number_means_the_same() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    assert is_gone(process.pid, pid_namespace())
    assert not is_gone(process.pid, f"{pid_namespace()} of another machine")
    assert not is_gone(process.pid, "")
    assert not is_gone(os.getpid(), pid_namespace())
    assert not is_gone(1, pid_namespace())


def test_a_process_that_a_signal_stopped_is_there_and_stands_still() -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as child:
        assert not is_stopped(child.pid)
        child.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)
        assert is_stopped(child.pid)
        child.kill()
    assert not is_stopped(child.pid)


def test_a_number_that_no_process_has_is_of_one_that_is_gone() -> None:
    """As in a damaged header."""
    assert is_gone(1 << 40, pid_namespace())
