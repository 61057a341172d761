"""The lines a page points at, with their neighbours, read from the sources again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from dsprof.page.model import Place

CONTEXT: Final = 3  #: lines before and after
LONGEST: Final = 1200  #: letters kept of a line
BUDGET: Final = 4_000_000  #: letters kept in all; lines asked for first are kept first

Lines = Callable[[str], Iterable[Sequence[bytes]]]  #: a source's lines in portions, from the first


@dataclass(slots=True)
class Wanted:
    """Line numbers by source, the most important asked for first."""

    order: dict[str, list[int]] = field(default_factory=dict)
    seen: set[tuple[str, int]] = field(default_factory=set)
    left: int = BUDGET

    def ask(self, place: Place, last: int | None = None, context: int = CONTEXT) -> None:
        """Wants a line (or the lines up to `last`) and its neighbours, while there is room."""
        if self.left <= 0:
            return
        end = max(place.line, last or place.line)
        for number in range(max(1, place.line - context), end + context + 1):
            key = (place.source, number)
            if key not in self.seen:
                self.seen.add(key)
                self.order.setdefault(place.source, []).append(number)
                self.left -= _USUAL


_USUAL: Final = 220  #: letters of a line, to plan with


def excerpts(wanted: Wanted, lines: Lines) -> dict[str, dict[int, str]]:
    """Text of the wanted lines by source and number; what cannot be read is left out."""
    found: dict[str, dict[int, str]] = {}
    left = BUDGET
    for source, order in wanted.order.items():
        texts = _pick(lines(source), np.unique(order))
        kept: dict[int, str] = {}
        for number in order:
            if number in texts and left > 0:
                kept[number] = texts[number]
                left -= len(texts[number])
        if kept:
            found[source] = dict(sorted(kept.items()))
    return found


def _pick(portions: Iterable[Sequence[bytes]], numbers: np.ndarray) -> dict[int, str]:
    """Text of the lines of some numbers, which rise."""
    found: dict[int, str] = {}
    first = 1
    for lines in portions:
        wanted = numbers[: np.searchsorted(numbers, first + len(lines))]
        found |= {number: shown(lines[number - first]) for number in wanted.tolist()}
        numbers, first = numbers[len(wanted) :], first + len(lines)
        if not len(numbers):
            break
    return found


def shown(line: bytes) -> str:
    """A line as a page shows it: control letters made visible, the rest as it is."""
    text = line[: 4 * LONGEST].decode("utf-8", "replace").rstrip("\r\n")
    if not text.isprintable():
        text = "".join(c if c.isprintable() or c == "\t" else _picture(c) for c in text)
    more = len(text) - LONGEST
    return text if more <= 0 else f"{text[:LONGEST]} … (cut here)"


def _picture(letter: str) -> str:
    code = ord(letter)
    return chr(0x2400 + code) if code < 0x20 else f"\\u{code:04x}"
