"""Lines of a log to look at: its last ones, or those around a place."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from dsprof.live.log import LONGEST, LogFollower, metric_lines
from dsprof.live.picture import Lines, Tail

_AROUND: Final = 300
_MOST: Final = 8 << 20  # bytes looked through for a line


def tail_of(log: LogFollower) -> Tail:
    return Tail(tuple(log.lines), metric_lines(log.fresh()), counted=log.base is not None)


def excerpt(source: str, first: int, offset: int, line: int) -> Lines | None:
    """The lines around `line`; line `first` begins at byte `offset`."""
    if source == "-":
        return None
    try:
        with Path(source).open("rb") as file:
            file.seek(offset)
            data = file.read(_MOST)
    except OSError:
        return None
    lines = data.split(b"\n")
    low = max(0, line - first - _AROUND)
    shown = lines[low : line - first + _AROUND]
    found = tuple((first + low + at, text[:LONGEST]) for at, text in enumerate(shown))
    return found if any(number == line for number, _ in found) else None
