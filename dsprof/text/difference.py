"""Two runs side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from dsprof.text.layout import ACCENT, QUIET, STRONG, heading, say
from dsprof.text.words import count_of, plain
from dsprof.units import format_seconds

if TYPE_CHECKING:
    from dsprof.compare import Comparison

_SETTINGS: Final = 12
_VALUE: Final = 24
_DEAR: Final = 0.005  # of a step: a class below that is not worth a line


def difference(found: Comparison) -> RenderableType:
    """The answer, the numbers behind it, and what was configured differently."""
    parts: list[RenderableType] = [say(_answer(found), STRONG), say(found.why, QUIET)]
    parts += [Text(), _times(found)]
    told = {name: pair for name, pair in found.settings.items() if None not in pair}
    if told:
        parts += [Text(), *_settings(told)]
    return Group(*parts)


def _answer(found: Comparison) -> str:
    if found.answer == "cannot tell":
        enough = (
            f"; about {count_of(found.needed, 'row')} of each run would tell"
            if found.needed
            else ""
        )
        return f"Cannot tell{_change(found)}{enough}"
    word = {"regression": "Slower", "improvement": "Faster", "none": "No difference that matters"}
    return f"{word[found.answer]}{_change(found)}"


def _change(found: Comparison) -> str:
    """`: +12 % seconds per step (+9 % to +15 %)`; "" where there is no interval."""
    if found.ratio is None or found.low is None or found.high is None:
        return ""
    span = f"{_percent(found.low)} to {_percent(found.high)}"
    return f": {_percent(found.ratio)} seconds per {found.per} ({span})"


def _percent(ratio: float) -> str:
    percent = (ratio - 1) * 100
    return f"{percent:+.1f} %" if abs(percent) < 9.95 else f"{percent:+,.0f} %"


def _times(found: Comparison) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    for _ in range(3):
        table.add_column(justify="right", no_wrap=True)
    table.add_row("", *(say(word, QUIET) for word in ("first", "second", "change")))
    sides = found.first, found.second
    rows: list[tuple[str, float | None, float | None, str]] = [
        (f"one {found.per}", found.first.seconds, found.second.seconds, STRONG)
    ]
    least = _DEAR * max(sum(side.classes.values()) for side in sides)
    names = {**found.second.classes, **found.first.classes}
    for name in sorted(names, key=lambda name: -max(s.classes.get(name, 0.0) for s in sides)):
        before, after = (side.classes.get(name) for side in sides)
        if max(before or 0.0, after or 0.0) > least:
            rows.append((name, before, after, ACCENT if name in {"communication", "wait"} else ""))
    for name, before, after, style in rows:
        change = _percent(after / before) if before and after is not None else ""
        shown = ["unknown" if s is None else format_seconds(s) for s in (before, after)]
        table.add_row(*(say(cell, style) for cell in (name, *shown, change)))
    table.add_row(say("rows", QUIET), *(say(f"{side.rows:,}", QUIET) for side in sides), "")
    return table


def _settings(settings: dict[str, tuple[Any, Any]]) -> list[RenderableType]:
    """What both tell differently; long values are dumps of many settings, named only."""
    long = [name for name, pair in settings.items() if max(map(_length, pair)) > _VALUE]
    short = [name for name in settings if name not in long]
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column()
    table.add_column(overflow="fold")
    for name in short[:_SETTINGS]:
        before, after = settings[name]
        table.add_row(say(name), say(f"{before} → {after}"))
    rest = [*short[_SETTINGS:], *long]
    where = "In --json also" if short else "In --json"
    more = [say(f"{where}: {', '.join(rest)}", QUIET)] if rest else []
    return [heading("Configured differently"), *([table] if table.rows else []), *more]


def _length(value: Any) -> int:
    return len(plain(value))
