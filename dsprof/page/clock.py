"""From when to when a source speaks, by every stamped line and not only those that were read."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

import pandas as pd

from dsprof.errors import DsprofError
from dsprof.logs.clocks import UNKNOWN, microseconds
from dsprof.logs.source import bytes_of, is_plain
from dsprof.logs.wrappers import study

REACH: Final = 1 << 18  #: bytes looked at from either end of a source
TRIED: Final = 100  #: lines from either end that may state a time
_LOOKED_AT: Final = 400  #: letters of a line
_TIME: Final = re.compile(rb"\d\d:\d\d:\d\d")


def span(sources: Sequence[str], at: pd.Series) -> tuple[pd.Timestamp, pd.Timestamp] | None:
    """First and last time that any line of the sources states; None where none does.

    Args:
        sources: files; those that cannot be read again are left out.
        at: times of the events, of which a long source has some between its ends.
    """
    told = at.dropna()
    known = [*(told.min(), told.max())] if len(told) else []
    zone = known[0].tzinfo if known else None
    stamps = [stamp for source in sources for stamp in _ends(source)]
    times = [*known, *(stamp.tz_localize(zone) for stamp in stamps)]
    return (min(times), max(times)) if times else None


def _ends(source: str) -> Iterable[pd.Timestamp]:
    """The first stamp near the start of a source, and the last one near its end."""
    try:
        head, tail = _head_and_tail(source)
    except (DsprofError, OSError):
        return
    for lines in (islice(_clocked(head), TRIED), reversed(deque(_clocked(tail), TRIED))):
        stamp = next((found for found in map(_stamp, lines) if found is not None), None)
        if stamp is not None:
            yield stamp


def _head_and_tail(source: str) -> tuple[bytes, bytes]:
    if source == "-":  # standard input is read once
        return b"", b""
    if not is_plain(source):
        return next(iter(bytes_of(source)), b"")[:REACH], b""
    with Path(source).open("rb") as file:
        head = file.read(REACH)
        file.seek(max(0, file.seek(0, 2) - REACH))
        return head, file.read(REACH)


def _clocked(text: bytes) -> Iterator[bytes]:
    """The starts of the lines in which something looks like a time of day."""
    end = -1
    for match in _TIME.finditer(text):
        if match.start() > end:
            start = text.rfind(b"\n", 0, match.start()) + 1
            end = text.find(b"\n", match.end()) % (len(text) + 1)
            yield text[start : min(end, start + _LOOKED_AT)]


def _stamp(line: bytes) -> pd.Timestamp | None:
    """The time in front of a line; None where no wrapper states one with its year."""
    where = study(line, whole=False).at
    if where is None:
        return None
    found = int(microseconds([line[slice(*where)]])[0])
    return None if found == UNKNOWN else pd.Timestamp(found, unit="us")
