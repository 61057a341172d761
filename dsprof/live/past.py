"""What stood there before the place where reading began: read later, when nothing else waits."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from dsprof.errors import DsprofError
from dsprof.grammar import Grammar
from dsprof.live.log import LogFollower, last_of
from dsprof.live.streams import Part
from dsprof.recording import Recording
from dsprof.recording.layout import JSON, ROW, SUFFIX, header_size, part_of, stem_of
from dsprof.recording.stream import Portion, end_of_rows

SLICE: Final = 2 << 20  # bytes read at once
_COUNTED: Final = 8 << 20
_NEWLINE: Final = 10


class Past(Protocol):
    """What is read later.

    Attributes:
        done: all of it has been read.
        left: bytes that have not.
    """

    done: bool

    @property
    def left(self) -> int: ...

    def read(self, until: float) -> Iterator[pa.Table]:
        """Events, until that moment of `time.monotonic()`."""

    def close(self) -> None:
        """Read no more."""


class LogPast:
    """Of a large log: first its lines are counted, which the `tail` is told, then it is read."""

    def __init__(self, name: str, end: int, grammar: Grammar, tail: LogFollower) -> None:
        self.done = False
        self._log = LogFollower(Part(name, end), grammar)
        self._count = Part(name, end)
        self._tail = tail
        self._lines = 0
        self._end = end
        self.goes_on: int | None = None  # the launch that the tail goes on with, once that is known

    @property
    def left(self) -> int:
        return self._end - self._log.stream.offset

    def read(self, until: float) -> Iterator[pa.Table]:
        while time.monotonic() <= until and not self.done:
            if self._count.ended:
                yield from self._read()
            else:
                self._count_on()

    def close(self) -> None:
        self._count.close()
        self._log.stream.close()

    def _count_on(self) -> None:
        data = np.frombuffer(self._count.read(_COUNTED), np.uint8)
        self._lines += int(np.count_nonzero(data == _NEWLINE))
        if self._count.ended:
            self._tail.recount(self._lines)

    def _read(self) -> Iterator[pa.Table]:
        self._log.poll(SLICE)
        self.done = self._log.stream.ended
        if self.done:
            self._log.poll(0)
        yield from self._log.settled
        self._log.settled.clear()
        if self.done:
            last = self._log.fresh()
            self._tail.fingerprints |= self._log.fingerprints
            self._tail.fresh()  # from now on its first step is known
            self.goes_on = _goes_on(last, self._tail.first)
            yield last


def _goes_on(past: pa.Table, first: int | None) -> int | None:
    """The last launch of what was before, unless steps begin again behind it or say nothing."""
    steps = past["step"].drop_null()
    if first is None or not len(steps) or first < steps[-1].as_py():
        return None
    return last_of(past, "segment")


class RecordingPast:
    """Of a long recording: what lies before row `first` of the file `border`."""

    def __init__(self, recording: Recording, border: Path, first: int, left: int) -> None:
        self.done = False
        self.left = left
        self._border, self._first = border, first
        self._recording = Recording(recording.path)
        self._recording.launched(recording.segment)
        self._portions = self._recording.portions()

    def read(self, until: float) -> Iterator[pa.Table]:
        while time.monotonic() <= until and not self.done:
            portion = next(self._portions, None)
            rows = self._before(portion) if portion else b""
            if portion and rows:
                self.left = max(0, self.left - len(rows))
                yield self._recording.events(replace(portion, rows=rows))
            else:
                self.done, self.left = True, 0

    def close(self) -> None:
        self._recording.close()

    def _before(self, portion: Portion) -> bytes:
        """The rows before the border. Once its file is gone, those kept may be of later ones."""
        part, border = part_of(Path(portion.path).name), part_of(self._border.name)
        if portion.kept:
            return portion.rows if self._border.exists() else b""
        if part != border:
            return portion.rows if part < border else b""
        return portion.rows[: max(0, self._first - portion.first) * ROW]


class PartFile(NamedTuple):
    """One of the files of a recording; `size` is in bytes, without room for rows to come."""

    part: int
    file: Path
    size: int


Parts = list[PartFile]


def process_named(file: Path) -> str:
    """The same for all files of one process."""
    return str(file.with_name(stem_of(file.name) or file.name))


def parts_under(name: str) -> dict[str, Parts]:
    """The files of each recorded process under a path, the oldest first."""
    place = Path(name)
    found: defaultdict[str, Parts] = defaultdict(list)
    for file in place.rglob(f"*{SUFFIX}") if place.is_dir() else [place]:
        with suppress(FileNotFoundError):  # the oldest may be forgotten meanwhile
            if part_of(file.name) >= 0:
                one = PartFile(part_of(file.name), file, file.stat().st_size)
                found[process_named(file)].append(one)
    for parts in found.values():
        parts.sort()
        parts[-1] = parts[-1]._replace(size=_written(parts[-1]))
    return found


def _written(part: PartFile) -> int:
    """Bytes of a file that grows, up to the end of its rows."""
    with suppress(OSError, DsprofError), part.file.open("rb") as stream:
        return end_of_rows(stream.fileno(), header_size(stream.read(JSON), str(part.file)))
    return part.size


def end_of(recording: Recording, parts: Parts, most: int) -> RecordingPast | None:
    """Let a long recording begin `most` bytes before its end; what was before, None if it is
    short."""
    left = sum(file.size for file in parts)
    if left <= 2 * most:
        return None
    for border in reversed(parts):
        left -= min(border.size, most)
        if border.size >= most:
            break
        most -= border.size
    first = recording.skip(border.part, most)
    return RecordingPast(recording, border.file, first, left)
