"""Who was killed, seen from outside of the ranks."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from dsprof.hook.entering import deaths
from dsprof.recording import Writer, launches
from dsprof.recording.layout import pack_header

#: Writes the header of a recording only when told to.
SLOW = """
import sys, time
made, recording = sys.argv[1:]
file = open(recording, "wb")
print("open", flush=True)
sys.stdin.readline()
file.write(open(made, "rb").read())
file.flush()
print("made", flush=True)
time.sleep(60)
"""

RANK = """
import os, sys
from dsprof.recording import Writer
folder, rank, launch, host = sys.argv[1:]
writer = Writer.create(folder, {"rank": int(rank), "launch": launch, "host": host})
print(writer.path, flush=True)
os._exit(int(sys.stdin.readline()))
"""


def rank(folder: Path, number: int, launch: str, host: str) -> tuple[subprocess.Popen[str], Path]:
    """A process that records, once it does."""
    command = [sys.executable, "-c", RANK, str(folder), str(number), launch, host]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
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
    with deaths.watching(tmp_path, "ours"):
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
    assert (second.signal, first.signal) == (signal.SIGKILL, signal.SIGTERM)
    assert second.at < first.at
    assert others == [None, None]  # of another launch, and of a host whose numbers mean others


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="Linux tells of processes, others do not")
def test_the_code_that_a_rank_exited_with_is_told(tmp_path: Path) -> None:
    (tmp_path / launches.FOLDER).mkdir()
    with deaths.watching(tmp_path, "ours"):
        ranks = [rank(tmp_path, number, "ours", socket.gethostname()) for number in range(2)]
        time.sleep(10 * deaths.TURN)
        for code, (process, _) in zip((0, 7), ranks, strict=True):
            assert process.stdin is not None
            process.stdin.write(f"{code}\n")
            process.stdin.flush()
        time.sleep(2 * deaths.TURN)
        for process, _ in ranks:
            process.communicate()
    seen = [launches.killed_at(path) for _, path in ranks]
    assert [one and (one.signal, one.code) for one in seen] == [(0, 0), (0, 7)]


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="Linux tells of processes, others do not")
def test_what_a_parent_has_asked_for_already_is_told_or_unknown_but_never_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Linux before 6.15 tells it nobody else."""
    process = subprocess.Popen([sys.executable, "-c", "raise SystemExit(7)"])
    descriptor = os.pidfd_open(process.pid)
    process.wait()
    assert deaths._status(process.pid) is None
    assert deaths._status_later(descriptor) in {7 << 8, None}
    monkeypatch.setattr(deaths, "_GET_INFO", 0)  # as a kernel that knows no such question
    assert deaths._status_later(descriptor) is None
    os.close(descriptor)


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="Linux tells of processes, others do not")
def test_a_recording_that_is_being_made_is_looked_at_again(tmp_path: Path) -> None:
    (tmp_path / launches.FOLDER).mkdir()
    recording = tmp_path / "rank-00000.77.dsprof"
    command = [sys.executable, "-c", SLOW, str(tmp_path / "made"), str(recording)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    meta = {"rank": 0, "launch": "ours", "host": socket.gethostname(), "pid": process.pid}
    (tmp_path / "made").write_bytes(pack_header(meta))
    with deaths.watching(tmp_path, "ours"):
        assert process.stdout.readline() == "open\n"
        time.sleep(3 * deaths.TURN)
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "made\n"
        time.sleep(5 * deaths.TURN)
        process.kill()
        time.sleep(2 * deaths.TURN)
        process.communicate()
    killed = launches.killed_at(recording)
    assert killed is not None
    assert killed.signal == signal.SIGKILL


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="Linux tells of processes, others do not")
def test_another_process_that_has_the_number_here_is_not_the_recorded_one(tmp_path: Path) -> None:
    """The number is one of a container's, which counts processes from 1 by itself."""
    (tmp_path / launches.FOLDER).mkdir()
    other = subprocess.Popen(["sleep", "60"])
    header = {"rank": 0, "launch": "ours", "host": socket.gethostname(), "pid": other.pid}
    writer = Writer.create(tmp_path, header)
    with deaths.watching(tmp_path, "ours"):
        time.sleep(3 * deaths.TURN)
        other.kill()
        time.sleep(2 * deaths.TURN)
        other.wait()
    found = launches.killed_at(writer.path)
    assert found is not None
    assert found.signal == launches.NOT_FOUND
    writer.close()


PARTS = """
import os, sys
from dsprof.recording import Writer
folder, launch, host = sys.argv[1:]
header = {"rank": 0, "launch": launch, "host": host, "config": {"long": "x" * 100_000}}
for detached in (True, False):
    writer = Writer.create(folder, header, keep_bytes=8 * 4096)
    for line in sys.stdin:
        for step in range(100):
            writer.span(writer.name("forward"), 0, 1, step)
            writer.step(step, 0, 1)
            writer.flush()
        print(writer.path, flush=True)
        if line.strip() == "over":
            break
    if detached:
        writer.close()
os._exit(7)
"""


def links() -> Iterator[str]:
    """What the descriptors of this process are of."""
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # closed meanwhile
            yield str(descriptor.readlink())


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="Linux tells of processes, others do not")
def test_a_process_that_writes_many_files_is_watched_by_one_descriptor(tmp_path: Path) -> None:
    """Parts of a long recording, and one that goes on from another. How it ended is told of each,
    however long its header."""
    (tmp_path / launches.FOLDER).mkdir()
    command = [sys.executable, "-c", PARTS, str(tmp_path), "ours", socket.gethostname()]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    written, held = [], []
    with deaths.watching(tmp_path, "ours"):
        for word in ("on", "on", "over", "on", "over"):
            process.stdin.write(f"{word}\n")
            process.stdin.flush()
            written.append(Path(process.stdout.readline().strip()))
            time.sleep(3 * deaths.TURN)
            held.append(sum("pidfd" in link for link in links()))
        process.communicate()
        time.sleep(2 * deaths.TURN)
    assert len(set(written)) == len(written)
    assert len({path.name.split(".")[1] for path in written}) == 2
    assert max(held) == 1
    for path in (written[0], written[-1]):
        assert launches.killed_at(path) is not None


def test_what_was_seen_of_a_process_stays_when_a_part_of_it_is_found_later(tmp_path: Path) -> None:
    (tmp_path / launches.FOLDER).mkdir()
    launches.killed(tmp_path / "rank-00000.77.dsprof", 5, signal.SIGKILL)
    launches.not_found(tmp_path / "rank-00000.77.1.dsprof", 6)
    assert launches.killed_at(tmp_path / "rank-00000.77.dsprof") == (5, signal.SIGKILL, None)


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="Linux tells of processes, others do not")
def test_the_watch_ends_with_its_command_and_not_at_its_next_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deaths, "TURN", 20.0)
    before = threading.active_count()
    with deaths.watching(tmp_path, "ours"):
        time.sleep(0.2)  # until it waits
        begin = time.monotonic()
    assert threading.active_count() == before
    assert time.monotonic() - begin < deaths.TURN / 2
