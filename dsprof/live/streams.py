"""Bytes of logs that still grow: files that may be rotated or cut, and a pipe."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from pathlib import Path
from typing import Final, Protocol

from dsprof.errors import DsprofError
from dsprof.logs.sources.archives import compression
from dsprof.logs.sources.source import is_binary, no_text

_PORTION: Final = 1 << 18
_WITNESS: Final = 64  # bytes before the place reached that must still be the same


class Stream(Protocol):
    """Where bytes come from.

    Attributes:
        name: as the user typed it.
        offset: bytes read of the file that is there now.
        turned: how often another file began under the name; `cut`: the last time, the same file
            was cut or written anew.
        ended: nothing more will come.
        written: seconds since 1970 at which it was written to last; 0 if nobody knows.
    """

    name: str
    offset: int
    turned: int
    cut: bool
    ended: bool

    @property
    def written(self) -> float: ...

    def read(self, most: int) -> bytes:
        """What is new, at most `most` bytes, of one file only; empty if there is nothing yet."""

    def close(self) -> None:
        """Read no more."""


class File:
    """A file by its name: what stands there now, however it came there.

    Rotation puts another file in its place (what the old one still holds is read first);
    a truncation, or a rewrite that grew longer than it was, begins it anew.
    """

    def __init__(self, name: str, begin: int = 0) -> None:
        self.name = name
        self.offset = begin
        self.turned = 0
        self.cut = False
        self.ended = False
        self._fd = -1
        self._witness = b""

    @property
    def written(self) -> float:
        return os.fstat(self._fd).st_mtime if self._fd >= 0 else 0.0

    def read(self, most: int) -> bytes:
        if self._fd < 0 and not self._open():
            return b""
        data = self._next(most)
        if data or not self._is_another():
            return data
        self._turn(cut=False)
        return self._next(most) if self._open() else b""

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def _open(self) -> bool:
        try:
            self._fd = os.open(self.name, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise DsprofError(f"cannot be read: {error.strerror}", self.name) from error
        head = os.pread(self._fd, 16, 0)
        if is_binary(head):
            self.close()
            raise no_text(self.name)
        if compression(head):
            self.close()
            raise DsprofError("is compressed: it does not grow", self.name, "use dsprof report")
        return True

    def _next(self, most: int) -> bytes:
        if self._is_rewritten():
            self._turn(cut=not self._is_another())
            if not self._open():
                return b""
        parts = []
        while most > 0 and (data := os.pread(self._fd, min(most, _PORTION), self.offset)):
            parts.append(data)
            self.offset += len(data)
            most -= len(data)
        whole = b"".join(parts)
        self._witness = (self._witness + whole[-_WITNESS:])[-_WITNESS:]
        return whole

    def _is_rewritten(self) -> bool:
        """Whether what was read is no longer there."""
        at = self.offset - len(self._witness)
        return bool(self._witness) and os.pread(self._fd, len(self._witness), at) != self._witness

    def _is_another(self) -> bool:
        """Whether the name has come to stand for another file."""
        try:
            there = Path(self.name).stat()
        except FileNotFoundError:
            return False  # it may be on its way
        mine = os.fstat(self._fd)
        return (there.st_dev, there.st_ino) != (mine.st_dev, mine.st_ino)

    def _turn(self, *, cut: bool) -> None:
        self.close()
        self.cut = cut
        self.offset, self._witness = 0, b""
        self.turned += 1


class Part(File):
    """What a file holds before a place; the end of it is reached."""

    def __init__(self, name: str, end: int) -> None:
        super().__init__(name)
        self._end = end

    def read(self, most: int) -> bytes:
        data = super().read(min(most, self._end - self.offset))
        self.ended = not data or self.turned > 0 or self.offset >= self._end
        return b"" if self.turned else data


class Pipe:
    """Standard input, read by a thread of its own: whoever writes is hardly held up."""

    def __init__(self, fd: int) -> None:
        self.name = "-"
        self.offset = 0
        self.turned = 0
        self.cut = False
        self.ended = False
        self._fd = fd
        self._waiting: deque[bytes] = deque()
        self._room = threading.Semaphore(_WAITING)
        self.written = 0.0
        threading.Thread(target=self._pump, daemon=True, name="dsprof-pipe").start()

    def _pump(self) -> None:
        while self._room.acquire():
            try:
                data = os.read(self._fd, _PORTION)
            except OSError:
                data = b""
            self._waiting.append(data)
            if not data:
                return

    def read(self, most: int) -> bytes:
        parts: list[bytes] = []
        while most > 0 and self._waiting and not self.ended:
            data = self._waiting.popleft()
            self._room.release()
            self.ended = not data
            parts.append(data)
            most -= len(data)
        whole = b"".join(parts)
        if whole and not self.offset and (is_binary(whole[:16]) or compression(whole[:16])):
            self.ended = True
            raise no_text("standard input")
        self.offset += len(whole)
        self.written = time.time() if whole else self.written
        return whole

    def close(self) -> None:
        """The thread ends with the process."""


_WAITING: Final = 64  # portions held for whoever reads
