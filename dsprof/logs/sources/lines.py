"""Bytes as they come, cut into pieces that hold whole lines, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

#: A line longer than this is read in pieces, which stay in the second-level cache, so that
#: memory stays bounded.
LONGEST_LINE: Final = 1 << 18
#: Bytes of one read: the hits of so many are cheap to read together.
PORTION: Final = 1 << 20


class Lines:
    """Holds back the unfinished end of what was fed.

    Lines end at `\\n`. Where a quarter of a megabyte holds none (progress bars, a log that lost its
    line breaks), pieces end at `\\r` or, failing that, at the last place `safe_cut` offers.
    """

    def __init__(self) -> None:
        self._held: list[bytes | memoryview] = []
        self._length = 0

    def feed(self, data: bytes) -> bytes:
        """What can be read now: the held bytes and `data` up to its last line end."""
        cut = data.rfind(b"\n") + 1
        if cut == 0:
            if self._length + len(data) < LONGEST_LINE:
                self._hold(data)
                return b""
            whole = self.take() + data
            cut = whole.rfind(b"\r") + 1 or len(whole)
            self._hold(whole[cut:])
            return whole[:cut]
        self._hold(memoryview(data)[:cut])
        ready = self.take()
        self._hold(data[cut:])
        return ready

    def give_back(self, data: bytes) -> None:
        """Puts the end of a piece back: a record that the cut went through."""
        self._held.insert(0, data)
        self._length += len(data)

    def take(self) -> bytes:
        """Everything held back."""
        held, self._held, self._length = b"".join(self._held), [], 0
        return held

    def _hold(self, data: bytes | memoryview) -> None:
        if data:
            self._held.append(data)
            self._length += len(data)


def portions(read: object) -> Iterator[bytes]:
    """Successive reads until the end.

    One read of the medium each: what came before a fault is not lost with it, and what a
    pipe holds need not wait for more.
    """
    call = getattr(read, "read1", None) or read.read  # type: ignore[attr-defined]
    while data := call(PORTION):
        yield data
