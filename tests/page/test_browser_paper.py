"""The page on narrow screens and on paper."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.page.browsing import Open, draw_everything


@pytest.mark.parametrize("width", [320, 400, 711, 1400])
def test_a_long_verdict_wraps_in_its_place_on_screens_and_on_paper(
    opened: Open, width: int
) -> None:
    page = opened("seed")
    page.set_viewport_size({"width": width, "height": 900})
    for media in ("screen", "print"):
        page.emulate_media(media=media)
        box = page.locator("h1").bounding_box()
        assert box
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
        assert page.evaluate("document.querySelector('h1').scrollWidth") <= box["width"] + 1
        assert box["height"] > 30  # some lines, of which none is cut
        assert page.evaluate("getComputedStyle(document.querySelector('h1')).overflow") == "visible"


def test_marks_of_communication_do_not_cover_each_other_on_a_narrow_screen(opened: Open) -> None:
    page = opened("comms", width=400)
    draw_everything(page)
    boxes = page.evaluate(
        """() => [...document.querySelectorAll('.plot-communication .point')].map(mark => {
             const { left, right, top, bottom } = mark.getBoundingClientRect();
             return [left, right, top, bottom];
           })"""
    )
    assert len(boxes) == 3
    for i, (left, right, top, bottom) in enumerate(boxes):
        for other in boxes[i + 1 :]:
            apart = right <= other[0] or other[1] <= left or bottom <= other[2] or other[3] <= top
            assert apart


def test_a_table_that_is_too_wide_says_so_on_a_narrow_screen(opened: Open) -> None:
    page = opened("comms", width=400)
    wide = page.locator("#communication .scroll").first
    expect(wide).to_have_class(re.compile("wide"))
    assert "scroll sideways" in wide.evaluate("e => getComputedStyle(e, '::before').content")


def test_a_table_of_short_numbers_fits_on_a_narrow_screen(opened: Open) -> None:
    page = opened("comms", width=420)
    page.locator("#memory summary").first.click()
    memory = page.get_by_role("region", name="Memory by rank")
    expect(memory.locator("thead th").last).to_have_text("at step")
    assert memory.evaluate("e => e.scrollWidth <= e.clientWidth")


@pytest.mark.parametrize("name", ["comms", "failure"])
def test_keys_and_words_keep_whole_on_a_narrow_screen(opened: Open, name: str) -> None:
    page = opened(name, width=400)
    narrow = page.evaluate(
        """() => [...document.querySelectorAll('#problems td:last-child, #doubts td:last-child')]
             .filter(e => e.textContent.length > 40 && e.clientWidth < 150).length"""
    )
    assert narrow == 0


def test_no_table_is_cut_at_the_edge_of_printed_paper(opened: Open) -> None:
    page = opened("comms", width=711)  # an A4 page between its margins, in CSS pixels
    heads = page.locator("#communication table").first.locator("thead th")
    columns = heads.count()
    page.emulate_media(media="print")
    cut = page.evaluate(
        """() => [...document.querySelectorAll('main table')]
             .filter(t => t.offsetParent && t.getBoundingClientRect().right > innerWidth)
             .map(t => t.caption.textContent)"""
    )
    assert cut == []
    assert sum(heads.nth(i).is_visible() for i in range(columns)) == columns == 6


def test_every_chart_is_visible_on_printed_paper(opened: Open) -> None:
    page = opened("comms")
    draw_everything(page)
    page.emulate_media(media="print")
    charts = page.locator(".chart .plot .main-svg:first-child")
    assert charts.count() >= 3
    heights = [
        (charts.nth(i).bounding_box() or {"height": 0})["height"] for i in range(charts.count())
    ]
    assert min(heights) > 60


def test_what_has_the_focus_is_not_framed_on_paper(opened: Open) -> None:
    page = opened("comms")
    page.locator("[data-steps]").focus()
    page.keyboard.press("ArrowRight")
    style = "getComputedStyle(document.activeElement).outlineStyle"
    assert page.evaluate(style) == "solid"
    page.emulate_media(media="print")
    assert page.evaluate(style) == "none"


@pytest.mark.parametrize("width", [1024, 1400])
def test_the_time_of_a_problem_stands_on_one_line(opened: Open, width: int) -> None:
    """Beside words of the source that are long, too."""
    page = opened("many_failures", width=width)
    cells = page.evaluate(
        """() => [...document.querySelectorAll("#problems td:nth-last-child(2)")].map((cell) => {
             const words = cell.firstChild, time = document.createRange();
             const start = words.data.search(/\\S/);
             time.setStart(words, start);
             time.setEnd(words, start + "2026-11-21 07:00:00".length);
             const tops = new Set([...time.getClientRects()].map(({ top }) => Math.round(top)));
             return [time.toString(), tops.size];
           })"""
    )
    assert cells == [["2026-11-21 07:00:00", 1], ["2026-11-21 07:00:01", 1]]
    box = page.locator("#problems .scroll")
    assert box.evaluate("(box) => box.scrollWidth <= box.clientWidth")


def test_a_legend_does_not_cover_the_title_of_its_chart_on_a_narrow_screen(opened: Open) -> None:
    page = opened("many_failures", width=390)
    draw_everything(page)
    covered = page.evaluate(
        """() => [...document.querySelectorAll(".plot")].filter((plot) => {
             const legend = plot.querySelector(".legend")?.getBoundingClientRect();
             const titles = [...plot.querySelectorAll(".annotation-text-g text")];
             return legend && titles.some((title) => {
               const { left, right, top, bottom } = title.getBoundingClientRect();
               const beside = right <= legend.left || legend.right <= left;
               return !beside && top < legend.bottom - 2 && legend.top < bottom;
             });
           }).length"""
    )
    assert page.locator(".plot .legend").count() > 0
    assert covered == 0


def test_every_rank_of_the_problems_has_its_name_on_paper(opened: Open) -> None:
    page = opened("many_failures", fresh=True)
    draw_everything(page)
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    names = page.locator(".plot-problems .yaxislayer-above text")
    expect(names).to_have_count(12)
