"""Where values end that are printed as Python prints them: `a=1, b='x, y', c=[1, 2], d=f(3))`.

One pass, and a string that nothing closes reaches to the end: no text takes longer than its length.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

#: A string, or what may stand between values and around them.
_MARK: Final = re.compile(
    rb"""'[^'\\]*(?:\\.[^'\\]*)*(?:'|\\?\Z)|"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)|[,()\[\]{}]""",
    re.DOTALL,
)


def closing(text: bytes, start: int, stop: int) -> int:
    """Where the bracket closes that was opened before `start`; -1 if it does not before `stop`."""
    return next((at for at in _between(text, start, stop) if text[at : at + 1] != b","), -1)


def split(text: bytes) -> list[bytes]:
    """What stands between commas that are in no string and no bracket."""
    parts, begin = [], 0
    for at in _between(text, 0, len(text)):
        parts.append(text[begin:at])
        begin = at + 1
    return [*parts, text[begin:]]


def _between(text: bytes, start: int, stop: int) -> Iterator[int]:
    """The commas that are in no string and no bracket, and the bracket that ends them."""
    depth = 0
    for mark in _MARK.finditer(text, start, stop):
        byte = mark[0]
        if byte in b"([{":
            depth += 1
        elif byte in b")]}":
            depth -= 1
        if depth < 0 or (depth == 0 and byte == b","):
            yield mark.start()
        if depth < 0:
            return
