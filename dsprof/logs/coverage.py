"""What was understood, and the shapes of what was not."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from dsprof.logs.wrappers import ANSI, study

#: A word, a colon or an equals sign, and a number with a fraction or an exponent.
_METRIC: Final = re.compile(rb"[A-Za-z_)%'\"] ?[:=] ?'?-?\d{1,12}(?:\.\d|e[-+]\d)")
_DIGITS: Final = re.compile(r"\d+")
_WHOLE: Final = 8 << 20  # bytes of a source looked at line by line; then a sample
_EVERY: Final = 64  # of the pieces behind that
_KEPT_SHAPES: Final = 2000


@dataclass(slots=True)
class Unread:
    """Lines that look like metrics and that no pattern read.

    The first 8 MiB of a source are looked at whole, then one piece in 64: a sample, so
    that the counts of a large source are those of the sample (`looked` bytes).
    """

    shapes: Counter[str] = field(default_factory=Counter)
    example: dict[str, tuple[int, str]] = field(default_factory=dict)
    looked: int = 0
    metric_lines: int = 0
    read_lines: int = 0
    _pieces: int = 0
    _bytes: int = 0

    def look(self, piece: bytes, taken: set[int] | frozenset[int], before: int) -> None:
        """Counts the metric-looking lines of a piece; `before` lines went before it."""
        self._pieces += 1
        self._bytes += len(piece)
        if self._bytes > _WHOLE and self._pieces % _EVERY:
            return
        self.looked += len(piece)
        if _METRIC.search(piece) is None:
            return
        for number, line in enumerate(re.split(rb"[\r\n]", piece)):
            if not _METRIC.search(line, 0, 4000):
                continue
            self.metric_lines += 1
            if number in taken:
                self.read_lines += 1
            else:
                self._keep(line, before + piece[: piece.find(line)].count(b"\n") + 1)

    def _keep(self, line: bytes, number: int) -> None:
        text = ANSI.sub(b"", line[:400])
        text = text[study(text, whole=False).end :]
        shape = shape_of(text.decode("utf-8", "replace"))
        if shape in self.shapes or len(self.shapes) < _KEPT_SHAPES:
            self.shapes[shape] += 1
            self.example.setdefault(shape, (number, text.decode("utf-8", "replace")))


def shape_of(text: str) -> str:
    """The line with its numbers replaced, so that lines of one kind look alike."""
    return _DIGITS.sub("#", text)[:200].strip()
