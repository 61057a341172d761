"""A table on the terminal that draws only the lines in view: thousands of rows cost nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import ClassVar, Final

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from dsprof.live.look import Look, look_of
from dsprof.live.text import plain_line
from dsprof.text.words import plain


@dataclass(frozen=True, slots=True)
class Column:
    """`width` cells, 0 for what is left of the line."""

    title: str
    width: int
    right: bool = False


@dataclass(frozen=True, slots=True)
class Cell:
    """Words and the role that colours them; `heat` from 0 to 1 shades the ground."""

    text: str
    role: str = ""
    heat: float = 0.0


@dataclass(frozen=True, slots=True)
class Row:
    """`key` says what the row stands for: the cursor stays on it when rows move."""

    key: object
    cells: tuple[Cell, ...]


_GAP: Final = 1
_HOTTEST: Final = 0.6  # of the accent's colour: words upon it can still be read
_FAR: Final = 20  # cells that a wide column is scrolled by
_LEAST: Final = 20  # cells of a column that takes what is left


class Grid(ScrollView, can_focus=True):
    """Rows under a heading, with a cursor. `enter` and a second click open a row.

    Where there is no room for all columns the first one stays; of numbers no part is shown: what
    is cut could be read as another one. Marks in the heading tell of columns beside.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Up", show=False),
        Binding("down,j", "move(1)", "Down", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("pagedown", "page(1)", "Page down", show=False),
        Binding("home,g", "edge(0)", "First", show=False),
        Binding("end,G", "edge(1)", "Last", show=False),
        Binding("left,h", "beside(-1)", "Left", show=False),
        Binding("right,l", "beside(1)", "Right", show=False),
        Binding("enter", "open", "Open", show=False),
    ]
    DEFAULT_CSS = """
    Grid { height: 1fr; min-height: 3; scrollbar-size-horizontal: 0; scrollbar-size-vertical: 1; }
    """

    cursor: reactive[int] = reactive(0)

    class Opened(Message):
        """A row was chosen."""

        def __init__(self, grid: Grid, key: object) -> None:
            super().__init__()
            self.grid, self.key = grid, key

        @property
        def control(self) -> Grid:
            return self.grid

    def __init__(self, empty: str = "", *, id: str | None = None, sticky: bool = False) -> None:  # noqa: A002 - textual's name
        super().__init__(id=id)
        self.columns: Sequence[Column] = ()
        self.rows: Sequence[Row] = ()
        self.empty = empty  # said where there is nothing, once that is known
        self._filled = False
        self.sticky = sticky  # at the last row it stays there when more come
        self._drawn_in: Look | None = None

    def fill(self, columns: Sequence[Column], rows: Sequence[Row]) -> None:
        """Show these rows; the cursor stays on what it was moved to. Only what changed is drawn."""
        key, before, look = self.chosen, self.rows, look_of(self)
        last = self.sticky and self.cursor >= len(before) - 1
        same = self._filled and columns == self.columns and look is self._drawn_in
        self.columns, self.rows, self._drawn_in, self._filled = columns, rows, look, True
        self._measure()
        at = next((i for i, row in enumerate(rows) if row.key == key), None)
        if last:
            at = len(rows) - 1
        elif self.cursor == 0:
            at = 0  # nobody has chosen a row: what comes first stays chosen
        self.cursor = min(self.cursor if at is None else at, max(0, len(rows) - 1))
        if not same or len(rows) != len(before):
            self.refresh()
        else:
            self._redraw(at for at in range(len(rows)) if rows[at] != before[at])
        if not self._in_view(self.cursor):
            self.call_after_refresh(self._reveal)  # once the new size is known

    def _redraw(self, rows: Iterable[int]) -> None:
        for at in filter(self._in_view, rows):
            self.refresh_line(at + 1)

    def _in_view(self, at: int) -> bool:
        top = int(self.scroll_offset.y)
        return top <= at < top + max(1, self.scrollable_content_region.height - 1)

    @property
    def chosen(self) -> object:
        """What the cursor stands on, None on nothing."""
        return self.rows[self.cursor].key if 0 <= self.cursor < len(self.rows) else None

    def go(self, key: object) -> bool:
        """Put the cursor on a row; whether there is one."""
        at = next((i for i, row in enumerate(self.rows) if row.key == key), None)
        if at is not None:
            self.cursor = at
            self._reveal()
        return at is not None

    def on_resize(self) -> None:
        self._measure()

    def _measure(self) -> None:
        fixed = sum(column.width + _GAP for column in self.columns)
        if any(column.width == 0 for column in self.columns):
            fixed += _LEAST
        self.virtual_size = Size(max(self._width, fixed), len(self.rows) + 1)

    @property
    def _width(self) -> int:
        """Cells of a line; where not all rows have room, the scroll bar stands beside it."""
        has_bar = len(self.rows) + 1 > self.size.height
        return self.size.width - has_bar * self.styles.scrollbar_size_vertical

    def validate_cursor(self, value: int) -> int:
        return max(0, min(value, len(self.rows) - 1))

    def watch_cursor(self, old: int, new: int) -> None:
        self._redraw((old, new))
        self._reveal()

    def _reveal(self) -> None:
        height = max(1, self.scrollable_content_region.height - 1)
        top = int(self.scroll_offset.y)
        if self.cursor < top:
            self.scroll_to(y=self.cursor, animate=False)
        elif self.cursor >= top + height:
            self.scroll_to(y=self.cursor - height + 1, animate=False)

    def show_words(self, column: int, words: str) -> None:
        """Scroll sideways to words of the cursor's row; back to its begin where that shows them."""
        text = plain_line(self.rows[self.cursor].cells[column].text)
        at = text.casefold().find(words.casefold())
        if at < 0:
            return
        first = self._places()[column][0] + _GAP + cell_len(text[:at]) - self._pinned
        last = first + cell_len(text[at : at + len(words)])
        room = self._width - self._pinned - 1  # and the mark that there is more
        here = int(self.scroll_offset.x)
        if last <= room:
            self.scroll_to(x=0, animate=False)
        elif not here <= first <= last <= here + room:
            self.scroll_to(x=min(first - _GAP, last - room + _FAR), animate=False)

    def action_move(self, by: int) -> None:
        self.cursor += by

    def action_page(self, by: int) -> None:
        self.cursor += by * max(1, self.size.height - 2)

    def action_edge(self, end: int) -> None:
        self.cursor = len(self.rows) - 1 if end else 0

    def action_beside(self, by: int) -> None:
        """Scroll by a column, in a wide one by some cells."""
        here = int(self.scroll_offset.x)
        stops = [begin - self._pinned for begin, _ in self._places()[1:]]
        stops += range(stops[-1] if stops else 0, self.virtual_size.width, _FAR)
        beyond = [stop for stop in stops if (stop > here if by > 0 else stop < here)]
        to = 0 if not beyond else min(beyond) if by > 0 else max(beyond)
        self.scroll_to(x=to, animate=False)

    def action_open(self) -> None:
        if self.chosen is not None:
            self.post_message(self.Opened(self, self.chosen))

    def on_click(self, event: events.Click) -> None:
        at = int(self.scroll_offset.y) + event.y - 1
        if event.y and at < len(self.rows):
            again, self.cursor = at == self.cursor, at
            if again:
                self.action_open()

    def render_line(self, y: int) -> Strip:
        look, width = look_of(self), self._width
        at = int(self.scroll_offset.y) + y - 1
        if y == 0:
            return self._heading(look)
        if not self.rows:
            line = wrap(plain(self.empty) if self._filled else "", max(width - 2, 1))[y - 1 : y]
            strip = Strip([Segment(" " + part, look.style("muted")) for part in line])
        elif 0 <= at < len(self.rows):
            on = "line" if at == self.cursor and self.has_focus else "paper"
            strip = self._line(self.rows[at].cells, look, on)
        else:
            strip = Strip([])
        return strip.extend_cell_length(width, look.style())

    def _heading(self, look: Look) -> Strip:
        x, width = int(self.scroll_offset.x), self._width
        ground = look.style("strong", on="raised")
        strip = self._line([Cell(c.title, "muted") for c in self.columns], look, "raised")
        if x and self._pinned:
            left, _, right = strip.divide([self._pinned, self._pinned + _GAP, width])
            strip = Strip([*left, Segment("‹", ground), *right])
        if self.virtual_size.width - x > width:
            strip = Strip([*strip.crop(0, width - 1), Segment("›", ground)])
        return strip

    def _places(self) -> list[tuple[int, int]]:
        """Where each column begins, with the gap before it, and ends."""
        places, at = [], 0
        for column in self.columns:
            end = at + _GAP + (column.width or max(_LEAST, self.virtual_size.width - at - _GAP))
            places.append((at, end))
            at = end
        return places

    @property
    def _pinned(self) -> int:
        """Cells of the first column, where not all columns have room."""
        fits = self.virtual_size.width <= self._width
        return 0 if fits or len(self.columns) < 2 else self.columns[0].width + _GAP

    def _line(self, cells: Sequence[Cell], look: Look, on: str) -> Strip:
        segments: list[Segment] = []
        ground = look.style(on=on)
        pinned, x = self._pinned, int(self.scroll_offset.x)
        low, high = pinned + x, self._width + x
        for column, cell, (begin, end) in zip(self.columns, cells, self._places(), strict=False):
            if column.right and end > pinned and not low <= begin < end <= high:
                segments.append(Segment(" " * (end - begin), ground))
                continue
            words = fitted(cell.text, end - begin - _GAP, column.right)
            segments += [Segment(" " * _GAP, ground), Segment(words, _style(cell, look, on))]
        line = Strip(segments).simplify().extend_cell_length(self.virtual_size.width, ground)
        if not (x and pinned):
            return Strip.join([line.crop(0, pinned), line.crop(low, high)])
        gap = Strip([Segment(" " * _GAP, ground)])  # also where words are cut at their begin
        return Strip.join([line.crop(0, pinned), gap, line.crop(low + _GAP, high)])


def fitted(text: str, width: int, right: bool = False) -> str:
    """Words cut or filled to so many cells; what is cut says so."""
    bare = plain_line(text)
    if cell_len(bare) > width:
        return set_cell_size(bare, max(0, width - 1)) + "…" if width > 1 else bare[:width]
    pad = " " * (width - cell_len(bare))
    return pad + bare if right else bare + pad


def _style(cell: Cell, look: Look, on: str) -> Style:
    style = look.style(cell.role, on=on)
    if cell.heat <= 0 or not look.colour:
        return style
    ground = mixed(look.hex(on), look.hex("communication"), min(1.0, cell.heat) * _HOTTEST)
    return Style(color=look.hex("ink"), bgcolor=ground)


def mixed(one: str, other: str, part: float) -> str:
    """A colour between two, `part` of the way."""
    pairs = zip(_rgb(one), _rgb(other), strict=True)
    return "#" + "".join(f"{round(a + (b - a) * part):02x}" for a, b in pairs)


def _rgb(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)
