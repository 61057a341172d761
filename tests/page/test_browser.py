"""The page in a real browser, opened from a file as a reader opens it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

Written = Callable[[str], Path]
Open = Callable[..., Page]
Scheme = Literal["light", "dark"]
FIVE = ("seed", "megatron", "failure", "zero3", "huge")


@pytest.fixture
def opened(browser: Browser, written: Written) -> Iterator[Open]:
    """Opens a page by the name of its run; it must not complain or ask for anything."""
    complaints: list[str] = []
    pages: list[Page] = []

    def open_page(name: str, width: int = 1400, scheme: Scheme = "light") -> Page:
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        address = written(name).as_uri()
        page.on("console", lambda said: complaints.append(f"{said.type}: {said.text}"))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "request",
            lambda r: (
                None if r.url == address or r.url.startswith("data:") else complaints.append(r.url)
            ),
        )
        page.goto(address)
        page.wait_for_selector("html[data-ready]")
        pages.append(page)
        return page

    yield open_page
    for page in pages:
        page.close()
    assert complaints == []


def draw_everything(page: Page) -> None:
    page.evaluate("drawAll()")
    page.wait_for_timeout(200)


@pytest.mark.parametrize("name", FIVE)
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


@pytest.mark.parametrize("name", [*FIVE, "comms", "gpus"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_has_no_serious_accessibility_fault(opened: Open, name: str, scheme: str) -> None:
    page = opened(name, scheme=scheme)
    draw_everything(page)
    found = Axe().run(page).response["violations"]
    serious = [
        (v["id"], v["nodes"][0]["html"][:200])
        for v in found
        if v["impact"] in ("serious", "critical")
    ]
    assert serious == []


def test_the_open_drawer_has_no_serious_accessibility_fault(opened: Open) -> None:
    page = opened("comms")
    page.locator(".evidence .proof").first.click()
    found = Axe().run(page).response["violations"]
    assert [v["id"] for v in found if v["impact"] in ("serious", "critical")] == []


def test_communication_bound_steps_are_marked_below_their_columns(opened: Open) -> None:
    page = opened("comms")
    marked = page.evaluate(
        "page.figures['steps-0'].data.find(t => t.meta === 'bound-communication').y"
    )
    said = page.locator("#steps-0 figcaption").inner_text()
    assert sum(1 for share in marked if share) == 3  # whose whole time is told
    assert "3 communication-bound steps" in said


#: What the caption of the chart of steps says of the marks on each of the five pages.
MARKED = {
    "seed": "3 pipeline-bound steps (20 to 40), 76 %.",
    "megatron": "No step is known to be held back by communication.",
    "failure": "16 communication-bound records (1 to 9, 11 to 13, 15 to 17, 19), 41 % to 79 %.",
    "zero3": "No step is known to be held back by communication.",
    "huge": "49,699 communication-bound steps in 9,511 stretches, 35 % to 96 %.",
}


@pytest.mark.parametrize("name", FIVE)
def test_steps_that_communication_holds_back_are_told_and_marked(opened: Open, name: str) -> None:
    page = opened(name)
    said = page.locator("#steps-0 figcaption").inner_text().replace("\u00a0", " ")
    assert MARKED[name] in said
    marks = "page.figures['steps-0'].data.filter(t => t.yaxis === 'y2').length"
    assert bool(page.evaluate(marks)) == (not said.startswith("No step"))


def test_a_mark_is_as_high_as_communication_takes_of_its_step(opened: Open) -> None:
    page = opened("comms")
    heights = page.evaluate(
        """() => {
             const plot = document.querySelector('.plot-steps');
             const nth = plot.data.filter(t => t.type === 'bar').findIndex(t => t.yaxis === 'y2');
             const bars = plot.querySelectorAll('.barlayer .trace')[nth].querySelectorAll('.point');
             return [...bars].map(bar => bar.getBoundingClientRect().height);
           }"""
    )
    low, none, high = heights[19], heights[15], heights[29]  # 37 %, not known, 60 %
    assert none == 0
    assert high / low == pytest.approx(0.6048 / 0.3708, abs=0.15)


def test_the_tooltip_of_a_step_says_its_classes_and_how_far_it_is_held_back(opened: Open) -> None:
    page = opened("comms")
    page.locator(".plot-steps").scroll_into_view_if_needed()
    page.wait_for_timeout(200)
    point_at(page, 30)
    said = page.locator(".plot-steps .hoverlayer .legendtext").all_text_contents()
    assert "step 30: 19.7 ms" in said
    assert "communication (collectives) : 14.0 ms" in said
    assert "communication-bound : 60 %" in said
    point_at(page, 16)  # its whole time is not told
    said = page.locator(".plot-steps .hoverlayer .legendtext").all_text_contents()
    assert "step 16: 17.5 ms" in said
    assert not [words for words in said if "bound" in words]


def point_at(page: Page, step: int) -> None:
    """Moves the mouse over the column of a step."""
    box = page.locator(".plot-steps .nsewdrag").first.bounding_box()
    assert box
    low, high = page.evaluate("document.querySelector('.plot-steps')._fullLayout.xaxis.range")
    page.mouse.move(
        box["x"] + box["width"] * (step - low) / (high - low), box["y"] + 0.9 * box["height"]
    )
    page.wait_for_timeout(250)


#: A step of each of the five pages, and what a line of it says.
CLICKED = {
    "seed": (30, "steps: 30 loss:"),
    "megatron": (7000, "iteration     7000/"),
    "failure": (16, "fwd:"),
    "zero3": (20, "CurrSamplesPerSec"),
    "huge": (60_000, "sed -n"),  # its log was never written: the way to its lines is shown
}


@pytest.mark.parametrize("name", FIVE)
def test_a_click_leads_to_the_lines_of_the_step(opened: Open, name: str) -> None:
    page = opened(name)
    step, words = CLICKED[name]
    click_column(page, step)
    drawer = page.locator("#drawer-body")
    expect(drawer).to_contain_text(words)
    expect(page.locator("#drawer h2")).to_have_text(re.compile(r"^(Step|Record) [\d,]+$"))


@pytest.mark.parametrize("name", FIVE)
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


def test_a_line_whose_timers_sum_over_steps_says_so(opened: Open) -> None:
    page = opened("seed")
    page.locator(".evidence .proof").first.click()
    expect(page.locator("#drawer-body")).to_contain_text("sums over 10 steps")
    page.keyboard.press("Escape")
    page.locator(".headline .proof").click()
    expect(page.locator("#drawer-body")).to_contain_text("sums over 10 steps")
    page = opened("comms")
    page.locator(".evidence .proof").first.click()
    expect(page.locator("#drawer-body")).not_to_contain_text("sums over")


def test_a_step_shows_its_whole_time_beside_the_sum_of_its_timers(opened: Open) -> None:
    page = opened("comms")
    page.fill("form.tools input[name=step]", "30")
    page.keyboard.press("Enter")
    expect(page.locator("#drawer .pairs")).to_contain_text("sum of its timers19.7 ms")
    expect(page.locator("#drawer .pairs")).to_contain_text("whole step23.1 ms")


def test_a_range_is_of_whole_steps_where_enough_are_told_and_else_says_so(opened: Open) -> None:
    page = opened("comms")
    range_, root = page.locator("[data-range]"), "plots.get('phases-0').figure.data[0].text[0]"
    brush(page, 0.3, 0.6)
    expect(range_).to_contain_text("a step is what its timers sum to")
    page.click("form.tools button[name=all]")
    assert page.evaluate(root).startswith("23.2 ms")
    brush(page, 0.2, 0.999)
    expect(range_).to_contain_text("Mean of 3 steps of")
    assert page.evaluate(root).startswith("23.2 ms")


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


def test_a_click_on_a_column_opens_its_step_with_phases_and_log_lines(opened: Open) -> None:
    page = opened("comms")
    page.locator(".plot-steps").scroll_into_view_if_needed()
    page.wait_for_timeout(200)
    box = page.locator(".plot-steps .nsewdrag").first.bounding_box()
    assert box
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + box["height"] * 0.8)
    page.mouse.click(box["x"] + box["width"] * 0.5, box["y"] + box["height"] * 0.8)
    drawer = page.locator("#drawer")
    expect(drawer.locator("h2")).to_contain_text("Step 1")
    expect(drawer.locator("table")).to_contain_text("backward_allreduce")
    expect(drawer.locator(".lines")).to_contain_text("bwd_allreduce:")


def click_column(page: Page, step: int) -> None:
    """Clicks the chart of steps where that step stands."""
    page.locator(".plot-steps").scroll_into_view_if_needed()
    page.wait_for_timeout(200)
    box = page.locator(".plot-steps .nsewdrag").first.bounding_box()
    assert box
    low, high = page.evaluate("document.querySelector('.plot-steps')._fullLayout.xaxis.range")
    x = box["x"] + box["width"] * (step - low) / (high - low)
    page.mouse.move(x, box["y"] + box["height"] * 0.9)
    page.wait_for_timeout(150)
    page.mouse.click(x, box["y"] + box["height"] * 0.9)


def test_a_click_on_a_column_of_many_steps_opens_the_slowest_of_them(opened: Open) -> None:
    page = opened("megatron")
    click_column(page, 7000)
    expect(page.locator("#drawer h2")).to_have_text("Step 7,000")
    page.keyboard.press("Escape")
    click_column(page, 3000)
    expect(page.locator("#drawer h2")).not_to_have_text("Step 7,000")
    opened_ = int(page.locator("#drawer h2").inner_text().removeprefix("Step ").replace(",", ""))
    assert abs(opened_ - 3000) < 60
    assert opened_ % 17 == 16  # the slowest of any 17 in a row


def test_the_tooltip_of_a_column_names_all_its_steps(opened: Open) -> None:
    page = opened("megatron")
    page.locator(".plot-steps").scroll_into_view_if_needed()
    page.wait_for_timeout(200)
    box = page.locator(".plot-steps .nsewdrag").first.bounding_box()
    assert box
    page.mouse.move(box["x"] + box["width"] * 0.4, box["y"] + box["height"] * 0.9)
    first = page.locator(".plot-steps .hoverlayer .legendtext").first
    expect(first).to_contain_text(", mean: 1.5")
    expect(first).to_contain_text("steps 4,")


def test_a_step_tells_what_holds_it_back_even_if_that_is_unknown(opened: Open) -> None:
    page = opened("megatron")
    page.fill("form.tools input[name=step]", "77")
    page.keyboard.press("Enter")
    expect(page.locator("#drawer .pairs")).to_contain_text("held back byunknown")
    page = opened("comms")
    page.fill("form.tools input[name=step]", "20")
    page.keyboard.press("Enter")
    expect(page.locator("#drawer .pairs")).to_contain_text("held back bycommunication")


def test_a_loss_that_is_no_number_breaks_the_line_and_is_told(opened: Open) -> None:
    page = opened("broken_loss")
    told = "document.querySelector('.plot-steps').data.find(t => t.meta === 'loss').y"
    page.locator(".plot-steps").scroll_into_view_if_needed()
    assert page.evaluate(told).count(None) == 1
    for number in ("20", "21"):
        page.fill("form.tools input[name=step]", number)
        page.keyboard.press("Enter")
        word = {"20": "nan", "21": "inf"}[number]
        expect(page.locator("#drawer .pairs")).to_contain_text(f"loss{word}")
    page.keyboard.press("Escape")
    for _ in range(2):
        page.click("form.tools button[name=in]")
    assert None in page.evaluate(told)


def test_names_that_turn_the_writing_are_shown_as_escapes_in_the_drawer(opened: Open) -> None:
    page = opened("turned")
    page.fill("form.tools input[name=step]", "2")
    page.keyboard.press("Enter")
    said = page.locator("#drawer").inner_text()
    assert "\\u202egol" in said
    assert "\u202e" not in said


def test_a_step_is_found_by_its_number_among_a_hundred_thousand(opened: Open) -> None:
    page = opened("huge")
    page.fill("form.tools input[name=step]", "77,777")
    page.keyboard.press("Enter")
    expect(page.locator("#drawer h2")).to_have_text("Step 77,777")
    expect(page.locator("#drawer table")).to_contain_text("backward_allreduce")


def test_a_step_the_source_skips_leads_to_the_nearest_one(opened: Open) -> None:
    page = opened("seed")
    page.fill("form.tools input[name=step]", "31")
    page.keyboard.press("Enter")
    expect(page.locator("#drawer h2")).to_have_text("Step 30")
    expect(page.locator("form.tools output")).to_contain_text("Step 31 is not in the source")


def test_a_number_leads_to_its_line_in_context(opened: Open) -> None:
    page = opened("seed")
    proof = page.locator(".evidence .proof").first
    line = int(proof.get_attribute("data-line") or 0)
    proof.click()
    hit = page.locator("#drawer .lines .hit")
    assert hit.locator("span").first.inner_text() == str(line)
    told = (
        (Path(__file__).parents[2] / "sample_logs/neox_pipeline_2023.log").read_text().split("\n")
    )
    assert hit.locator("span").last.inner_text() == told[line - 1]
    assert page.locator("#drawer .lines li").count() >= 4


def test_a_mark_on_the_line_of_problems_leads_to_its_line(opened: Open) -> None:
    page = opened("failure")
    draw_everything(page)
    page.locator(".plot-problems .point").last.scroll_into_view_if_needed()
    box = page.locator(".plot-problems .point").last.bounding_box()
    assert box
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    expect(page.locator("#drawer h2")).to_contain_text("killed_rank_torchrun_0.19.8.log, line")


def test_the_drawer_is_closed_by_escape_and_gives_the_focus_back(opened: Open) -> None:
    page = opened("seed")
    proof = page.locator(".evidence .proof").first
    proof.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#drawer")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#drawer")).to_be_hidden()
    expect(proof).to_be_focused()


def test_the_chart_of_steps_is_moved_by_the_keyboard(opened: Open) -> None:
    page = opened("comms")
    page.locator("[data-steps]").focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    says = page.locator("form.tools output")
    expect(says).to_contain_text("Step 2:")
    page.keyboard.press("+")
    expect(page.locator("[data-range]")).to_contain_text("Mean of steps 1 to")
    page.keyboard.press("0")
    expect(says).to_contain_text("Steps 1 to 30.")
    expect(page.locator("[data-range]")).to_contain_text("Zoom the chart of steps")
    page.keyboard.press("Enter")
    expect(page.locator("#drawer h2")).to_have_text("Step 2")


def test_zooming_in_shows_the_steps_themselves(opened: Open) -> None:
    page = opened("huge")
    page.locator("[data-steps]").focus()
    page.fill("form.tools input[name=step]", "778")
    page.keyboard.press("Enter")
    expect(page.locator("#drawer")).to_be_visible()
    for _ in range(12):
        page.click("form.tools button[name=in]")
    labels = page.evaluate("document.querySelector('.plot-steps').data[0].customdata")
    assert "step 778" in labels
    assert len(labels) < 100


def test_a_range_changes_the_icicle_and_its_table(opened: Open) -> None:
    page = opened("huge")
    cell = "table[data-table='phases-0'] tr:has-text('backward_allreduce') td:nth-of-type(2)"
    whole = page.locator(cell).text_content()
    page.fill("form.tools input[name=step]", "99,000")
    page.keyboard.press("Enter")
    for _ in range(3):
        page.click("form.tools button[name=in]")
    assert page.locator(cell).text_content() != whole  # the second half is slower
    page.click("form.tools button[name=all]")
    assert page.locator(cell).text_content() == whole


@pytest.mark.parametrize("name", FIVE)
def test_the_theme_is_switched_and_the_charts_with_it(opened: Open, name: str) -> None:
    page = opened(name)
    paper = "getComputedStyle(document.body).backgroundColor"
    ink = "document.querySelector('.plot-steps')._fullLayout.font.color"
    light = page.evaluate(paper), page.evaluate(ink)
    page.get_by_role("button", name="Dark").click()
    page.wait_for_timeout(200)
    dark = page.evaluate(paper), page.evaluate(ink)
    assert light == ("rgb(255, 255, 255)", "#1a1e24")
    assert dark == ("rgb(21, 24, 28)", "#e6e9ed")


def test_the_page_follows_the_dark_of_the_system(opened: Open) -> None:
    page = opened("seed", scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(21, 24, 28)"


@pytest.mark.parametrize("name", FIVE)
def test_the_page_prints_with_every_chart_in_light_colours(
    opened: Open, tmp_path: Path, name: str
) -> None:
    page = opened(name, scheme="dark")
    page.evaluate(
        "addEventListener('beforeprint', () => { seen = [...plots.values()].every(p => p.drawn) })"
    )
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    file = tmp_path / "page.pdf"
    page.pdf(path=file)
    assert file.read_bytes().startswith(b"%PDF")
    assert file.stat().st_size > 20_000
    assert page.evaluate("seen") is True


@pytest.mark.parametrize("name", [*FIVE, "comms", "gpus", "two_launches"])
def test_a_narrow_screen_never_scrolls_sideways(opened: Open, name: str) -> None:
    page = opened(name, width=400)
    draw_everything(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 400


def test_the_configuration_is_searched(opened: Open) -> None:
    page = opened("comms")
    page.fill("#search", "overlap_comm")
    shown = page.locator("#settings tbody tr:visible")
    expect(shown.first).to_contain_text("zero_optimization.overlap_comm")
    expect(shown.first).to_contain_text("Advice: true")
    assert all("overlap_comm" in words for words in shown.all_inner_texts())


def test_hostile_words_of_a_log_stay_words(opened: Open) -> None:
    page = opened("hostile")
    draw_everything(page)
    page.locator("#problems .proof").first.click()
    expect(page.locator("#drawer .hit")).to_contain_text("<img src=x onerror=window.hit=1>")
    page.fill("form.tools input[name=step]", "9")
    page.keyboard.press("Enter")
    expect(page.locator("#drawer table")).to_contain_text("</script>")
    assert page.evaluate("window.hit") is None
    assert (
        page.locator("main img, aside img, main script, aside script, main b:text('bold')").count()
        == 0
    )
    assert "</script>" in page.locator(".plot-phases").first.evaluate("e => e.textContent")
    assert "{{7*7}}" in page.locator("#problems").inner_text()
    assert page.locator("#configuration").inner_text().count("{{7*7}}") >= 2


def test_a_number_that_many_lines_give_leads_to_those_lines(opened: Open) -> None:
    page = opened("comms")
    page.locator(".headline .proof").click()
    items = page.locator("#drawer .among li")
    assert 3 <= items.count() <= 36
    expect(page.locator("#drawer-body > p").first).to_contain_text("numbers of the source")
    expect(items.first).to_contain_text("bwd_allreduce:")
    line = items.last.locator("button").inner_text()
    items.last.locator("button").click()
    expect(page.locator("#drawer h2")).to_contain_text(f"line {line}")
    expect(page.locator("#drawer .hit")).to_contain_text("bwd_allreduce:")


def test_a_number_of_a_range_leads_to_the_steps_of_that_range(opened: Open) -> None:
    page = opened("comms")
    page.locator("[data-steps]").focus()
    page.keyboard.press("Home")
    page.keyboard.press("+")
    page.locator("[data-chart=phases-0] summary").click()
    page.locator("table[data-table=phases-0] .proof").first.click()
    expect(page.locator("#drawer")).to_contain_text("Mean of")
    expect(page.locator("#drawer h3").first).to_contain_text("Step ")
    expect(page.locator("#drawer .lines").first).to_contain_text("fwd")
    page.keyboard.press("Escape")
    page.click("form.tools button[name=all]")
    page.locator("table[data-table=phases-0] .proof").first.click()
    expect(page.locator("#drawer .among li").first).to_contain_text("first")


def test_a_key_of_the_configuration_leads_to_the_line_that_sets_it(opened: Open) -> None:
    page = opened("comms")
    page.fill("#search", "zero_optimization.stage")
    page.locator("#settings tbody tr:visible .proof").first.click()
    expect(page.locator("#drawer .hit")).to_contain_text('"stage": 1')


def test_a_double_click_shows_the_whole_run_again(opened: Open) -> None:
    page = opened("comms")
    page.locator("[data-steps]").focus()
    page.keyboard.press("Home")
    for _ in range(2):
        page.click("form.tools button[name=in]")
    expect(page.locator("form.tools output")).not_to_contain_text("1 to 30")
    page.locator(".plot-steps").scroll_into_view_if_needed()
    page.wait_for_timeout(200)
    box = page.locator(".plot-steps .nsewdrag").first.bounding_box()
    assert box
    page.mouse.dblclick(box["x"] + box["width"] / 2, box["y"] + 20)
    expect(page.locator("form.tools output")).to_contain_text("Steps 1 to 30.")


def test_a_step_of_an_earlier_launch_is_found_by_number(opened: Open) -> None:
    page = opened("two_launches")
    choice = page.locator("form.tools select[name=launch]")
    expect(choice).to_be_visible()
    page.fill("form.tools input[name=step]", "3")
    page.keyboard.press("Enter")
    expect(page.locator("#drawer h2")).to_have_text("Step 3, launch 2")
    page.keyboard.press("Escape")
    choice.select_option(index=0)
    page.fill("form.tools input[name=step]", "3")
    page.click("form.tools button[name=find]")
    expect(page.locator("#drawer h2")).to_have_text("Step 3, launch 1")
    expect(page.locator("#verdict")).to_contain_text("Means are of launch 2 of 2")


def test_a_step_that_several_files_tell_shows_the_lines_of_all(opened: Open) -> None:
    page = opened("csv")
    page.fill("form.tools input[name=step]", "7")
    page.keyboard.press("Enter")
    said = page.locator("#drawer-body").inner_text()
    for name in ("train_loss.csv", "lr.csv", "elapsed_time_ms_forward.csv"):
        assert f"Train_Samples_{name}" in said


def test_a_row_of_a_recording_is_not_said_to_be_a_line_of_text(opened: Open) -> None:
    page = opened("recorded")
    page.fill("form.tools input[name=step]", "7")
    page.keyboard.press("Enter")
    expect(page.locator("#drawer-body")).to_contain_text("Row 7 of a recording")
    expect(page.locator("#drawer-body code")).to_have_text("dsprof export 'runs/a' -o rows.csv")


def test_a_table_that_is_too_wide_says_so_on_a_narrow_screen(opened: Open) -> None:
    page = opened("comms", width=400)
    wide = page.locator("#communication .scroll").first
    expect(wide).to_have_class(re.compile("wide"))
    assert "scroll sideways" in wide.evaluate("e => getComputedStyle(e, '::before').content")


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


def violations(page: Page) -> list[tuple[str, str]]:
    found = Axe().run(page).response["violations"]
    return [(v["id"], v["nodes"][0]["html"][:120]) for v in found if v["impact"] != "minor"]


@pytest.mark.parametrize("name", ["seed", "comms", "failure"])
def test_landmarks_have_names_of_their_own_and_heads_have_words(opened: Open, name: str) -> None:
    assert violations(opened(name)) == []


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


def test_a_step_out_of_view_is_not_described(opened: Open) -> None:
    page = opened("comms")
    page.locator("[data-steps]").focus()
    page.keyboard.press("End")
    says = page.locator("form.tools output").first
    expect(says).to_contain_text("Step 30:")
    brush(page, 0.3, 0.6)
    expect(says).not_to_contain_text("1 to 30")
    expect(says).not_to_contain_text("Step 30")


def brush(page: Page, start: float, end: float) -> None:
    """Drags across the chart of steps, from one share of its width to another."""
    page.locator(".plot-steps").scroll_into_view_if_needed()
    page.wait_for_timeout(200)
    box = page.locator(".plot-steps .nsewdrag").first.bounding_box()
    assert box
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + start * box["width"], y)
    page.mouse.down()
    page.mouse.move(box["x"] + end * box["width"], y, steps=5)
    page.mouse.up()
    page.wait_for_timeout(200)


def test_a_brush_shows_the_steps_under_it_and_their_phases(opened: Open) -> None:
    page = opened("comms")
    brush(page, 0.3, 0.6)
    expect(page.locator("form.tools output").first).to_contain_text("Steps 10 to 18.")
    expect(page.locator("[data-range]")).to_contain_text("Mean of steps 10 to 18")
    drawn = page.locator(".plot-steps .barlayer .trace").first.locator(".point path")
    assert sum(1 for i in range(drawn.count()) if drawn.nth(i).get_attribute("d") != "M0,0Z") == 9


def test_control_characters_are_shown_as_escapes(opened: Open) -> None:
    page = opened("seed")
    assert page.evaluate("visible('a\\x07b\\x1b[31m\\tc')") == "a\\x07b\\x1b[31m\tc"


def test_tab_stays_in_the_open_drawer(opened: Open) -> None:
    page = opened("seed")
    page.locator(".evidence .proof").first.click()
    for _ in range(9):
        page.keyboard.press("Tab")
        assert page.evaluate("byId('drawer').contains(document.activeElement)")


def test_a_table_cut_by_its_box_says_how_many_rows_follow(opened: Open) -> None:
    page = opened("comms")
    box = page.locator("#configuration .scroll")
    box.scroll_into_view_if_needed()
    expect(box).to_have_attribute("data-more", re.compile(r"^\d+ more rows below$"))
    box.evaluate("e => { e.scrollTop = 1e6 }")
    expect(box).not_to_have_attribute("data-more", re.compile("."))


@pytest.mark.parametrize("name", ["comms", "failure"])
def test_keys_and_words_keep_whole_on_a_narrow_screen(opened: Open, name: str) -> None:
    page = opened(name, width=400)
    narrow = page.evaluate(
        """() => [...document.querySelectorAll('#problems td:last-child, #doubts td:last-child')]
             .filter(e => e.textContent.length > 40 && e.clientWidth < 150).length"""
    )
    assert narrow == 0


def test_the_contents_mark_the_section_in_view(opened: Open) -> None:
    page = opened("comms")
    for name in ("communication", "findings", "configuration", "verdict"):
        page.evaluate("name => byId(name).scrollIntoView({behavior: 'instant'})", name)
        expect(page.locator("nav [aria-current]")).to_have_attribute("href", f"#{name}")


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
    mark = page.locator(".plot-communication .point").last
    mark.scroll_into_view_if_needed()
    box = mark.bounding_box()
    assert box
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    expect(page.locator("#communication tr.pointed")).to_have_count(1)


def test_evidence_of_a_recording_opens_its_row_in_the_drawer(opened: Open) -> None:
    page = opened("recorded")
    page.locator(".verdict .evidence .proof").first.click()
    drawer = page.locator("#drawer")
    expect(drawer).to_contain_text(re.compile(r"Row \d+ of a recording, which holds no text"))
    expect(drawer.locator("code")).to_have_text("dsprof export 'runs/a' -o rows.csv")


def test_the_theme_is_switched_while_the_drawer_is_open(opened: Open) -> None:
    page = opened("comms")
    page.locator(".evidence .proof").first.click()
    expect(page.locator("#drawer")).to_be_visible()
    page.get_by_role("button", name="Dark", exact=True).click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    expect(page.locator("#drawer")).to_be_visible()


@pytest.mark.parametrize("name", ["seed", "comms"])
def test_the_verdict_is_said_once_with_its_evidence(opened: Open, name: str) -> None:
    page = opened(name)
    title = page.locator("h1").inner_text()
    assert page.locator("main").inner_text().count(title) == 1
    assert page.locator(".verdict .evidence .proof").count() > 0
    others = page.locator("#findings .finding")
    assert others.count() == int(page.locator("nav [href='#findings'] .tally").inner_text())


@pytest.mark.parametrize("width", [320, 400, 711, 1400])
def test_a_long_verdict_wraps_in_its_place_on_screens_and_on_paper(
    opened: Open, width: int
) -> None:
    page = opened("seed", width=width)
    for media in ("screen", "print"):
        page.emulate_media(media=media)
        box = page.locator("h1").bounding_box()
        assert box
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
        assert page.evaluate("document.querySelector('h1').scrollWidth") <= box["width"] + 1
        assert box["height"] > 30  # some lines, of which none is cut
        assert page.evaluate("getComputedStyle(document.querySelector('h1')).overflow") == "visible"


def test_what_has_the_focus_is_not_framed_on_paper(opened: Open) -> None:
    page = opened("comms")
    page.locator("[data-steps]").focus()
    page.keyboard.press("ArrowRight")
    style = "getComputedStyle(document.activeElement).outlineStyle"
    assert page.evaluate(style) == "solid"
    page.emulate_media(media="print")
    assert page.evaluate(style) == "none"


@pytest.mark.parametrize(("name", "most"), [("seed", 4), ("failure", 4), ("zero3", 7)])
def test_a_short_run_is_printed_on_few_pages(
    opened: Open, tmp_path: Path, name: str, most: int
) -> None:
    page = opened(name)
    file = tmp_path / "page.pdf"
    page.pdf(path=file, format="A4")
    assert len(re.findall(rb"/Type\s*/Page\b", file.read_bytes())) <= most


def test_a_step_says_that_it_follows_a_validation(opened: Open) -> None:
    page = opened("validated")
    page.fill("form.tools input[name=step]", "101")
    page.keyboard.press("Enter")
    expect(page.locator("#drawer .pairs")).to_contain_text("follows")
    expect(page.locator("#drawer .pairs")).to_contain_text("a validation")
    page.get_by_role("button", name="Next").click()
    expect(page.locator("#drawer .pairs")).not_to_contain_text("a validation")
