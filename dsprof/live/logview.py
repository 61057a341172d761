"""The log itself: its last lines, or those around a place that something points to."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message

from dsprof.live import panes
from dsprof.live.grid import Grid
from dsprof.live.head import Sentence
from dsprof.live.picture import Lines, Tail

_NONE = "no log here: name it beside the recordings, as in `dsprof live runs/a job.log`"


class LogView(Vertical):
    """One log at a time. At its end it follows; elsewhere it stands still."""

    DEFAULT_CSS = "LogView { height: 1fr; }"

    class Wanted(Message):
        """The last lines of a log are to be shown."""

        def __init__(self, source: str) -> None:
            super().__init__()
            self.source = source

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - textual's name
        super().__init__(id=id)
        self.sought = ""
        self._logs: Sequence[str] = ()
        self._source = ""
        self._tail = Tail((), frozenset())
        self._held: Lines | None = None  # lines around a place, until esc

    def compose(self) -> ComposeResult:
        yield Sentence(id="log-name")
        yield Grid("no line yet", id="log-grid", sticky=True)

    def offer(self, logs: Sequence[str]) -> None:
        """Of these logs one is shown; its last lines are asked for."""
        self._logs = logs
        if self._source not in logs:
            self._source = next(iter(logs), "")
        if self._source:
            self.post_message(self.Wanted(self._source))
        else:
            self.query_one("#log-name", Sentence).say(_NONE)

    def show(self, source: str, tail: Tail) -> None:
        """The last lines of `source`."""
        if source == self._source:
            self._tail = tail
            self._fill()

    def _fill(self) -> None:
        grid, name = self.query_one(Grid), self.query_one("#log-name", Sentence)
        lines = self._tail.lines if self._held is None else self._held
        more = f" ({len(self._logs)} logs: s shows the next)" if len(self._logs) > 1 else ""
        where = "" if self._held is None else " · esc: back to its end"
        found = f" · looking for {self.sought}" if self.sought else ""
        name.say(f"{self._source}{more}{found}{where}")
        wide = max((len(line) for _, line in lines), default=0)
        grid.fill(*panes.log(lines, self._tail, max(wide, 1), self.sought))

    def at_end(self) -> None:
        """Back to the last lines."""
        self._held = None
        self.sought = ""
        self._fill()
        grid = self.query_one(Grid)
        grid.cursor = len(grid.rows) - 1
        grid.scroll_to(x=0, animate=False)

    def next_source(self) -> None:
        if self._logs:
            at = self._logs.index(self._source) if self._source in self._logs else -1
            self._source = self._logs[(at + 1) % len(self._logs)]
            self._tail = Tail((), frozenset())
            self.at_end()
            self.post_message(self.Wanted(self._source))

    def go(self, source: str, line: int, lines: Lines | None, tail: Tail) -> None:
        """Show a line among its neighbours: those of its end, if it is one of them."""
        self._source, self._tail = source, tail
        there = any(number == line for number, _ in tail.lines)
        self._held = None if there else lines
        self._fill()
        if not self.query_one(Grid).go(line):
            self.app.notify(f"line {line:,} cannot be read", severity="warning", markup=False)

    def search(self, words: str | None) -> None:
        if words is None:
            return
        self.sought = words
        self._fill()
        grid = self.query_one(Grid)
        if words:
            grid.cursor = len(grid.rows) - 1
            self.again(-1, here=True)

    def again(self, by: int, *, here: bool = False) -> None:
        """Go to the next line that holds what is sought, up or down."""
        grid, sought = self.query_one(Grid), self.sought.casefold()
        at = grid.cursor if here else grid.cursor + by
        while sought and 0 <= at < len(grid.rows):
            if sought in grid.rows[at].cells[1].text.casefold():
                grid.cursor = at
                grid.show_words(1, self.sought)
                return
            at += by
        if sought:
            self.app.clear_notifications()  # pressed again, it would fill the screen
            self.app.notify(f"nothing more of {self.sought} in these lines", markup=False)
