"""Step times as stacked bars, the newest at the right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip
from textual.widget import Widget

from dsprof.events import CLASSES
from dsprof.live.look import GLYPH, STACK, Look, look_of
from dsprof.live.picture import Bar
from dsprof.units import format_seconds

_AXIS: Final = 9  # cells at the left
_WIDEST: Final = 4  # cells of a bar
_EIGHTHS: Final = " ▁▂▃▄▅▆▇█"
_HELD: Final = ("communication", "pipeline")  # bounds that are marked

Stack = list[tuple[str, float]]


class Chart(Widget):
    """Bars of the steps given to `show`, as many as there is room for."""

    DEFAULT_CSS = "Chart { height: 8; }"

    def __init__(self) -> None:
        super().__init__()
        self._bars: Sequence[Bar] | None = None  # nothing is known of them yet
        self._noun = "step"

    def show(self, bars: Sequence[Bar], noun: str) -> None:
        """`noun`: what the bars are, steps or records."""
        if (bars, noun) != (self._bars, self._noun):
            self._bars, self._noun = bars, noun
            self.refresh()

    def render_line(self, y: int) -> Strip:
        look = look_of(self)
        if self._bars is None:
            return Strip.blank(self.size.width, look.style())
        room = max(0, self.size.width - _AXIS - 1)
        wide = max(1, min(_WIDEST, room // max(1, len(self._bars))))
        bars = self._bars[-(room // wide) :] if room else ()
        if not bars:
            words = f"  no {self._noun} has a time yet" if y == self.size.height // 2 else ""
            return Strip([Segment(words, look.style("muted"))])
        marks = any(bar.bound in _HELD for bar in bars)
        height = max(1, self.size.height - 1 - marks)
        most = max(bar.seconds for bar in bars) or 1.0
        if y < height:
            cells = [cell_of(bar, most, height, height - 1 - y, look) for bar in bars]
            label = _short(most) if y == 0 else "0 s" if y == height - 1 else ""
            line = [Segment(glyph * wide, style) for glyph, style in cells]
        elif marks and y == height:
            label = "comm. ▲"
            line = [_mark(bar, wide, look) for bar in bars]
        else:
            label = self._noun
            line = [Segment(_numbers(bars, wide), look.style("muted"))]
        axis = Segment(f"{label:>{_AXIS - 1}} ", look.style("muted"))
        return Strip([axis, *line]).simplify().extend_cell_length(self.size.width, look.style())


def _short(seconds: float) -> str:
    """As it has room beside the bars."""
    said = format_seconds(seconds)
    if len(said) < _AXIS:
        return said
    return f"{seconds / 60:.1f} min" if seconds < 3600 else f"{seconds / 3600:,.1f} h"


def stack_of(bar: Bar) -> Stack:
    """Class and seconds, bottom to top; what no class explains is unknown."""
    told = dict(zip(CLASSES, bar.classes, strict=True))
    stack = [(str(name), told[name] or 0.0) for name in STACK]
    rest = bar.seconds - sum(seconds for _, seconds in stack)
    return [*stack, ("unknown", max(0.0, rest))]


def cell_of(bar: Bar, most: float, height: int, row: int, look: Look) -> tuple[str, Style]:
    """The glyph of one cell, `row` from the bottom: at most two classes share it."""
    parts = _parts(stack_of(bar), most / height * row, most / height)
    if not parts:
        return " ", look.style()
    if not look.colour:
        name, part = max(parts, key=lambda one: one[1])
        return (GLYPH[name] if part >= 0.25 else " "), look.style()
    (lower, part), *above = parts
    ground = look.hex(max(above, key=lambda one: one[1])[0]) if above else look.hex("paper")
    eighths = 8 if sum(p for _, p in parts) >= 0.999 and not above else max(1, round(part * 8))
    return _EIGHTHS[min(8, eighths)], Style(color=look.hex(lower), bgcolor=ground)


def _parts(stack: Stack, low: float, span: float) -> Stack:
    """Which classes fill the cell from `low` on, and which part of it each."""
    found, at = [], 0.0
    for name, seconds in stack:
        inside = min(at + seconds, low + span) - max(at, low)
        at += seconds
        if inside > span / 16:
            found.append((name, inside / span))
    return found


def _mark(bar: Bar, wide: int, look: Look) -> Segment:
    held = bar.bound in _HELD
    return Segment(("▲" if held else " ").ljust(wide), look.style("communication"))


def _numbers(bars: Sequence[Bar], wide: int) -> str:
    """The first and the last step, and those with which a launch counts anew; none over another."""
    line = f"{bars[-1].step:,}".rjust(len(bars) * wide)
    anew = (at for at in range(1, len(bars)) if bars[at].step <= bars[at - 1].step)
    for at in (0, *anew):
        number, cell = f"{bars[at].step:,}", at * wide
        after = cell + len(number)
        if after < len(line) and not line[max(0, cell - 1) : after + 1].strip():
            line = line[:cell] + number + line[after:]
    return line
