"""The table of a step's parts: numbers are never cut, bars and names take what is left."""

from __future__ import annotations

from typing import Final

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.padding import Padding
from rich.text import Text

from dsprof.text.layout import ACCENT, QUIET, say
from dsprof.text.parts import Part
from dsprof.text.words import plain
from dsprof.units import format_seconds, format_share

_BARS: Final = (20, 10)  # columns
_NAME: Final = 18  # columns that a bar leaves where not all names fit behind one
_GAP: Final = 2
_EIGHTHS: Final = " ▏▎▍▌▋▊▉"
_HIGHLIGHTED: Final = ("communication", "wait")
_INSIDE: Final = "  of that"
PLAIN: Final = {"": "", "≥": ">=", "≤": "<="}  #: signs, where the encoding has none


class PartTable:
    """Draws parts into whatever width there is.

    Args:
        parts: rows, in order.
        blocks: draw with block characters and `≥`; False where the encoding has none.
    """

    def __init__(self, parts: list[Part], *, blocks: bool) -> None:
        self.parts = parts
        self.blocks = blocks

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> RenderResult:
        """A name that does not fit behind its row stands below it."""
        rows = [self._cells(part) for part in self.parts]
        widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
        room = options.max_width - sum(widths) - _GAP * len(widths)
        longest = max((cell_len(plain(part.phase)) for part in self.parts), default=0)
        left = [(bar, room - bar - _GAP) for bar in _BARS]
        fit = [one for name in (longest, _NAME) for one in left if one[1] >= name]
        bar, room = fit[0] if fit else (0, room)
        for part, (label, *numbers) in zip(self.parts, rows, strict=True):
            style = ACCENT if part.name in _HIGHLIGHTED and not part.inside else ""
            cells = [say(label, style) if not part.inside else Text(label, QUIET)]
            cells[0].align("left", widths[0])
            for number, width in zip(numbers, widths[1:], strict=True):
                cells.append(Text(number.rjust(width), style))
            if bar:
                cells.append(Text(self._bar(part, bar).ljust(bar), style or QUIET))
            fits = cell_len(plain(part.phase)) <= room
            name = say(part.phase, QUIET)
            yield Text(" " * _GAP).join([*cells, name] if fits else cells)
            if not fits:
                name.overflow = "fold"
                yield Padding(name, (0, 0, 0, _GAP))

    def _cells(self, part: Part) -> tuple[str, str, str]:
        """Label, seconds and share; what is not known is called so."""
        label = _INSIDE if part.inside else part.label
        if part.seconds is None or part.share is None:
            return label, "unknown", ""
        sign = part.sign if self.blocks else PLAIN[part.sign]
        return label, sign + format_seconds(part.seconds), _share(part.share)

    def _bar(self, part: Part, width: int) -> str:
        """As wide as its share of the step; anything above nothing shows."""
        if part.share is None:
            return ""
        if not self.blocks:
            return "#" * max(1, round(part.share * width))
        eighths = max(1, round(part.share * width * 8))
        return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def _share(share: float) -> str:
    return "<0.1 %" if 0 < share < 0.001 else format_share(share)
