"""What holds for every page, in a real browser, opened from a file as a reader opens it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.page.browsing import FIVE, Open, click_column, draw_everything, violations

#: On how many pages of paper a short run has room.
PAGES = {"seed": 4, "failure": 5, "zero3": 7}


@pytest.mark.parametrize("name", FIVE, scope="module")
def test_the_page_prints_with_every_chart_in_light_colours_a_short_run_on_few_pages(
    opened: Open, tmp_path: Path, name: str
) -> None:
    page = opened(name, scheme="dark", fresh=True)
    page.evaluate(
        "addEventListener('beforeprint', () => { seen = [...plots.values()].every(p => p.drawn) })"
    )
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    file = tmp_path / "page.pdf"
    page.pdf(path=file, format="A4")
    printed = file.read_bytes()
    assert printed.startswith(b"%PDF")
    assert len(printed) > 20_000
    assert page.evaluate("seen") is True
    pages = len(re.findall(rb"/Type\s*/Page\b", printed))
    assert 1 <= pages <= PAGES.get(name, pages)


@pytest.mark.parametrize("name", FIVE, scope="module")
def test_every_chart_of_the_page_is_drawn(opened: Open, name: str) -> None:
    page = opened(name)
    draw_everything(page)
    empty = page.evaluate(
        """() => [...document.querySelectorAll('.chart')]
             .filter(chart => !chart.querySelector('.trace, .point, .hm image, .slice'))
             .map(chart => chart.dataset.chart)"""
    )
    assert page.locator(".chart").count() >= 1
    assert empty == []


#: Each page in one scheme, in turn.
AUDITED = [(name, ("light", "dark")[n % 2]) for n, name in enumerate((*FIVE, "comms", "gpus"))]


@pytest.mark.parametrize(("name", "scheme"), AUDITED, scope="module")
def test_the_page_has_no_accessibility_fault(opened: Open, name: str, scheme: str) -> None:
    page = opened(name, scheme=scheme)
    draw_everything(page)
    assert violations(page) == []


@pytest.mark.parametrize(("name", "scheme"), [("seed", "dark"), ("zero3", "light")])
def test_the_colours_of_the_other_scheme_have_no_fault(
    opened: Open, name: str, scheme: str
) -> None:
    """Of those two pages that show, together, every pair of colours of ink and paper that any of
    the seven shows. Other rules look at no colours."""
    page = opened(name, scheme=scheme)
    draw_everything(page)
    assert violations(page, "color-contrast", "link-in-text-block") == []


#: What the caption of the chart of steps says of the marks on each of the five pages.
MARKED = {
    "seed": "3 pipeline-bound steps (20 to 40), 76 %.",
    "megatron": "No step is known to be held back by communication.",
    "failure": "16 communication-bound records (1 to 9, 11 to 13, 15 to 17, 19), 41 % to 79 %.",
    "zero3": "No step is known to be held back by communication.",
    "huge": "49,699 communication-bound steps in 9,511 stretches, 35 % to 96 %.",
}


@pytest.mark.parametrize("name", FIVE, scope="module")
def test_steps_that_communication_holds_back_are_told_and_marked(opened: Open, name: str) -> None:
    page = opened(name)
    said = page.locator("#steps-0 figcaption").inner_text().replace("\u00a0", " ")
    assert MARKED[name] in said
    marks = "page.figures['steps-0'].data.filter(t => t.yaxis === 'y2').length"
    assert bool(page.evaluate(marks)) == (not said.startswith("No step"))


#: A step of each of the five pages, and what a line of it says.
CLICKED = {
    "seed": (30, "steps: 30 loss:"),
    "megatron": (7000, "iteration     7000/"),
    "failure": (16, "fwd:"),
    "zero3": (20, "CurrSamplesPerSec"),
    "huge": (60_000, "sed -n"),  # its log was never written: the way to its lines is shown
}


@pytest.mark.parametrize("name", FIVE, scope="module")
def test_a_click_leads_to_the_lines_of_the_step(opened: Open, name: str) -> None:
    page = opened(name)
    step, words = CLICKED[name]
    click_column(page, step)
    drawer = page.locator("#drawer-body")
    expect(drawer).to_contain_text(words)
    expect(page.locator("#drawer h2")).to_have_text(re.compile(r"^(Step|Record) [\d,]+$"))


@pytest.mark.parametrize("name", FIVE, scope="module")
def test_steps_are_chosen_opened_and_left_by_keyboard(opened: Open, name: str) -> None:
    page = opened(name)
    page.locator("[data-steps]").focus()
    for key in ("End", "ArrowLeft", "Enter"):
        page.keyboard.press(key)
    expect(page.locator("#drawer")).to_be_visible()
    before, last = page.evaluate("[...[...timelines.values()][0].track.step.slice(-2)]")
    assert last > before
    expect(page.locator("#drawer h2")).to_have_text(re.compile(f" {before:,}$"))
    page.keyboard.press("Escape")
    expect(page.locator("#drawer")).to_be_hidden()
    page.keyboard.press("+")
    zoomed = page.evaluate("[...timelines.values()][0].from")
    assert zoomed > 0 or name == "seed"  # its three steps fill the smallest range
    page.keyboard.press("0")
    assert page.evaluate("[...timelines.values()][0].from") == 0


#: The colour of the words in a chart.
INK = "document.querySelector('.plot-steps')._fullLayout.font.color"


def ink_once_it_is(page: Page, colour: str) -> object:
    """The colour of the words in a chart, as soon as it is this one, or after 10 seconds."""
    told = page.evaluate(INK)
    for _ in range(100):
        if told == colour:
            break
        page.wait_for_timeout(100)
        told = page.evaluate(INK)
    return told


@pytest.mark.parametrize("name", FIVE, scope="module")
def test_the_theme_is_switched_and_the_charts_with_it(opened: Open, name: str) -> None:
    page = opened(name)
    draw_everything(page)
    paper = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(paper), page.evaluate(INK)
    page.get_by_role("button", name="Dark").click()
    page.wait_for_timeout(200)
    dark = page.evaluate(paper), page.evaluate(INK)
    assert light == ("rgb(255, 255, 255)", "#1a1e24")
    assert dark == ("rgb(21, 24, 28)", "#e6e9ed")


def test_the_page_follows_the_dark_of_the_system_and_charts_that_are_drawn_do(opened: Open) -> None:
    page = opened("seed", scheme="dark", fresh=True)
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(21, 24, 28)"
    draw_everything(page)
    assert page.evaluate(INK) == "#e6e9ed"
    page.emulate_media(color_scheme="light")
    assert ink_once_it_is(page, "#1a1e24") == "#1a1e24"


def test_charts_are_on_the_screen_as_before_once_they_were_printed(
    opened: Open, tmp_path: Path
) -> None:
    page = opened("seed", scheme="dark", fresh=True)
    draw_everything(page)
    page.evaluate(f"addEventListener('beforeprint', () => {{ printed = {INK} }})")
    page.pdf(path=tmp_path / "page.pdf", format="A4")
    assert page.evaluate("printed") == "#1a1e24"
    assert ink_once_it_is(page, "#e6e9ed") == "#e6e9ed"


def test_a_page_that_is_opened_on_a_narrow_screen_does_not_scroll_sideways(opened: Open) -> None:
    page = opened("comms", width=400, fresh=True)
    draw_everything(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 400


NARROW = (*FIVE, "comms", "gpus", "two_launches", "many_failures")


@pytest.mark.parametrize("name", NARROW, scope="module")
def test_a_narrow_screen_never_scrolls_sideways(opened: Open, name: str) -> None:
    page = opened(name, width=400)
    draw_everything(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
