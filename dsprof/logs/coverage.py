"""What was understood, and the shapes of what was not."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from dsprof.logs.wrappers import study

_WORD_END: Final = rb"[A-Za-z_)%'\"]"
#: A word, a colon or an equals sign, and a number with a fraction or an exponent. Beginning
#: with the sign, which is rarer than letters, makes the search three times faster.
_METRIC: Final = re.compile(
    rb"[:=](?:(?<=%b.)|(?<=%b .)) ?'?-?\d{1,12}(?:\.\d|e[-+]\d)" % (_WORD_END, _WORD_END)
)
_DIGITS: Final = re.compile(r"\d+")
_WHOLE: Final = 4 << 20  # bytes of a source looked at line by line; then a sample
_EVERY: Final = 512  # of the pieces behind that
_KEPT_SHAPES: Final = 2000
_HASHED: Final = bytes.maketrans(b"0123456789", b"##########")


@dataclass(slots=True)
class Unread:
    """Lines that look like metrics and that no pattern read.

    The first 4 MiB of a source are looked at whole, then one piece in 512: a sample
    (`sampled`), whose counts are not those of the whole.
    """

    shapes: Counter[str] = field(default_factory=Counter)
    example: dict[str, tuple[int, str]] = field(default_factory=dict)
    sampled: bool = False
    metric_lines: int = 0
    read_lines: int = 0
    _rough: dict[bytes, str] = field(default_factory=dict)
    _pieces: int = 0
    _bytes: int = 0

    def look(self, piece: bytes, taken: set[int], before: int) -> None:
        """Counts the metric-looking lines of a piece; `before` line ends went before it.

        `taken` says where those lines begin that a pattern read.
        """
        high = counted = -1
        number = before + 1
        for match in _METRIC.finditer(piece):
            start = match.start()
            if start < high:
                continue  # a line that was seen already
            low = max(piece.rfind(b"\n", 0, start), piece.rfind(b"\r", max(high, 0), start)) + 1
            high = min(_find(piece, b"\n", start), _find(piece, b"\r", start, 4096))
            self.metric_lines += 1
            if low in taken:
                self.read_lines += 1
                continue
            number += piece.count(b"\n", max(counted, 0), low)
            counted = low
            self._keep(piece[low:high], number)

    def join(self, later: Unread, lines: int) -> None:
        """Adds what was seen in a range that begins after `lines` lines."""
        self.shapes += later.shapes
        for shape, (number, text) in later.example.items():
            self.example.setdefault(shape, (number + lines, text))
        self.sampled |= later.sampled
        self.metric_lines += later.metric_lines
        self.read_lines += later.read_lines

    def wants(self, piece: bytes) -> bool:
        """Whether this piece is in the sample."""
        self._pieces += 1
        self._bytes += len(piece)
        wanted = self._bytes <= _WHOLE or self._pieces % _EVERY == 0
        self.sampled |= not wanted
        return wanted

    def _keep(self, line: bytes, number: int) -> None:
        text = line[:400]
        rough = text.translate(_HASHED)
        shape = self._rough.get(rough)
        if shape is None:
            text = text[study(text, whole=False).end :]
            shape = shape_of(text.decode("utf-8", "replace"))
            if len(self._rough) < _KEPT_SHAPES:
                self._rough[rough] = shape
        if shape in self.shapes or len(self.shapes) < _KEPT_SHAPES:
            self.shapes[shape] += 1
            if shape not in self.example:
                self.example[shape] = (number, text.decode("utf-8", "replace"))


def _find(piece: bytes, end: bytes, start: int, reach: int | None = None) -> int:
    stop = len(piece) if reach is None else min(start + reach, len(piece))
    found = piece.find(end, start, stop)
    return found if found >= 0 else len(piece)


def shape_of(text: str) -> str:
    """The line with its numbers replaced, so that lines of one kind look alike."""
    return _DIGITS.sub("#", text)[:200].strip()
