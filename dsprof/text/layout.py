"""What sections are made of: one accent, headings, label columns, places."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from dsprof.text.words import known, plain

ACCENT: Final = "bold dark_orange"  # communication, and what is critical
STRONG: Final = "bold"
QUIET: Final = "dim"

_WORD: Final = re.compile(r"\S+")
_NAME: Final = re.compile(r"[^/]*/?")


def say(text: object, style: str = "") -> Text:
    """Words, with whatever could steer a terminal taken out of them."""
    return Text(plain(text), style)


def beside(*parts: Text) -> Flowing:
    """Parts that say something, two blanks between them."""
    return Flowing(Text("  ").join([part for part in parts if part]))


class Flowing:
    """Text in which a path that no line holds breaks behind a slash, not inside a name."""

    def __init__(self, text: Text) -> None:
        self.text = text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.text:  # of nothing not even a line
            yield broken(self.text, options.max_width)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement.get(console, options, self.text)


def broken(text: Text, width: int) -> Text:
    """The same with line breaks behind slashes of what is longer than a line."""
    ends = [
        word.start() + end
        for word in _WORD.finditer(text.plain)
        if cell_len(word[0]) > width
        for end in _lines_of(word[0], width)
    ]
    return Text("\n").join(text.divide(ends)) if ends else text


def _lines_of(path: str, width: int) -> Iterator[int]:
    """Where lines of a path end, the last one left out."""
    start = end = 0
    for name in _NAME.finditer(path):
        if cell_len(path[start : name.end()]) > width and end > start:
            yield end
            start = end
        end = name.end()


def place(source: object, line: object) -> Text:
    """`run.log:12`: where to look; empty if the source does not say."""
    if not known(source) or not source:
        return Text()
    where = f"{source}:{int(line)}" if known(line) else str(source)  # type: ignore[call-overload]
    return say(where, QUIET)


def heading(title: str, note: str = "") -> Text:
    said = say(title, STRONG)
    return said.append("   ").append_text(say(note, QUIET)) if note else said


def section(title: str, note: str, *parts: RenderableType) -> list[RenderableType]:
    """A heading, and what stands under it a little to the right."""
    return [heading(title, note), *([Padding(Group(*parts), (0, 0, 0, 2))] if parts else [])]


def columns(width: int) -> Table:
    """A column of labels, and what they say beside it."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(width=width, no_wrap=True)
    table.add_column(overflow="fold")
    return table
