"""Sections of the page in a browser: each one answers to whoever points at it."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, expect

from tests.page.browsing import Open, Written, click_mark, draw_everything


@pytest.mark.parametrize("name", ["seed", "comms"])
def test_the_verdict_is_said_once_with_its_evidence(opened: Open, name: str) -> None:
    page = opened(name)
    title = page.locator("h1").inner_text()
    assert page.locator("main").inner_text().count(title) == 1
    assert page.locator(".verdict .evidence .proof").count() > 0
    others = page.locator("#findings .finding")
    assert others.count() == int(page.locator("nav [href='#findings'] .tally").inner_text())


def test_the_contents_mark_the_section_in_view(opened: Open) -> None:
    page = opened("comms")
    for name in ("communication", "findings", "configuration", "verdict"):
        page.evaluate("name => byId(name).scrollIntoView({behavior: 'instant'})", name)
        expect(page.locator("nav [aria-current]")).to_have_attribute("href", f"#{name}")


def test_words_of_an_icicle_are_left_out_rather_than_shrunk(opened: Open) -> None:
    page = opened("seed")
    draw_everything(page)
    sizes = page.evaluate(
        """() => [...document.querySelectorAll('.plot-phases .slicetext')].map(t => {
             const drawn = t.getBoundingClientRect(), own = t.getBBox();
             const size = parseFloat(getComputedStyle(t).fontSize);
             return own.height ? size * drawn.height / own.height : 0;
           }).filter(size => size > 0)"""
    )
    assert sizes
    assert min(sizes) >= 9.5


def test_a_name_too_long_for_its_phase_is_cut_and_stays_readable(opened: Open) -> None:
    page = opened("huge", 400)
    draw_everything(page)
    said = page.locator(".plot-phases .slicetext").all_text_contents()
    assert any(re.match(r"a backward_\w+…", text) for text in said)
    assert "backward_allreduce" in page.evaluate("plots.get('phases-0').figure.data[0].labels")


def test_names_that_do_not_fit_their_phase_stand_below_the_drawing(opened: Open) -> None:
    page = opened("seed")
    draw_everything(page)
    keys = page.locator("[data-chart='phases-0'] .keys")
    said = keys.locator("li").all_text_contents()
    assert "a step 124 ms · 2.1 %" in said
    drawn = page.locator(".plot-phases .slicetext").all_text_contents()
    assert {line[0] for line in said} <= {text.strip()[:1] for text in drawn}
    page.locator("select[name=phase]").select_option(label="step")
    expect(keys).not_to_contain_text("a step")  # it fills the width now


def test_of_a_drawing_whose_names_fit_nothing_more_is_told(opened: Open) -> None:
    page = opened("huge")
    draw_everything(page)
    expect(page.locator("[data-chart='phases-0'] .keys")).to_be_hidden()


@pytest.mark.parametrize("ends", [(1.5156, 2.3756), (0.41, 0.69), (101.0, 318.0)])
def test_a_low_panel_has_more_than_one_tick(opened: Open, ends: tuple[float, float]) -> None:
    page = opened("seed")
    draw_everything(page)
    page.evaluate(
        "ends => Plotly.relayout(plots.get('steps-0').holder, 'yaxis4.range', ends)", ends
    )
    ticks = page.locator(".plot-steps .yaxislayer-above .y4tick").count()
    page.evaluate("draw('steps-0')")  # the next test finds its own ends again
    assert ticks >= 2


def test_the_way_out_of_a_phase_is_shown_and_escape_takes_it(opened: Open) -> None:
    page = opened("comms")
    draw_everything(page)
    choice = page.locator("select[name=phase]")
    whole = page.get_by_role("button", name="Whole step")
    expect(whole).to_be_hidden()
    choice.select_option(label="backward")
    expect(whole).to_be_visible()
    page.keyboard.press("Escape")
    expect(whole).to_be_hidden()
    choice.select_option(label="backward")
    whole.click()
    expect(whole).to_be_hidden()
    expect(choice).to_have_value("step")


def test_a_mark_of_communication_leads_to_its_row(opened: Open) -> None:
    page = opened("comms")
    draw_everything(page)
    click_mark(page, ".plot-communication")
    expect(page.locator("#communication tr.pointed")).to_have_count(1)


def test_a_mark_on_the_line_of_problems_leads_to_its_line(opened: Open) -> None:
    page = opened("failure")
    draw_everything(page)
    click_mark(page, ".plot-problems")
    expect(page.locator("#drawer h2")).to_contain_text("killed_rank_torchrun_0.19.8.log, line")


def test_the_configuration_is_searched(opened: Open) -> None:
    page = opened("comms")
    page.fill("#search", "overlap_comm")
    shown = page.locator("#settings tbody tr:visible")
    expect(shown.first).to_contain_text("zero_optimization.overlap_comm")
    expect(shown.first).to_contain_text("Advice: true")
    assert all("overlap_comm" in words for words in shown.all_inner_texts())


def test_a_table_cut_by_its_box_says_how_many_rows_follow(opened: Open) -> None:
    page = opened("comms")
    box = page.locator("#configuration .scroll")
    box.scroll_into_view_if_needed()
    expect(box).to_have_attribute("data-more", re.compile(r"^\d+ more rows below$"))
    box.evaluate("e => { e.scrollTop = 1e6 }")
    expect(box).not_to_have_attribute("data-more", re.compile("."))


def test_without_scripts_the_page_says_so_and_shows_nothing_dead(
    browser: Browser, written: Written
) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(written("comms").as_uri())
    said = page.locator(".unscripted")
    assert said.is_visible()
    assert "JavaScript is off" in said.inner_text()
    for dead in (".switch", ".tools", ".holder", "#search", "[data-steps-table]"):
        assert page.locator(dead).count() > 0
        assert page.locator(f"{dead}:visible").count() == 0, dead
    context.close()


def test_pointing_at_a_piece_of_a_step_tells_what_a_rank_did(opened: Open) -> None:
    page = opened("lanes")
    draw_everything(page)
    chart = page.locator("[data-chart='lanes']")
    legend = chart.locator(".legend li").all_text_contents()
    assert [text.strip() for text in legend] == [
        "communication (collectives)", "compute", "optimizer", "data loading", "no timer",
    ]  # fmt: skip
    sizes = page.evaluate(
        """() => [...document.querySelectorAll('.plot-lanes .bartext')]
             .filter(text => text.getAttribute('transform')?.includes('scale'))
             .map(text => text.textContent)"""
    )
    assert sizes == [], "names are left out rather than shrunk"
    chart.scroll_into_view_if_needed()
    box = chart.locator(".plot .nsewdrag").first.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 0.15 * box["width"], box["y"] + 0.25 * box["height"])
    expect(chart.locator(".hoverlayer")).to_contain_text("rank 0 · forward")
