"""What ranks stand in that have not begun to train: a file for each, beside the recordings to come.

It holds one line of JSON: `rank`, `host`, `pid`, `stack` (the calls, the innermost first), for how
many `seconds` it was seen in these, and `at`, when that was last, in ns since 1970.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from dsprof.recording.launches import FOLDER

_SUFFIX: Final = ".begins"
_MOST: Final = 1 << 14  # bytes of such a file
_TOGETHER: Final = 300_000_000_000  # ns; ranks that hang together tell of it at least so often


class Begins(NamedTuple):
    """One rank."""

    rank: int
    host: str
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
    process = {"rank": rank, "host": socket.gethostname(), "pid": os.getpid()}
    told = {**process, "stack": stack, "seconds": seconds, "at": time.time_ns()}
    new = file.with_suffix(".new")
    new.write_text(json.dumps(told), "utf-8")
    new.replace(file)


def begins(folder: str | os.PathLike[str], since: int = 0) -> list[Begins]:
    """Of the ranks of the last launch that have not begun to train, in their order.

    Args:
        since: ns since 1970; leave out what was seen before.
    """
    every = sorted(_all_of(Path(folder)), key=lambda one: one.at)
    first = max(since, every[-1].at - _TOGETHER) if every else 0
    found = {one.rank: one for one in every if one.at >= first}
    return [found[rank] for rank in sorted(found)]


def _all_of(folder: Path) -> Iterator[Begins]:
    for file in (folder / FOLDER).glob(f"*{_SUFFIX}"):
        with suppress(OSError, ValueError, TypeError, KeyError, ArithmeticError, RecursionError):
            with file.open("rb") as stream:
                told = json.loads(stream.read(_MOST))
            numbers = int(told["rank"]), float(told["seconds"]), int(told["at"])
            yield Begins(numbers[0], str(told["host"]), str(told["stack"]), *numbers[1:])
