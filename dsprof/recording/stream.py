"""The rows of one process, part by part, also while it still writes them."""

from __future__ import annotations

import os
import struct
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from dsprof.errors import DsprofError
from dsprof.recording.layout import (
    CELL,
    JSON,
    LATE,
    MARK,
    NAME_BITS,
    OVER,
    PHASE,
    ROW,
    SINCE,
    RowKind,
    file_name,
    header_size,
    parse_header,
    part_of,
    stem_of,
)

_CELL: Final = struct.Struct("<3Q")
_NAME: Final = (1 << NAME_BITS) - 1
PORTION: Final = 2 << 20  # bytes of rows per portion, which fits a core's cache


@dataclass(frozen=True)
class Portion:
    """Consecutive whole rows of a file.

    Attributes:
        path: the file.
        first: number of the first row in the file, from 1.
        rows: 64 bytes each.
        kept: whether they are from a `kept` file: spans and collectives of their steps are deleted.
    """

    path: str
    first: int
    rows: bytes
    kept: bool

    @cached_property
    def kinds(self) -> bytes:
        """The kind of each row."""
        return self.rows[::ROW]


Cell = tuple[int, int, int]  #: the three words of an in-flight cell


def in_flight(cell: Cell) -> tuple[int, int, int]:
    """The operation in a cell: name id, sequence number, and start (ns of perf_counter, 0 if
    unknown).
    """
    word, at, _ = cell
    return word & _NAME, word >> NAME_BITS, at if at < LATE else 0


def outermost_phase(cell: Cell) -> tuple[int, int, bool]:
    """The outermost phase in a cell: name id, when it began or ended (ns of perf_counter, up to
    2 ms later than this), and whether it is over.
    """
    word = cell[PHASE]
    since = word & SINCE
    return word & _NAME if since < LATE else 0, since, bool(word & OVER)


class Stream:
    """Follows the files of one process; each `read` returns what is new.

    Args:
        path: any of the process's files, or a single file under another name.

    Raises:
        DsprofError: it cannot be read, is not a recording, or has a newer format.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._given = Path(path)
        self._stem = stem_of(self._given.name)
        self.meta: dict[str, Any] = read_meta(self._given)
        self._part = 0
        self._fd = -1
        self._path = ""
        self._rows_at = self._offset = 0

    def read(self) -> Iterator[Portion]:
        """New rows, in portions, up to where they ended when the last one was read: what comes
        meanwhile is left, so that a fast writer keeps nobody. A truncated row is left, too.

        Raises:
            DsprofError: a file can no longer be read, as where a server has lost it.
        """
        try:
            yield from self._read()
        except OSError as error:
            raise _unreadable(self._file(self._part), error) from error

    def _read(self) -> Iterator[Portion]:
        while self._fd >= 0 or self._open():
            if self._fd < 0:
                yield from self._kept()
                continue
            over = self._is_over()  # checked first: if so, nothing is added to this part any more
            rows = self._whole_rows()
            while rows:
                first = self.row
                self._offset += len(rows)
                yield Portion(self._path, first, rows, kept=False)
                rows = self._whole_rows() if over or len(rows) >= PORTION else b""
            if not over:
                return
            self.close()
            self._part += 1

    @property
    def row(self) -> int:
        """Number of the next row of the current part, from 1."""
        return (self._offset - self._rows_at) // ROW + 1

    def skip(self, part: int, most: int) -> Iterator[bytes]:
        """Go to the last `most` bytes of a part; returns its rows before them, in portions."""
        self.close()
        self._part = part
        try:
            yield from self._skip(most)
        except OSError as error:
            raise _unreadable(self._file(part), error) from error

    def _skip(self, most: int) -> Iterator[bytes]:
        if not self._open() or self._fd < 0:
            return
        size = end_of_rows(self._fd, self._rows_at) - self._rows_at
        end = self._rows_at + max(0, size - most) // ROW * ROW
        while self._offset < end and (rows := self._whole_rows()):
            rows = rows[: end - self._offset]
            self._offset += len(rows)
            yield rows

    def cell(self) -> Cell:
        """The in-flight cell of the last part."""
        if self._fd < 0:
            return 0, 0, 0
        one, two, three = _CELL.unpack(os.pread(self._fd, _CELL.size, CELL))
        return one, two, three

    @property
    def written(self) -> float:
        """When its newest file was last written, in seconds since 1970; 0 if no file is left."""
        if self._fd >= 0:
            return os.fstat(self._fd).st_mtime
        times = [0.0]
        with suppress(OSError):  # the folder is no longer readable
            files = [self._given] if self._stem is None else map(self._file, self._parts())
            for file in files:
                with suppress(FileNotFoundError):  # deleted meanwhile
                    times.append(file.stat().st_mtime)
        return max(times)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def _file(self, part: int | str) -> Path:
        if self._stem is None:
            return self._given
        return self._given.with_name(file_name(self._stem, part))

    def _parts(self) -> list[int]:
        """Numbers of the existing parts."""
        try:
            names = [path.name for path in self._given.parent.iterdir()]
        except FileNotFoundError:
            return []
        return sorted(part_of(name) for name in names if stem_of(name) == self._stem)

    def _open(self) -> bool:
        """Open the next part; False if it does not exist yet.

        True without an open file if the part was deleted and a later one exists.
        """
        path = self._file(self._part)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return self._stem is not None and any(part > self._part for part in self._parts())
        head = os.pread(fd, JSON, 0)
        rows = header_size(head, str(path)) if len(head) == JSON else 0
        if not 0 < rows <= os.fstat(fd).st_size:
            os.close(fd)  # it is being created right now
            return False
        self._fd, self._path = fd, str(path)
        self._rows_at = self._offset = rows
        return True

    def _is_over(self) -> bool:
        """Whether the writer has moved on to the next part."""
        if self._stem is None:
            return False
        return self._file(self._part + 1).exists() or os.fstat(self._fd).st_nlink == 0

    def _whole_rows(self) -> bytes:
        data = os.pread(self._fd, PORTION, self._offset)
        kinds = data[: len(data) // ROW * ROW : ROW]
        known = kinds.find(0)  # zeros: a disk that lost power, or rows that are not stored yet
        return data[: (len(kinds) if known < 0 else known) * ROW]

    def _kept(self) -> Iterator[Portion]:
        """The kept rows of the deleted parts, from the current one up to the oldest
        existing one.
        """
        oldest = min((part for part in self._parts() if part > self._part), default=self._part)
        path = self._file("kept")
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            data = b""
        begin, end = self._marked(data, path, oldest)
        self._part = oldest
        for at in range(begin, end, PORTION):
            first = (at - header_size(data[:JSON], str(path))) // ROW + 1
            yield Portion(str(path), first, data[at : min(at + PORTION, end)], kept=True)

    def _marked(self, data: bytes, path: Path, oldest: int) -> tuple[int, int]:
        """Offsets between which the kept rows of the parts from the current one to `oldest`
        (excluded) are.
        """
        if not data:
            return 0, 0
        start = header_size(data[:JSON], str(path))
        begin = end = start
        kinds = data[start::ROW]
        at = kinds.find(RowKind.KEPT)
        while at >= 0:
            place = start + at * ROW
            if place + ROW > len(data):
                break
            part = MARK.unpack_from(data, place)[1]
            begin = place + ROW if part < self._part else begin
            end = place + ROW if part < oldest else end
            at = kinds.find(RowKind.KEPT, at + 1)
        return begin, max(begin, end)


def end_of_rows(fd: int, begin: int) -> int:
    """The offset at which the rows end that begin at `begin`. Only zeros may follow the
    last row.
    """
    places = range(begin, os.fstat(fd).st_size, ROW)
    return begin + ROW * bisect_left(places, True, key=lambda at: not any(os.pread(fd, 1, at)))


def read_meta(path: Path) -> dict[str, Any]:
    """The JSON in a file's header.

    Raises:
        DsprofError: it cannot be read, is not a recording, is truncated, or has a newer format.
    """
    try:
        with path.open("rb") as file:
            head = file.read(JSON)
            data = head + file.read(header_size(head, str(path)) - JSON)
    except OSError as error:
        raise _unreadable(path, error) from error
    return parse_header(data, str(path)).meta


def _unreadable(path: Path, error: OSError) -> DsprofError:
    return DsprofError(f"cannot be read: {error.strerror or error}", str(path))
