"""Which recorded process ended when and how, observed by the process that started the command.

A rank that is killed cannot report it. The launcher ends the other ranks at once, so all recordings
may stop at the same row, and only the launcher knows which rank was first. Linux reports when any
process is gone (`pidfd_open(2)`). How it ended is in the last field of /proc/PID/stat (proc(5))
until its parent has reaped it, and from Linux 6.15 on also later (`PIDFD_GET_INFO`). None of this
runs in the ranks.
"""

from __future__ import annotations

import fcntl
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from dsprof.errors import DsprofError
from dsprof.recording import launches
from dsprof.recording.alive import is_writing
from dsprof.recording.layout import SUFFIX, stem_of
from dsprof.recording.stream import read_meta

TURN: Final = 0.2  # seconds between two scans for new recordings
_INFO: Final = struct.Struct("<Q52xi")  # include/uapi/linux/pidfd.h: mask, ..., exit code
_GET_INFO: Final = 3 << 30 | _INFO.size << 16 | 0xFF << 8 | 11
_EXIT: Final = 1 << 3  # a bit of the mask


class Alive(NamedTuple):
    """A process that is watched: one descriptor, however many files it writes."""

    pid: int
    recordings: dict[str | None, Path]  # one file of each recording, by the stem of its name


@contextmanager
def watching(folder: Path, launch: str) -> Iterator[None]:
    """While this is open, write down the deaths of this launch's recorded processes on
    this host.
    """
    if not hasattr(os, "pidfd_open"):
        yield
        return
    over, ending = os.pipe()
    thread = threading.Thread(target=_watch, args=(folder, launch, over), daemon=True)
    thread.start()
    try:
        yield
    finally:
        os.close(ending)
        thread.join(10 * TURN)


def _watch(folder: Path, launch: str, over: int) -> None:
    """Watch until the other end of the pipe `over` is closed."""
    seen: set[Path] = set()
    alive: dict[int, Alive] = {}  # by descriptor
    poll = select.poll()
    poll.register(over, select.POLLIN)
    last = False
    while not last:
        for descriptor in _met(folder, launch, seen, alive):
            poll.register(descriptor, select.POLLIN)
        ready = [descriptor for descriptor, _ in poll.poll(1000 * TURN)]
        last = over in ready
        for descriptor in ready:
            if descriptor == over:
                continue
            pid, recordings = alive.pop(descriptor)
            how = _status(pid)  # before its parent reaps it
            how = _status_later(descriptor) if how is None else how
            for path in recordings.values():
                launches.killed(path, time.time_ns(), how)
            poll.unregister(descriptor)
            os.close(descriptor)
    for descriptor in (over, *alive):
        os.close(descriptor)


def _met(folder: Path, launch: str, seen: set[Path], alive: dict[int, Alive]) -> Iterator[int]:
    """Descriptors of new processes; new recordings of known processes are added to `alive`."""
    for path in set(folder.glob(f"*{SUFFIX}")) - seen:
        meta = _header(path)
        if meta is None:
            continue  # it is being created right now
        seen.add(path)
        pid = meta.get("pid")
        if not isinstance(pid, int) or not _is_ours(meta, launch):
            continue
        known = next((one for one in alive.values() if one.pid == pid), None)
        if known is not None:
            if is_writing(pid, path):
                known.recordings[stem_of(path.name)] = path
            continue
        descriptor = _process(pid, path)
        if descriptor is None:
            launches.not_found(path, time.time_ns())
        else:
            alive[descriptor] = Alive(pid, {stem_of(path.name): path})
            yield descriptor


def _process(pid: int, recording: Path) -> int | None:
    """A descriptor of process `pid`, if that process is the one writing the recording.

    In a container with its own process ids, the same id is a different process here.
    """
    try:
        descriptor = os.pidfd_open(pid)
    except (OSError, OverflowError):  # it is gone, not a valid id, or this kernel lacks pidfd_open
        return None
    if is_writing(pid, recording):
        return descriptor
    os.close(descriptor)
    return None


def _header(path: Path) -> dict[str, Any] | None:
    try:
        return read_meta(path)
    except DsprofError:
        return None


def _is_ours(meta: Mapping[str, Any], launch: str) -> bool:
    """Whether a process belongs to this launch and runs on this host."""
    return (meta.get("launch"), meta.get("host")) == (launch, socket.gethostname())


def _status(pid: int) -> int | None:
    """The status of a process that has ended, as in wait(2); None if its parent has already reaped
    it.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return int(fields[-1]) if fields[0] == b"Z" else None
    except (OSError, ValueError, IndexError):
        return None


def _status_later(descriptor: int) -> int | None:
    """The same once its parent has reaped it; None if this kernel does not keep the status for
    others.
    """
    told = bytearray(_INFO.pack(_EXIT, 0))
    try:
        fcntl.ioctl(descriptor, _GET_INFO, told)
    except OSError:
        return None
    mask, status = _INFO.unpack(told)
    return status if mask & _EXIT else None
