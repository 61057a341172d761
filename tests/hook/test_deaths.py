"""Who was killed, seen from outside of the ranks."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dsprof.hook import deaths
from dsprof.recording import Writer, launches

RANK = """
import sys, time
from dsprof.recording import Writer
folder, rank, launch, host = sys.argv[1:]
writer = Writer.create(folder, {"rank": int(rank), "launch": launch, "host": host})
print(writer.path, flush=True)
time.sleep(60)
"""


def rank(folder: Path, number: int, launch: str, host: str) -> tuple[subprocess.Popen[str], Path]:
    """A process that records, once it does."""
    command = [sys.executable, "-c", RANK, str(folder), str(number), launch, host]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="Linux tells of processes, others do not")
def test_ranks_that_are_killed_are_told_with_their_signal_in_the_order_of_their_deaths(
    tmp_path: Path,
) -> None:
    (tmp_path / launches.FOLDER).mkdir()
    here = socket.gethostname()
    for odd in (2**70, -1):  # no process can have that number
        Writer.create(tmp_path, {"rank": 9, "launch": "ours", "host": here, "pid": odd}).close()
    with deaths.told(tmp_path, "ours"):
        ranks = [
            rank(tmp_path, 0, "ours", here),
            rank(tmp_path, 1, "ours", here),
            rank(tmp_path, 2, "another", here),
            rank(tmp_path, 3, "ours", "elsewhere"),
        ]
        time.sleep(10 * deaths.TURN)  # until it has seen them
        for number, how in ((1, signal.SIGKILL), (0, signal.SIGTERM), (2, 9), (3, 9)):
            ranks[number][0].send_signal(how)
            time.sleep(deaths.TURN)
        for process, _ in ranks:
            process.communicate()
    first, second, *others = (launches.killed_at(path) for _, path in ranks)
    assert first is not None
    assert second is not None
    assert (second[1], first[1]) == (signal.SIGKILL, signal.SIGTERM)
    assert second[0] < first[0]
    assert others == [None, None]  # of another launch, and of a host whose numbers mean others


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="Linux tells of processes, others do not")
def test_a_recording_that_is_being_made_is_looked_at_again(tmp_path: Path) -> None:
    (tmp_path / launches.FOLDER).mkdir()
    (tmp_path / "made").mkdir()
    process, made = rank(tmp_path / "made", 0, "ours", socket.gethostname())
    recording = tmp_path / made.name
    with deaths.told(tmp_path, "ours"):
        recording.touch()
        time.sleep(5 * deaths.TURN)
        recording.write_bytes(made.read_bytes())
        time.sleep(5 * deaths.TURN)
        process.kill()
        time.sleep(2 * deaths.TURN)
        process.communicate()
    killed = launches.killed_at(recording)
    assert killed is not None
    assert killed[1] == signal.SIGKILL
