"""The files of one process: a ring of parts, and what outlives a part.

Spans and collectives of the oldest part are forgotten with it; its other rows (steps,
metrics, problems, ...) are copied to a `kept` file first. A short run has one part and
nothing else.
"""

from __future__ import annotations

import mmap
import os
import re
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from dsprof.errors import DsprofError
from dsprof.recording.layout import CELL, MARK, PAGE, ROW, RowKind, file_name, pack_header

PARTS: Final = 8  # of the ring: detail is forgotten an eighth at a time
ROOM: Final = 256 << 10  # bytes of a file's end that are mapped at a time
AT_ONCE: Final = 1 << 20  # bytes of lasting rows that wait in memory to be copied
TOUCHED: Final = 1_000_000_000  # ns after which a file is said to be written again

#: Zeros behind the last row, where reading ends. They hold room for last words on a full disk.
SPARE: Final = bytes(16 * ROW)

#: File systems that write a page where it lies. Elsewhere (btrfs, NFS, Lustre) a store into a
#: mapped page may find the disk full or the file gone, and the kernel ends the process for it.
IN_PLACE: Final = frozenset({"ext2", "ext3", "ext4", "xfs", "tmpfs", "overlay"})
#: A map needs no descriptor of its own, which training might close.
_MAPPED: Final[dict[str, Any]] = {"trackfd": False} if sys.version_info >= (3, 13) else {}
#: Maps of an older Python whose descriptors training has closed, and may have opened others by
#: their numbers since: whoever let go of these maps would close those.
_ABANDONED: Final[list[tuple[memoryview, End | None]]] = []


class Ring:
    """Appends rows to the current part and goes on in a new one when it is full.

    Raises:
        FileExistsError: another process has these names.
        DsprofError: a file cannot be written.
    """

    def __init__(self, folder: Path, stem: str, meta: dict[str, Any], keep_bytes: int) -> None:
        self._folder, self._stem, self._meta = folder, stem, meta
        self._limit = max(keep_bytes // PARTS, PAGE)
        self._part = self._oldest = 0
        self._lasting: list[bytes] = []  # rows of this part that outlive it
        self._waiting = self._kept_bytes = 0
        self.failed, self._pid = False, os.getpid()
        self.spare = SPARE
        self._fd, self._bytes = _create(self.path, self._header(0), SPARE)
        self._first, self._file = self._bytes, _identity(self._fd)
        self._maps = file_system(self.path) in IN_PLACE and sys.byteorder == "little"
        self._mapped: End | None = None
        self._touched = time.perf_counter_ns()
        self.cell = self._cell()

    @property
    def path(self) -> Path:
        """The file that is written to now."""
        return self._folder / file_name(self._stem, self._part)

    @property
    def is_open(self) -> bool:
        return self._fd >= 0

    def append(self, names: bytes, detail: bytes, lasting: bytes) -> None:
        """One write of all three, at a row's boundary; all but `detail` outlives the part.

        Raises:
            DsprofError: not all could be written, so none is there: a part of them would be
                steps that are half told. The next write goes to where they would have begun.
        """
        self._write(names + detail + lasting)
        self._lasting.append(names + lasting)
        self._waiting += len(names) + len(lasting)
        if self._waiting >= AT_ONCE:
            self._keep()

    def is_full(self, *, step_ended: bool) -> bool:
        """Whether to turn: between two steps, unless one step alone fills two parts."""
        return self._bytes >= (self._limit if step_ended else 2 * self._limit)

    def turn(self, definitions: bytes) -> None:
        """Go on in a new part, which begins with `definitions`; forget the oldest one."""
        self._look()
        self._lasting.append(MARK.pack(RowKind.KEPT, self._part))
        self._keep()
        new = self._folder / file_name(self._stem, self._part + 1)
        end, self.spare, self._mapped = self._bytes, SPARE, None
        old, (self._fd, self._bytes) = self._fd, _create(new, self._header(self._part + 1), SPARE)
        self._first, self._file = self._bytes, _identity(self._fd)
        _cut(old, end)
        _close(old, self.path)
        self._part += 1
        number, since = self.cell
        self.cell = self._cell()
        self.cell[1], self.cell[0] = since, number
        self._write(definitions)
        while self._part - self._oldest >= PARTS:
            (self._folder / file_name(self._stem, self._oldest)).unlink(missing_ok=True)
            self._oldest += 1

    def _write(self, rows: bytes) -> None:
        if not rows:
            return
        if not self._stored(rows):
            self._hand_over(rows)
        self._bytes += len(rows)

    def _stored(self, rows: bytes) -> bool:
        """Put rows into the mapped end of the file; False where none can be had."""
        if not self._maps:
            return False
        spare = len(self.spare)
        if self._mapped is None or not self._mapped.store(rows, self._bytes, spare):
            self._look()
            try:
                self._mapped = End(self._fd, self._bytes, len(rows) + spare)
            except (OSError, ValueError):  # a disk that is full, or nearly
                self._mapped, self._maps = None, False
                return False
            self._mapped.store(rows, self._bytes, spare)
        self._touch()
        return True

    def _touch(self) -> None:
        """Readers ask when a file was written, and stores alone do not tell its file system."""
        now = time.perf_counter_ns()
        if now - self._touched > TOUCHED:
            self._touched = now
            self._look()
            with suppress(OSError):
                os.utime(self._fd)

    def _hand_over(self, rows: bytes) -> None:
        """Have the kernel write rows, and zeros behind them."""
        self._look()
        _, error = _put(self._fd, rows + self.spare, self._bytes)
        self.failed = error is not None
        if error:
            _put(self._fd, self.spare, self._bytes)  # it has its place already
            _cut(self._fd, self._bytes + len(self.spare))
            self.spare = b""
            raise unwritable(self.path, error) from error

    def _look(self) -> None:
        """Training may have closed all descriptors: ours may be another file's by now."""
        if _identity(self._fd) != self._file:
            self._fd = self._opened_again()

    def _opened_again(self) -> int:
        self._abandon_maps()
        fd = _open(self.path, os.O_RDWR)
        if _identity(fd) != self._file:
            os.close(fd)
            raise DsprofError("was replaced while it was written", str(self.path))
        return fd

    def _abandon_maps(self) -> None:
        if not _MAPPED:
            _ABANDONED.append((self.cell, self._mapped))

    def _keep(self) -> None:
        """Copy lasting rows to the `kept` file."""
        rows = b"".join(self._lasting)
        self._lasting.clear()
        self._waiting = 0
        path = self._folder / file_name(self._stem, "kept")
        if not self._kept_bytes:
            fd, self._kept_bytes = _create(path, self._header(-1))
        else:
            fd = _open(path, os.O_WRONLY)
        written, error = _put(fd, rows, self._kept_bytes)
        _close(fd, path)
        self._kept_bytes += written // ROW * ROW
        if error:
            raise unwritable(path, error) from error

    def _header(self, part: int) -> bytes:
        return pack_header(self._meta | {"part": part})

    def _cell(self) -> memoryview:
        """The in-flight cell of a file; memory of our own where it cannot be mapped."""
        if self._maps:
            try:
                return memoryview(mmap.mmap(self._fd, PAGE, **_MAPPED))[CELL : CELL + 16].cast("Q")
            except (OSError, ValueError):
                pass
        return _blank_cell()

    def close(self) -> None:
        """Let go of the file; the cell is memory of our own from now on.

        Raises:
            DsprofError: the file is not there any more, or its last rows could not be written.
        """
        fd, self._fd = self._fd, -1
        is_ours = _identity(fd) == self._file
        if fd >= 0 and not is_ours:
            self._abandon_maps()
        self.cell, self._mapped = _blank_cell(), None
        if is_ours:
            if self._pid == os.getpid():  # a fork's parent may write on
                if self.failed:
                    self._end(fd)
                _cut(fd, self._bytes)
            gone = not os.fstat(fd).st_nlink
            _close(fd, self.path)
            if gone:
                raise DsprofError("was removed while it was written", str(self.path))

    def _end(self, fd: int) -> None:
        """Put an end where a row fits; in the place of the last one if a full disk has no room.

        Without an end a process that goes on would seem to have died here.
        """
        end = MARK.pack(RowKind.END, time.perf_counter_ns())
        if _put(fd, end, self._bytes)[1] is None:
            self._bytes += ROW
        elif self._bytes > self._first:
            _put(fd, end, self._bytes - ROW)


class End:
    """The end of a file, mapped: what is stored there outlives the process, without a call.

    Its room on the disk is taken before, so that each store finds it there.
    """

    def __init__(self, fd: int, end: int, size: int) -> None:
        """Room for `size` bytes behind `end`. Raises OSError or ValueError: there is none."""
        self._begin = end // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY
        self._size = -(-(end - self._begin + size) // ROOM) * ROOM
        os.posix_fallocate(fd, self._begin, self._size)
        self._map = mmap.mmap(fd, self._size, offset=self._begin, **_MAPPED)
        self._reached = 0

    def store(self, rows: bytes, end: int, spare: int) -> bool:
        """Put rows at `end` of the file; False if they and `spare` zeros do not fit.

        The first byte comes last. Until then it is zero, where reading ends: of what a kill
        interrupts nothing is read, and a reader that follows sees no half of it.
        """
        at = end - self._begin
        if at + len(rows) + spare > self._size:
            return False
        if at < self._reached:  # Ctrl-C came in the middle of it
            self._map[at : self._reached] = bytes(self._reached - at)
        self._reached = at + len(rows)
        self._map[at + 1 : at + len(rows)] = rows[1:]
        self._map[at] = rows[0]
        return True


def _identity(fd: int) -> tuple[int, int]:
    """Which file a descriptor is of; none has the number that stands for a closed one."""
    try:
        of = os.fstat(fd)
    except OSError:
        return -1, -1
    return of.st_dev, of.st_ino


def _put(fd: int, data: bytes, offset: int) -> tuple[int, OSError | None]:
    """Write `data` at `offset`: bytes written, and why not all of them.

    The kernel may take it in pieces; interrupted calls are repeated by `os` itself (PEP 475).
    """
    written = 0
    try:
        while written < len(data):
            rest = data[written:] if written else data
            written += os.pwrite(fd, rest, offset + written)
    except OSError as error:
        return written, error
    return written, None


def _open(path: Path, flags: int) -> int:
    try:
        return os.open(path, flags | os.O_CLOEXEC, 0o644)
    except FileExistsError:
        raise
    except OSError as error:
        raise unwritable(path, error) from error


def _cut(fd: int, size: int) -> None:
    """Take what is behind `size` off a file; zeros there do no harm."""
    with suppress(OSError):
        os.ftruncate(fd, size)


def _create(path: Path, header: bytes, spare: bytes = b"") -> tuple[int, int]:
    """A new file that begins with `header`: descriptor, and where its rows begin."""
    fd = _open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    _, error = _put(fd, header + spare, 0)
    if error:
        os.close(fd)
        path.unlink(missing_ok=True)
        raise unwritable(path, error) from error
    return fd, len(header)


def _close(fd: int, path: Path) -> None:
    """Close; over a network this may be when the disk turns out to be full."""
    try:
        os.close(fd)
    except OSError as error:
        raise unwritable(path, error) from error


#: How mountinfo writes a blank, a tab, a line's end and a backslash (proc(5)).
_ESCAPED: Final = re.compile(r"\\([0-7]{3})")


def _plain(escape: re.Match[str]) -> str:
    return chr(int(escape[1], 8))


def file_system(path: Path, mounts: Path = Path("/proc/self/mountinfo")) -> str:
    """The type of the file system that holds `path`; "" where that is not told."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    place, found = f"{path.resolve()}/", ("", "")
    for line in lines:
        left, _, right = line.partition(" - ")
        point = f"{_ESCAPED.sub(_plain, left.split()[4]).rstrip('/')}/"
        if place.startswith(point) and len(point) >= len(found[0]):  # a later one lies on top
            found = point, right.split()[0]
    return found[1]


def _blank_cell() -> memoryview:
    return memoryview(bytearray(16)).cast("Q")


def unwritable(path: Path, error: OSError) -> DsprofError:
    reason = error.strerror or str(error)
    return DsprofError(
        f"cannot be written: {reason}", str(path), "give the recording another folder"
    )
