"""Whether the process of a recording is there, and whether it goes on."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from dsprof.recording.layout import stem_of

_QUIET: Final = 10.0  # seconds
_STEPS: Final = 5


def pid_namespace() -> str:
    """Identifies what process ids belong to: this boot of this machine and, in a container with its
    own, the container; "" where the kernel does not tell.
    """
    with suppress(OSError, ValueError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"  # noqa: PTH115 - it is no path
    return ""


def is_gone(pid: int, pids: str) -> bool:
    """Whether the process with this id, of the namespace `pids` (`pid_namespace`), is certainly
    gone.
    """
    if not pids or pids != pid_namespace():
        return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):  # no process has a number that large
        return True
    except OSError:
        pass  # it is another user's
    return False


def is_stopped(pid: int) -> bool:
    """Whether this process stands still by a signal (SIGSTOP, Ctrl-Z, a scheduler that suspends its
    job) or in a debugger.
    """
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2][:1]
    except OSError:
        return False
    return state in (b"T", b"t")


def shares_clock(pid: int) -> bool:
    """Whether `perf_counter` counts from the same moment in process `pid` as in this one, as it
    does on one host, but for those in a time namespace.
    """
    try:
        ours, its = (os.readlink(f"/proc/{one}/ns/time") for one in ("self", pid))  # noqa: PTH115
    except FileNotFoundError:  # a kernel before such namespaces
        return Path(f"/proc/{pid}/ns").is_dir()
    except OSError:
        return False
    return ours == its


def is_writing(pid: int, recording: Path) -> bool:
    """Whether process `pid` has a file of this recording open, so that it is the recorded one.

    In a container with its own process ids, the same id is a different process here.
    """
    held = Path(f"/proc/{pid}/fd")
    try:
        return any(_is_link_to(link, recording) for link in held.iterdir())
    except OSError:  # gone, or we lack permission
        return False


def _is_link_to(link: Path, recording: Path) -> bool:
    """Compare names first: a file on another file system may be slow to stat."""
    try:
        name = link.readlink().name
        file = recording.with_name(name)
        mine = stem_of(name) or name, stem_of(recording.name) or recording.name
        return mine[0] == mine[1] and link.samefile(file)
    except (OSError, ValueError):  # ValueError: a link without a name
        return False


def is_silent(idle: float, step: float) -> bool:
    """Whether nothing has been written for long: for 10 s, or five steps if those are longer.

    Args:
        idle: seconds since anything was.
        step: seconds of a usual step, 0 if unknown.
    """
    return idle >= max(_QUIET, _STEPS * step)
