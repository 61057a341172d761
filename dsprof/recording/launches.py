"""When the command of a launch was over, and who was killed: left beside the recordings.

Ranks that are killed cannot say so, nor since when one waited for another. Who started them can
say when all were gone, and on Linux which of them was killed first.
"""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from dsprof.recording.layout import stem_of

FOLDER: Final = ".attach"  # of the run folder
NOT_FOUND: Final = -1  #: in the place of a signal: no process here had the recording open, then
_SIGNAL: Final = 0x7F  # of a status, as wait(2) gives it
_NAME: Final = re.compile(r"[\w.-]{1,100}")  # what a header says is no path


class Gone(NamedTuple):
    """How a process ended, as seen from outside."""

    at: int  # ns since 1970
    signal: int  # that ended it; 0 for none, or where nobody saw how it ended; see `NOT_FOUND`
    code: int | None = None  # it exited with; None where a signal ended it, or nobody saw


def end(folder: str | os.PathLike[str], launch: str, code: int) -> None:
    """The command of `launch`, which recorded to `folder`, has ended just now, with this code."""
    with suppress(OSError):  # readers go by what the ranks wrote, then
        _file(folder, launch).write_text(f"{time.time_ns()} {code}", encoding="ascii")


def ended_at(folder: str | os.PathLike[str], launch: object) -> int | None:
    """ns since 1970; None where it goes on, was not started by `dsprof attach`, or is unknown."""
    return next(iter(_end_of(folder, launch)), None)


def ended_with(folder: str | os.PathLike[str], launch: object) -> int | None:
    """The code its command exited with, if that is known; -9 where signal 9 ended it."""
    return next(iter(_end_of(folder, launch)[1:]), None)


def _end_of(folder: str | os.PathLike[str], launch: object) -> list[int]:
    if not isinstance(launch, str) or not _NAME.fullmatch(launch):
        return []
    try:
        return [int(word) for word in _file(folder, launch).read_bytes()[:40].split()]
    except (OSError, ValueError):
        return []


def killed(recording: Path, at: int, status: int | None) -> None:
    """The process of `recording` was gone at ns since 1970, with a status of wait(2), if known."""
    signal, code = (status or 0) & _SIGNAL, (status or 0) >> 8
    told = f"{at} {signal}" if status is None or signal else f"{at} 0 {code}"
    with suppress(OSError):
        _beside(recording).write_text(told, encoding="ascii")


def not_found(recording: Path, at: int) -> None:
    """The process of `recording` was gone at ns since 1970, or does not run here.

    What is told of it already stays: a process may begin a part and end at once.
    """
    with suppress(OSError), _beside(recording).open("x", encoding="ascii") as file:
        file.write(f"{at} {NOT_FOUND}")


def killed_at(recording: Path) -> Gone | None:
    """When a process was gone, and how; None if nobody saw that."""
    try:
        at, signal, *code = map(int, _beside(recording).read_bytes()[:40].split())
        return Gone(at, signal, *code)
    except (OSError, ValueError, TypeError):
        return None


def _beside(recording: Path) -> Path:
    return recording.parent / FOLDER / f"{stem_of(recording.name) or recording.stem}.killed"


def _file(folder: str | os.PathLike[str], launch: str) -> Path:
    return Path(folder) / FOLDER / f"{launch}.ended"
