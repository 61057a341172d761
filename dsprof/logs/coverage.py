"""What was understood, and the shapes of what was not."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from dsprof.logs.wrappers import study

#: A word, a colon or an equals sign, and a number with a fraction or an exponent.
_METRIC: Final = re.compile(rb"[A-Za-z_)%'\"] ?[:=] ?'?-?\d{1,12}(?:\.\d|e[-+]\d)")
_DIGITS: Final = re.compile(r"\d+")
_WHOLE: Final = 4 << 20  # bytes of a source looked at line by line; then a sample
_EVERY: Final = 64  # of the pieces behind that
_KEPT_SHAPES: Final = 2000


@dataclass(slots=True)
class Unread:
    """Lines that look like metrics and that no pattern read.

    The first 4 MiB of a source are looked at whole, then one piece in 64: a sample, so
    that the counts of a large source are those of the sample (`looked` bytes).
    """

    shapes: Counter[str] = field(default_factory=Counter)
    example: dict[str, tuple[int, str]] = field(default_factory=dict)
    looked: int = 0
    metric_lines: int = 0
    read_lines: int = 0
    _pieces: int = 0
    _bytes: int = 0

    def look(
        self,
        piece: bytes,
        lows: np.ndarray,
        highs: np.ndarray,
        taken: set[int] | frozenset[int],
        before: int,
    ) -> None:
        """Counts the metric-looking lines of a piece; `before` line ends went before it.

        `lows` and `highs` bound its lines, `taken` says which of them a pattern read.
        """
        self.looked += len(piece)
        found = [match.start() for match in _METRIC.finditer(piece)]
        for line in np.unique(np.searchsorted(highs, found)).tolist():
            self.metric_lines += 1
            if line in taken:
                self.read_lines += 1
            else:
                low = int(lows[line])
                self._keep(piece[low : int(highs[line])], before + piece.count(b"\n", 0, low) + 1)

    def wants(self, piece: bytes) -> bool:
        """Whether this piece is in the sample."""
        self._pieces += 1
        self._bytes += len(piece)
        return self._bytes <= _WHOLE or self._pieces % _EVERY == 0

    def _keep(self, line: bytes, number: int) -> None:
        text = line[:400]
        text = text[study(text, whole=False).end :]
        shape = shape_of(text.decode("utf-8", "replace"))
        if shape in self.shapes or len(self.shapes) < _KEPT_SHAPES:
            self.shapes[shape] += 1
            self.example.setdefault(shape, (number, text.decode("utf-8", "replace")))


def shape_of(text: str) -> str:
    """The line with its numbers replaced, so that lines of one kind look alike."""
    return _DIGITS.sub("#", text)[:200].strip()
