"""When the command of a launch ended and which process died how: files beside the recordings.

Ranks that are killed together cannot record that, nor since when one waited for another. The
process that started them can tell when all were gone and, on Linux, which was killed first.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from dsprof.recording.layout import LATE, stem_of

FOLDER: Final = ".attach"  # in the run folder
NOT_FOUND: Final = -1  #: instead of a signal: no process here had the recording open by then
#: What was seen to die within so many seconds may have died in any order.
AT_ONCE: Final = 0.1
#: Who writes so many seconds after the end of its command has outlived it: `sbatch`, `&`.
OUTLIVED: Final = 5.0
#: Signals that nobody sends to end a job in good order; a rank that timed out aborts itself.
FAULTS: Final = (signal.SIGKILL, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE)
_SIGNAL: Final = 0x7F  # mask for a status of wait(2)
_NAME: Final = re.compile(r"[\w.-]{1,100}")  # a launch that a header names must not be a path


class Gone(NamedTuple):
    """How a process ended, observed from outside."""

    at: int  # ns since 1970
    signal: int  # that ended it; 0 if none or if not observed; see `NOT_FOUND`
    code: int | None = None  # exit code; None if a signal ended it or if not observed


class End(NamedTuple):
    """How the command of a launch ended."""

    at: int  # ns since 1970
    code: int | None = None  # exit code, -9 if signal 9 ended it; None if not noted


def signal_name(number: int) -> str | None:
    """`SIGKILL` of 9; None where this machine knows no such signal."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return None


def ranks_recorded(known: Mapping[str, Any]) -> int:
    """How many ranks have recordings among those that were read; 0 of a log.

    Args:
        known: configuration and meta data of a run.
    """
    return len({one.get("rank") for one in known.get("recordings") or ()})


def is_every_rank_recorded(known: Mapping[str, Any]) -> bool:
    """Whether recordings of all ranks were read; those of other hosts may be in other folders."""
    recorded, world = ranks_recorded(known), known.get("world_size")
    return recorded > 0 and recorded >= (world or recorded)


def end(folder: str | os.PathLike[str], launch: str, code: int) -> None:
    """Note that the command of `launch`, which recorded to `folder`, has just ended
    with this code.
    """
    with suppress(OSError):  # readers then rely on what the ranks wrote
        _file(folder, launch).write_text(f"{time.time_ns()} {code}", encoding="ascii")


def end_of(folder: str | os.PathLike[str], launch: object) -> End | None:
    """How the command ended. None if it runs, was not started by `dsprof attach`, or is unknown."""
    if not isinstance(launch, str) or not _NAME.fullmatch(launch):
        return None
    try:
        found = End(*map(int, _file(folder, launch).read_bytes()[:40].split()))
    except (OSError, ValueError, TypeError):
        return None
    return found if 0 < found.at < LATE else None


def killed(recording: Path, at: int, status: int | None) -> None:
    """Note that the process of `recording` was gone at `at`, ns since 1970, with a status as in
    wait(2) if known.
    """
    by, code = (status or 0) & _SIGNAL, (status or 0) >> 8
    told = f"{at} {by}" if status is None or by else f"{at} 0 {code}"
    with suppress(OSError):
        _beside(recording).write_text(told, encoding="ascii")


def not_found(recording: Path, at: int) -> None:
    """Note that the process of `recording` was gone at `at`, ns since 1970, or is not on this host.

    An existing note stays: a process may start a new part and end right away.
    """
    with suppress(OSError), _beside(recording).open("x", encoding="ascii") as file:
        file.write(f"{at} {NOT_FOUND}")


def killed_at(recording: Path) -> Gone | None:
    """When a process was gone, and how; None if that was not observed."""
    try:
        at, by, *code = map(int, _beside(recording).read_bytes()[:40].split())
        return Gone(at, by, *code) if 0 < at < LATE else None
    except (OSError, ValueError, TypeError):
        return None


def _beside(recording: Path) -> Path:
    return recording.parent / FOLDER / f"{stem_of(recording.name) or recording.stem}.killed"


def _file(folder: str | os.PathLike[str], launch: str) -> Path:
    return Path(folder) / FOLDER / f"{launch}.ended"
