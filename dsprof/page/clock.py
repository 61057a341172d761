"""From when to when a source speaks, by every stamped line and not only those that were read."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

import pandas as pd

from dsprof.errors import DsprofError
from dsprof.logs.columns.clocks import UNKNOWN, microseconds
from dsprof.logs.prefixes.wrappers import study
from dsprof.logs.sources.source import bytes_of, is_plain
from dsprof.page.model import Place
from dsprof.recording.layout import SUFFIX

REACH: Final = 1 << 18  #: bytes looked at from either end of a source
TRIED: Final = 100  #: lines from either end that may state a time
_LOOKED_AT: Final = 400  #: letters of a line
_TIME: Final = re.compile(rb"\d\d:\d\d:\d\d")


class Moment(NamedTuple):
    """A time, and the line that states it where one is known."""

    at: pd.Timestamp
    place: Place | None


def span(sources: Sequence[str], events: pd.DataFrame) -> tuple[Moment, Moment] | None:
    """First and last time that any line of the sources states; None where none does.

    Args:
        sources: files; those that cannot be read again are left out.
        events: with `at`, `source` and `line`; a long source has some between its ends.
    """
    told = events["at"]
    ends = [told.argmin(), told.argmax()] if told.notna().any() else []
    known = [_moment(events.iloc[at]) for at in ends]
    zone = known[0].at.tzinfo if known else None
    found = [moment for source in sources for moment in _ends(source)]
    moments = [*known, *(m._replace(at=m.at.tz_localize(zone)) for m in found)]
    if not moments:
        return None
    return min(moments, key=lambda m: m.at), max(reversed(moments), key=lambda m: m.at)


def _moment(row: pd.Series[Any]) -> Moment:
    return Moment(row["at"], Place.of(str(row["source"]), row["line"]))


def _ends(source: str) -> Iterable[Moment]:
    """The first stamp near the start of a source, and the last one near its end."""
    if source.endswith(SUFFIX):  # rows tell their times
        return
    try:
        head, tail, before = _head_and_tail(source)
    except (DsprofError, OSError):
        return
    for text, above, last in ((head, 0, False), (tail, before, True)):
        lines = reversed(deque(_clocked(text), TRIED)) if last else islice(_clocked(text), TRIED)
        stamps = ((start, _stamp(line)) for start, line in lines)
        start, stamp = next(((s, t) for s, t in stamps if t is not None), (0, None))
        if stamp is not None:
            yield Moment(stamp, Place(source, above + text.count(b"\n", 0, start) + 1))


def _head_and_tail(source: str) -> tuple[bytes, bytes, int]:
    """Text of the ends of a source, and how many lines end before the last of the two."""
    if source == "-":  # standard input is read once
        return b"", b"", 0
    if not is_plain(source):
        return next(iter(bytes_of(source)), b"")[:REACH], b"", 0
    with Path(source).open("rb") as file:
        head = file.read(REACH)
        start = max(0, file.seek(0, 2) - REACH)
        file.seek(start)
        return head, file.read(REACH), _lines_before(file, start)


def _lines_before(file: BinaryIO, end: int) -> int:
    file.seek(0)
    left, count = end, 0
    while left > 0:
        data = file.read(min(left, 1 << 24))
        count += data.count(b"\n")
        left -= len(data) or left
    return count


def _clocked(text: bytes) -> Iterator[tuple[int, bytes]]:
    """The lines in which something looks like a time of day: where each starts, and its start."""
    end = -1
    for match in _TIME.finditer(text):
        if match.start() > end:
            start = text.rfind(b"\n", 0, match.start()) + 1
            end = text.find(b"\n", match.end()) % (len(text) + 1)
            yield start, text[start : min(end, start + _LOOKED_AT)]


def _stamp(line: bytes) -> pd.Timestamp | None:
    """The time in front of a line; None where no wrapper states one with its year."""
    where = study(line, whole=False).at
    if where is None:
        return None
    found = int(microseconds([line[slice(*where)]])[0])
    return None if found == UNKNOWN else pd.Timestamp(found, unit="us")
