"""`dsprof live` on a terminal of its own, and what the kernel says that it takes."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

SIZE = (48, 160)
_TICKS = os.sysconf("SC_CLK_TCK")


class Program:
    """`dsprof live` on a pseudo terminal."""

    def __init__(self, *paths: str, size: tuple[int, int] = SIZE) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
        self.begun = time.monotonic()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "dsprof", "live", *paths],
            stdin=slave, stdout=slave, stderr=slave, env=os.environ | {"TERM": "xterm-256color"},
        )  # fmt: skip
        os.close(slave)
        self.seen = bytearray()
        self.drawn = 0

    def draw(self, seconds: float) -> bool:
        """Take what it draws for so long; whether there was anything."""
        until = time.monotonic() + seconds
        drew = False
        while (left := until - time.monotonic()) > 0 and self._has_drawn(left):
            data = os.read(self._master, 1 << 16)
            self.drawn += len(data)
            self.seen += data
            del self.seen[: -(1 << 20)]
            drew = True
        return drew

    def _has_drawn(self, seconds: float) -> bool:
        ready = select.poll()  # `select` knows no descriptor above 1024
        ready.register(self._master, select.POLLIN)
        return bool(ready.poll(seconds * 1e3))

    def draw_once(self, seconds: float) -> None:
        """Take what it draws next."""
        if self._has_drawn(seconds):
            self.seen += os.read(self._master, 1 << 16)

    def wait_for(self, words: bytes, seconds: float) -> float | None:
        """Seconds since the start until it drew `words`."""
        while time.monotonic() - self.begun < seconds:
            self.draw(0.02)
            if words in self.seen:
                return time.monotonic() - self.begun
        return None

    def shows(self, words: bytes, seconds: float) -> float | None:
        """Seconds from now until it draws `words`, a regular expression."""
        self.seen.clear()
        begun = time.monotonic()
        while time.monotonic() - begun < seconds:
            self.draw(0.02)
            if re.search(words, self.seen):
                return time.monotonic() - begun
        return None

    def press(self, key: bytes) -> None:
        os.write(self._master, key)

    def answer(self, key: bytes, words: bytes) -> float:
        """Seconds until a key has brought the screen that alone has these words."""
        self.draw(0.0)
        self.seen.clear()
        begun = time.monotonic()
        os.write(self._master, key)
        while words not in self.seen and time.monotonic() - begun < 10:
            self.draw_once(10)
        return time.monotonic() - begun

    def bytes_in(self, seconds: float) -> int:
        """Bytes that it draws in so long, of itself."""
        before, self.drawn = self.drawn, 0
        self.draw(seconds)
        drawn, self.drawn = self.drawn, before
        return drawn

    @property
    def processes(self) -> list[int]:
        """The one that draws and the one that watches."""
        tasks = Path(f"/proc/{self.process.pid}/task").iterdir()
        children = [(task / "children").read_text() for task in tasks]
        return [self.process.pid, *map(int, " ".join(children).split())]

    @property
    def last(self) -> str:
        """Who lives, and what was drawn last: for whoever looks why it does not go on."""
        drawn = re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b" ", bytes(self.seen[-20_000:]))
        return f"{len(self.processes)} processes and {drawn.decode(errors='replace')[-1000:]!r}"

    @property
    def cpu(self) -> float:
        """CPU seconds of both so far."""
        return sum(_cpu_of(pid) for pid in self.processes)

    @property
    def memory(self) -> int:
        """Bytes of both: what they share counts once."""
        return sum(_memory_of(pid) for pid in self.processes)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._master)


def _cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _memory_of(pid: int) -> int:
    """Resident bytes; of pages shared with others, this process's part."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))
