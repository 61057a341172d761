"""Tables on the terminal."""

from __future__ import annotations

from textual.app import App, ComposeResult

from dsprof.live.grid import Cell, Column, Grid, Row
from dsprof.live.look import Look
from tests.live.screens import apart, text_of


class _Shown(App[None]):
    look = Look(dark=True, colour=True)

    def compose(self) -> ComposeResult:
        yield Grid()


def test_words_that_are_cut_say_so_beside_a_scroll_bar_too() -> None:
    async def shown() -> None:
        app = _Shown()
        async with app.run_test(size=(60, 8)) as pilot:
            rows = [Row(at, (Cell("warning"), Cell("word " * 30))) for at in range(20)]
            app.query_one(Grid).fill([Column("severity", 8), Column("finding", 0)], rows)
            await pilot.pause()
            lines = text_of(app).splitlines()
        assert len(lines) == 8
        assert all("…" in line for line in lines[1:])

    apart(shown())


def test_words_that_are_scrolled_do_not_touch_the_first_column() -> None:
    async def shown() -> None:
        app = _Shown()
        async with app.run_test(size=(40, 8)) as pilot:
            rows = [Row(at, (Cell(str(3999 + at)), Cell("0123456789" * 30))) for at in range(3)]
            grid = app.query_one(Grid)
            grid.fill([Column("line", 4, right=True), Column("text", 300)], rows)
            await pilot.pause()
            grid.focus()
            await pilot.press("right")
            await pilot.pause()
            lines = text_of(app).splitlines()
        assert lines[1].startswith(" 3999 ")

    apart(shown())
