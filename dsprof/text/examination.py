"""What a look at the environment found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import RenderableType

from dsprof.text.layout import ACCENT, QUIET, columns, say

if TYPE_CHECKING:
    from dsprof.doctor import Check


def examination(checks: list[Check]) -> RenderableType:
    rows = columns(14)
    for check in checks:
        rows.add_row(say(check.name, QUIET if check.fine else ACCENT), say(check.told))
    return rows
