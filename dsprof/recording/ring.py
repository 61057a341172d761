"""The files of one process: a ring of parts, and the `kept` file with what outlives them.

The spans and collectives of the oldest part are deleted with it. Its other rows (steps, metrics,
problems, ...) are copied to a `kept` file first. A short run has one part and nothing else.
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
from dsprof.recording.layout import (
    CELL,
    CELL_SIZE,
    MARK,
    PAGE,
    ROW,
    RowKind,
    file_name,
    pack_header,
)

PARTS: Final = 8  # parts in the ring: an eighth of the detail is deleted at a time
ENOUGH: Final = 4 << 20  # bytes
ROOM: Final = 256 << 10  # bytes that are mapped at the end of a file
AT_ONCE: Final = 1 << 20  # bytes of lasting rows gathered in memory before they are copied
TOUCHED: Final = 1_000_000_000  # ns after which a file's modification time is set again

#: Zeros after the last row, where reading ends. They reserve space for last words on a full disk.
SPARE: Final = bytes(16 * ROW)

#: File systems that write a page in place. On others (btrfs, NFS, Lustre) a store into a mapped
#: page may hit a full disk or a removed file, and the kernel then kills the process.
IN_PLACE: Final = frozenset({"ext2", "ext3", "ext4", "xfs", "tmpfs", "overlay"})
#: Where Python can (3.13), map without duplicating the descriptor: training might close that.
_MAPPED: Final[dict[str, Any]] = {"trackfd": False} if sys.version_info >= (3, 13) else {}
#: Maps of older Pythons whose descriptors training has closed. Other files may have got their
#: numbers since, and would be closed if these maps were freed.
_ABANDONED: Final[list[tuple[memoryview, End | None]]] = []


class Ring:
    """Appends rows to the current part, and continues in a new one when it is full.

    Raises:
        FileExistsError: another process uses these file names.
        DsprofError: a file cannot be written.
    """

    def __init__(self, folder: Path, stem: str, meta: dict[str, Any], keep_bytes: int) -> None:
        self._folder, self._stem, self._meta = folder, stem, meta
        self._limit = max(keep_bytes // PARTS, PAGE)
        self._part = self._oldest = 0
        self._lasting: list[bytes] = []  # rows of this part that go to the `kept` file
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
        """The file that is being written now."""
        return self._folder / file_name(self._stem, self._part)

    @property
    def is_open(self) -> bool:
        return self._fd >= 0

    @property
    def keeps_cell(self) -> bool:
        """Whether the cell is in the file."""
        return isinstance(self.cell.obj, mmap.mmap)

    def has_room(self) -> bool:
        """Whether the disk is far from full: the last of it is for what training itself records."""
        try:
            disk = os.statvfs(self._folder)
        except OSError:
            return False
        return disk.f_bavail * disk.f_frsize > ENOUGH

    def append(self, names: bytes, detail: bytes, lasting: bytes) -> None:
        """Write all three at once, after the last row. All but `detail` outlives the part.

        Raises:
            DsprofError: not all could be written, so none is there: a step must never be half
                recorded. The next write starts at the same place.
        """
        self._write(names + detail + lasting)
        self._lasting.append(names + lasting)
        self._waiting += len(names) + len(lasting)
        if self._waiting >= AT_ONCE:
            self._keep()

    def is_full(self, *, step_ended: bool) -> bool:
        """Whether to start a new part: between steps, unless a single step fills two parts."""
        return self._bytes >= (self._limit if step_ended else 2 * self._limit)

    def turn(self, definitions: bytes) -> None:
        """Continue in a new part, which begins with `definitions`; delete the oldest part."""
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
        before, self.cell = self.cell, self._cell()
        for word in reversed(range(len(before))):  # what an operation is, behind since when
            self.cell[word] = before[word]
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
        """Store rows into the mapped end of the file; False if it cannot be mapped."""
        if not self._maps:
            return False
        spare = len(self.spare)
        if self._mapped is None or not self._mapped.store(rows, self._bytes, spare):
            self._look()
            try:
                self._mapped = End(self._fd, self._bytes, len(rows) + spare)
            except (OSError, ValueError):  # the disk is full, or nearly so
                self._mapped, self._maps = None, False
                return False
            self._mapped.store(rows, self._bytes, spare)
        self._touch()
        return True

    def _touch(self) -> None:
        """Set the file's modification time, which stores alone do not change, once a second:
        readers use it.
        """
        now = time.perf_counter_ns()
        if now - self._touched > TOUCHED:
            self._touched = now
            self._look()
            with suppress(OSError):
                os.utime(self._fd)

    def _hand_over(self, rows: bytes) -> None:
        """Write rows, and zeros after them, with a system call."""
        self._look()
        _, error = _put(self._fd, rows + self.spare, self._bytes)
        self.failed = error is not None
        if error:
            _put(self._fd, self.spare, self._bytes)  # into space that the file already has
            _cut(self._fd, self._bytes + len(self.spare))
            self.spare = b""
            raise unwritable(self.path, error) from error

    def _look(self) -> None:
        """Reopen the file if training closed all descriptors: the number may now be
        another file's.
        """
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
        """Copy the lasting rows to the `kept` file."""
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
        """The in-flight cell in the file; plain memory if it cannot be mapped."""
        if self._maps:
            try:
                return memoryview(mmap.mmap(self._fd, PAGE, **_MAPPED))[
                    CELL : CELL + CELL_SIZE
                ].cast("Q")
            except (OSError, ValueError):
                pass
        return _blank_cell()

    def close(self) -> None:
        """Close the file; from then on the cell is plain memory.

        Raises:
            DsprofError: the file no longer exists, or its last rows could not be written.
        """
        fd, self._fd = self._fd, -1
        is_ours = _identity(fd) == self._file
        if fd >= 0 and not is_ours:
            self._abandon_maps()
        self.cell, self._mapped = _blank_cell(), None
        if is_ours:
            if self._pid == os.getpid():  # in a fork, the parent may still be writing
                if self.failed:
                    self._end(fd)
                _cut(fd, self._bytes)
            gone = not os.fstat(fd).st_nlink
            _close(fd, self.path)
            if gone:
                raise DsprofError("was removed while it was written", str(self.path))

    def _end(self, fd: int) -> None:
        """Write END after the last row, or over it if the full disk has no space.

        Without END, a process that continues would seem to have died here.
        """
        end = MARK.pack(RowKind.END, time.perf_counter_ns())
        if _put(fd, end, self._bytes)[1] is None:
            self._bytes += ROW
        elif self._bytes > self._first:
            _put(fd, end, self._bytes - ROW)


class End:
    """The mapped end of a file: stores there outlive the process without a system call.

    Its disk space is allocated first, so that no store can hit a full disk.
    """

    def __init__(self, fd: int, end: int, size: int) -> None:
        """Map at least `size` bytes after `end`.

        Raises:
            OSError: the space cannot be allocated or mapped.
            ValueError: the same.
        """
        self._begin = end // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY
        self._size = -(-(end - self._begin + size) // ROOM) * ROOM
        os.posix_fallocate(fd, self._begin, self._size)
        self._map = mmap.mmap(fd, self._size, offset=self._begin, **_MAPPED)
        self._reached = 0

    def store(self, rows: bytes, end: int, spare: int) -> bool:
        """Store rows at offset `end` of the file; False if they and `spare` zeros do not fit.

        The first byte is stored last. Until then it is zero, where reading ends: neither a kill nor
        a concurrent reader ever finds half of the rows.
        """
        at = end - self._begin
        if at + len(rows) + spare > self._size:
            return False
        if at < self._reached:  # Ctrl-C interrupted an earlier store
            self._map[at : self._reached] = bytes(self._reached - at)
        self._reached = at + len(rows)
        self._map[at + 1 : at + len(rows)] = rows[1:]
        self._map[at] = rows[0]
        return True


def _identity(fd: int) -> tuple[int, int]:
    """Device and inode of a descriptor's file; (-1, -1) if it is closed."""
    try:
        of = os.fstat(fd)
    except OSError:
        return -1, -1
    return of.st_dev, of.st_ino


def _put(fd: int, data: bytes, offset: int) -> tuple[int, OSError | None]:
    """Write `data` at `offset`; the number of bytes written, and the error if it is not all.

    The kernel may write in several pieces; `os` itself repeats interrupted calls (PEP 475).
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
    """Truncate the file to `size`. If that fails, the zeros left there do no harm."""
    with suppress(OSError):
        os.ftruncate(fd, size)


def _create(path: Path, header: bytes, spare: bytes = b"") -> tuple[int, int]:
    """Create a file that begins with `header`; its descriptor, and the offset of its first row."""
    fd = _open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    _, error = _put(fd, header + spare, 0)
    if error:
        os.close(fd)
        path.unlink(missing_ok=True)
        raise unwritable(path, error) from error
    return fd, len(header)


def _close(fd: int, path: Path) -> None:
    """Close the descriptor; on a network file system a full disk may show only now."""
    try:
        os.close(fd)
    except OSError as error:
        raise unwritable(path, error) from error


#: How mountinfo escapes a blank, tab, newline and backslash (proc(5)).
_ESCAPED: Final = re.compile(r"\\([0-7]{3})")


def _plain(escape: re.Match[str]) -> str:
    return chr(int(escape[1], 8))


def file_system(path: Path, mounts: Path = Path("/proc/self/mountinfo")) -> str:
    """The type of the file system that holds `path`, from mountinfo; "" if that is unavailable."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    place, found = f"{path.resolve()}/", ("", "")
    for line in lines:
        left, _, right = line.partition(" - ")
        point = f"{_ESCAPED.sub(_plain, left.split()[4]).rstrip('/')}/"
        if place.startswith(point) and len(point) >= len(found[0]):  # later ones hide earlier ones
            found = point, right.split()[0]
    return found[1]


def _blank_cell() -> memoryview:
    return memoryview(bytearray(CELL_SIZE)).cast("Q")


def unwritable(path: Path, error: OSError) -> DsprofError:
    reason = error.strerror or str(error)
    return DsprofError(
        f"cannot be written: {reason}", str(path), "give the recording another folder"
    )
