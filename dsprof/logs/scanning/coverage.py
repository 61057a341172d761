"""What was understood, and the shapes of what was not."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from dsprof.logs.prefixes.wrappers import study


def _bytes_like(kind: bytes) -> np.ndarray:
    """Which of the 256 bytes a regex for one of them takes."""
    regex = re.compile(kind)
    return np.array([regex.match(bytes([byte])) is not None for byte in range(256)])


_WORD_END: Final = rb"[A-Za-z_)%'\"]"
#: From the sign on: a word, a colon or an equals sign, and a number with a fraction or an
#: exponent. An address or a version, which has a second point, is none.
_METRIC: Final = re.compile(
    rb"[:=](?:(?<=%b.)|(?<=%b .)) ?'?-?\d{1,12}(?:\.\d(?!\d{0,2}\.\d)|,\d{1,2} *\||e[-+]\d)"
    % (_WORD_END, _WORD_END)
)
#: A progress bar: what its loop writes in it is read of the last one (see `bars`).
_BAR: Final = re.compile(
    rb"(?:(?:\d%\|[^|\r\n]{0,2000}\| *\d{1,12}/\d{1,12}|\| *\d{1,12}/\?) \[[\d:]{1,12}<"
    rb"|\b\d{1,12}it \[[\d:]{1,12},)[^\]\r\n]{0,500}\]"
)
#: A part of a model, as PyTorch prints it: its numbers are settings. The flops profiler measures.
_MODULE: Final = re.compile(
    rb"\([\w-]{1,80}\): (?:\d{1,4} x )?[A-Z]\w{0,80}\((?![^\r\n]{0,60} Params)"
)
_ENDS_WORD: Final = _bytes_like(_WORD_END)
_BEGINS_NUMBER: Final = _bytes_like(rb"['\d-]")
_IS_DIGIT: Final = _bytes_like(rb"\d")
_COLON, _EQUALS, _BLANK, _POINT, _NEWLINE, _RETURN = b":= .\n\r"
_DIGITS: Final = re.compile(r"\d+")
_MOST_DIGITS: Final = 12  # before the point, as above
_OF_ADDRESS: Final = 3  # between the points of an address, as above
_WHOLE: Final = 4 << 20  # bytes of a source looked at line by line; then a sample
_EVERY: Final = 128  # of the pieces behind that
_KEPT_SHAPES: Final = 2000
_HASHED: Final = bytes.maketrans(b"0123456789", b"##########")


@dataclass(slots=True)
class Unread:
    """Lines that look like metrics and that no pattern read.

    The first 4 MiB of a source are looked at whole, then one piece in 128: a sample
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
        text = np.frombuffer(piece, np.uint8)
        signs = _signs(text)
        ends = np.flatnonzero((text == _NEWLINE) | (text == _RETURN))
        bounds = np.concatenate([[0], ends + 1, [len(piece) + 1]])
        line = np.searchsorted(ends, signs)
        first = np.flatnonzero(np.diff(line, prepend=-1))
        sure = line[first[_are_decimals(text, signs[first])]]
        read = sure[[low in taken for low in bounds[sure].tolist()]]
        self.metric_lines += len(read)
        self.read_lines += len(read)
        left = np.ones(len(bounds), bool)
        left[read] = False
        signs, lows = signs[left[line]], bounds[line[left[line]]]
        seen, counted, number, barred = -1, 0, before + 1, -1
        for start, low in zip(signs.tolist(), lows.tolist(), strict=True):
            if low == seen or start < barred or not _METRIC.match(piece, start):
                continue  # a line that was seen already, a bar, or no metric
            seen = low
            if low in taken:
                self.metric_lines += 1
                self.read_lines += 1
                continue
            high = bounds[np.searchsorted(bounds, low) + 1] - 1
            if _MODULE.search(piece, low, high):
                continue
            barred = low + _end_of_bar(piece[low:high], start - low)
            if start < barred:
                seen = -1  # the line may hold more behind its bar
                continue
            self.metric_lines += 1
            number += piece.count(b"\n", counted, low)
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

    def skip(self, size: int, pieces: int) -> None:
        """Leaves what went before, read elsewhere, out of the sample."""
        self._bytes += size
        self._pieces += pieces
        self.sampled |= self._bytes > _WHOLE

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


def _end_of_bar(line: bytes, at: int) -> int:
    """Where the bar ends that the sign stands in; 0 if in none."""
    if b"%|" not in line and b"/? [" not in line and b"it [" not in line:
        return 0
    return next((bar.end() for bar in _BAR.finditer(line) if bar.start() < at < bar.end()), 0)


def _signs(text: np.ndarray) -> np.ndarray:
    """Where the signs stand that may be a metric's: few are, and looking is cheap."""
    inner = text[1:-2]  # a letter stands before it, and three bytes of a number behind
    at = np.flatnonzero((inner == _COLON) | (inner == _EQUALS)) + 1
    at = at[_BEGINS_NUMBER[text[at + 1 + (text[at + 1] == _BLANK)]]]
    word = at - 1 - (text[at - 1] == _BLANK)
    found: np.ndarray = at[_ENDS_WORD[text[word]] & (word >= 0)]
    return found


def _are_decimals(text: np.ndarray, signs: np.ndarray) -> np.ndarray:
    """Which of them are a metric's for sure, as most are: a number with a fraction follows."""
    at = signs + 1
    at += text[at] == _BLANK
    last = len(text) - 2
    for _ in range(_MOST_DIGITS):
        digits = _IS_DIGIT[text[np.minimum(at, last)]] & (at < last)
        if not digits.any():
            break
        at += digits
    at = np.minimum(at, last)
    told: np.ndarray = _IS_DIGIT[text[at - 1]] & (text[at] == _POINT) & _IS_DIGIT[text[at + 1]]
    told &= ~_has_second_point(text, at + 1)
    return told


def _has_second_point(text: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Of numbers with a fraction that begins there: which go on as an address does."""
    last = len(text) - 2
    has = np.zeros(len(at), bool)
    inside = np.ones(len(at), bool)
    for _ in range(_OF_ADDRESS):
        inside &= _IS_DIGIT[text[np.minimum(at, last)]] & (at < last)
        at = at + 1
        behind = np.minimum(at, last)
        has |= inside & (at <= last) & (text[behind] == _POINT) & _IS_DIGIT[text[behind + 1]]
    return has


def shape_of(text: str) -> str:
    """The line with its numbers replaced, so that lines of one kind look alike."""
    return _DIGITS.sub("#", text)[:200].strip()
