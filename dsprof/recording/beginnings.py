"""What ranks stand in that have not begun to train: a file for each, beside recordings to come.

It holds one line of JSON: `rank`, `host`, `pid`, `launch`, `stack` (the calls, the innermost
first), for how many `seconds` it was seen in these, and `at`, when that was last, in ns since 1970.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from dsprof.recording.launches import FOLDER, end_of

LONG: Final = 10.0  # seconds after which a rank that stands somewhere tells so, and again
BUSY: Final = 120.0  # seconds for which it does; then it does every `OFTEN`
OFTEN: Final = 30.0  # seconds
_LATE: Final = 12.0  # seconds: later than that it stands elsewhere, where nobody can look
_SUFFIX: Final = ".begins"
_MOST: Final = 1 << 14  # bytes of such a file
_RANKS: Final = 1 << 24
_LONGEST: Final = 1e7  # seconds


class Begins(NamedTuple):
    """One rank."""

    rank: int
    host: str
    launch: str
    stack: str
    seconds: float
    at: int


def file_of(folder: Path, rank: int) -> Path:
    name = f"rank-{rank:05}.{socket.gethostname()}.{os.getpid()}"
    return folder / FOLDER / f"{name}{_SUFFIX}"


def write(file: Path, rank: int, stack: str, seconds: float) -> None:
    """Replace what the file says, at once.

    Raises:
        OSError: it cannot be written.
    """
    process: dict[str, Any] = {"rank": rank, "host": socket.gethostname(), "pid": os.getpid()}
    process["launch"] = os.environ.get("DSPROF_LAUNCH", "")
    told = {**process, "stack": stack, "seconds": seconds, "at": time.time_ns()}
    new = file.with_suffix(".new")
    try:
        new.write_text(json.dumps(told), "utf-8")
        new.replace(file)
    except OSError:
        with suppress(OSError):
            new.unlink(missing_ok=True)
        raise


def forget(folder: Path, is_meant: Callable[[Begins], bool]) -> None:
    """Remove what was told of these ranks."""
    for file, one in _all_of(folder):
        if is_meant(one):
            with suppress(OSError):
                file.unlink(missing_ok=True)


def is_over(folder: Path, one: Begins) -> bool:
    """Whether its launch has ended, or must have been killed."""
    return not _holds(folder, one) or end_of(folder, one.launch) is not None


def begins(folder: str | os.PathLike[str], launch: str | None = None) -> list[Begins]:
    """Of the ranks that have not begun to train, in their order; of the last launch, or of one."""
    place = Path(folder)
    every = sorted((one for _, one in _all_of(place)), key=lambda one: one.at)
    last = every[-1].launch if every and launch is None else launch
    mine = [one for one in every if one.launch == last and _holds(place, one)]
    found = {one.rank: one for one in mine}
    return [found[rank] for rank in sorted(found)]


def _holds(folder: Path, one: Begins) -> bool:
    """Whether it has told so until its launch ended, or now."""
    end = end_of(folder, one.launch)
    most = (LONG if one.seconds < BUSY else OFTEN) + _LATE
    return (end.at if end else time.time_ns()) - one.at <= most * 1e9


def _all_of(folder: Path) -> Iterator[tuple[Path, Begins]]:
    for file in (folder / FOLDER).glob(f"*{_SUFFIX}"):
        with suppress(OSError, ValueError, TypeError, KeyError, ArithmeticError, RecursionError):
            if not file.is_file():
                continue
            with file.open("rb") as stream:
                told = json.loads(stream.read(_MOST))
            rank, seconds, at = told["rank"], float(told["seconds"]), int(told["at"])
            words = str(told["host"]), str(told["launch"]), str(told["stack"])
            if isinstance(rank, int) and 0 <= rank < _RANKS and 0 < seconds < _LONGEST:
                yield file, Begins(rank, *words, seconds, at)
