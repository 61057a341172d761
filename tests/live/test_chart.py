"""Bars of the last steps, and what stands below them."""

from __future__ import annotations

import asyncio
import re

import pytest
from textual.app import App, ComposeResult

from dsprof.events import CLASSES
from dsprof.live import chart
from dsprof.live.chart import Chart
from dsprof.live.look import Look
from dsprof.live.picture import Bar


class Page(App[None]):
    look = Look(dark=True, colour=True)

    def compose(self) -> ComposeResult:
        yield Chart()


def axis(steps: list[int], columns: int = 80) -> dict[int, str]:
    """The numbers below bars of these steps, and in which column each begins."""

    async def drawn() -> str:
        page = Page()
        async with page.run_test(size=(columns, 24)) as pilot:
            chart = page.query_one(Chart)
            chart.show([Bar(step, 1.0, (None,) * len(CLASSES), "") for step in steps], "step")
            await pilot.pause()
            return chart.render_line(chart.size.height - 1).text

    return {found.start() - 9: found[0] for found in re.finditer(r"[\d,]+", asyncio.run(drawn()))}


@pytest.mark.parametrize(
    ("steps", "numbers"),
    [
        ([*range(1, 61)], {0: "1", 58: "60"}),
        ([*range(31, 61), *range(1, 31)], {0: "31", 30: "1", 58: "30"}),
        ([*range(1, 31), *range(21, 51)], {0: "1", 30: "21", 58: "50"}),
        ([60, *range(1, 60)], {0: "60", 58: "59"}),
        ([*range(1, 60), 1], {0: "1", 59: "1"}),
    ],
)
def test_where_a_launch_counts_anew_its_first_step_is_named_if_there_is_room(
    steps: list[int], numbers: dict[int, str]
) -> None:
    assert axis(steps) == numbers


def test_in_a_narrow_terminal_the_last_step_alone_is_named() -> None:
    assert list(axis([123456, 123457], columns=18).values()) == ["123,457"]


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.2, "200 ms"), (75.0, "75.0 s"), (130.0, "2.2 min"), (600.0, "10.0 min"),
     (3599.0, "60.0 min"), (7300.0, "2.0 h"), (3.6e6, "1,000.0 h")],
)  # fmt: skip
def test_the_longest_step_is_told_where_there_is_room_beside_the_bars(
    seconds: float, said: str
) -> None:
    assert chart._short(seconds) == said
    assert len(said) <= chart._AXIS
