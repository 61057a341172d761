"""What sections are made of: one accent, headings, label columns, places."""

from __future__ import annotations

from typing import Final

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from dsprof.text.words import known, plain

ACCENT: Final = "bold dark_orange"  # communication, and what is critical
STRONG: Final = "bold"
QUIET: Final = "dim"


def say(text: object, style: str = "") -> Text:
    """Words, with whatever could steer a terminal taken out of them."""
    return Text(plain(text), style)


def beside(*parts: Text) -> Text:
    """Parts that say something, two blanks between them."""
    return Text("  ").join([part for part in parts if part])


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
