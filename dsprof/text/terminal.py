"""A result on standard output, as wide as the terminal, but no wider than is easy to read."""

from __future__ import annotations

import sys
from io import StringIO
from typing import Final

from rich.console import Console, RenderableType

from dsprof.output import put

_WIDEST: Final = 100  # columns; longer lines are hard to read


def show(content: RenderableType) -> None:
    """Write it without the blanks that columns leave at the ends of lines.

    Raises:
        DsprofError: standard output cannot be written, as on a full disk.
    """
    console = Console(file=sys.stdout, highlight=False, markup=False, emoji=False)
    console.width = min(console.width, _WIDEST)
    console.file = StringIO()  # rich itself must not meet a full disk or a closed pipe
    console.print(content)
    lines = (line.rstrip() for line in console.file.getvalue().splitlines())
    put("\n".join(lines).rstrip("\n") + "\n")


def has_blocks() -> bool:
    """Whether standard output can show block characters."""
    return (sys.stdout.encoding or "").lower().startswith("utf")
