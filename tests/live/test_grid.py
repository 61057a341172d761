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
