"""The chart of steps in a browser: what it shows, and its zoom by mouse and keyboard."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.page.browsing import (
    Open,
    brush,
    click_column,
    draw_everything,
    find_step,
    point_at,
    step_says,
)


def test_a_chart_out_of_view_is_not_drawn_before_it_is_wanted(opened: Open) -> None:
    page = opened("comms", fresh=True)
    drawn = "[...plots.values()].filter((plot) => plot.drawn).length"
    assert page.evaluate(drawn) == 0
    click_column(page, 20)
    expect(page.locator("#drawer h2")).to_have_text("Step 20")
    assert 0 < page.evaluate(drawn) < page.evaluate("plots.size")


def test_communication_bound_steps_are_marked_below_their_columns(opened: Open) -> None:
    page = opened("comms")
    marked = page.evaluate(
        "page.figures['steps-0'].data.find(t => t.meta === 'bound-communication').y"
    )
    said = page.locator("#steps-0 figcaption").inner_text()
    assert sum(1 for share in marked if share) == 3  # whose whole time is known
    assert "3 communication-bound steps" in said


def test_a_mark_is_as_high_as_communication_takes_of_its_step(opened: Open) -> None:
    page = opened("comms")
    draw_everything(page)
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
    point_at(page, 30)
    said = page.locator(".plot-steps .hoverlayer .legendtext").all_text_contents()
    assert "step 30: 19.7 ms" in said
    assert "communication (collectives) : 14.2 ms" in said
    assert "communication-bound : 61 %" in said
    point_at(page, 16)  # its whole time is not told
    said = page.locator(".plot-steps .hoverlayer .legendtext").all_text_contents()
    assert "step 16: 17.5 ms" in said
    assert not [words for words in said if "bound" in words]


def test_the_tooltip_of_a_column_names_all_its_steps(opened: Open) -> None:
    page = opened("megatron")
    point_at(page, 4800)
    first = page.locator(".plot-steps .hoverlayer .legendtext").first
    expect(first).to_contain_text(", mean: 1.5")
    expect(first).to_contain_text("steps 4,")


def test_a_click_on_a_column_opens_its_step_with_phases_and_log_lines(opened: Open) -> None:
    page = opened("comms")
    click_column(page, 15)
    drawer = page.locator("#drawer")
    expect(drawer.locator("h2")).to_have_text("Step 15")
    expect(drawer.locator("table")).to_contain_text("backward_allreduce")
    expect(drawer.locator(".lines")).to_contain_text("bwd_allreduce:")


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


def test_a_loss_that_is_no_number_breaks_the_line_and_is_told(opened: Open) -> None:
    page = opened("broken_loss")
    told = "document.querySelector('.plot-steps').data.find(t => t.meta === 'loss').y"
    draw_everything(page)
    assert page.evaluate(told).count(None) == 1
    step_says(page, "20", "lossnan")
    step_says(page, "21", "lossinf")
    page.keyboard.press("Escape")
    for _ in range(2):
        page.click("form.tools button[name=in]")
    assert None in page.evaluate(told)


def test_a_step_is_found_by_its_number_among_a_hundred_thousand(opened: Open) -> None:
    page = opened("huge")
    find_step(page, "77,777")
    expect(page.locator("#drawer h2")).to_have_text("Step 77,777")
    expect(page.locator("#drawer table")).to_contain_text("backward_allreduce")


def test_a_step_the_source_skips_leads_to_the_nearest_one(opened: Open) -> None:
    page = opened("seed")
    find_step(page, "31")
    expect(page.locator("#drawer h2")).to_have_text("Step 30")
    expect(page.locator("form.tools output")).to_contain_text("Step 31 is not in the source")


def test_a_step_is_found_as_people_write_it_and_words_alone_ask_for_a_number(opened: Open) -> None:
    page = opened("seed")
    find_step(page, "step 20")
    expect(page.locator("#drawer h2")).to_have_text("Step 20")
    page.keyboard.press("Escape")
    find_step(page, "#30")
    expect(page.locator("#drawer h2")).to_have_text("Step 30")
    page.keyboard.press("Escape")
    find_step(page, "abc")
    expect(page.locator("form.tools output")).to_contain_text("Type the number of a")
    expect(page.locator("#drawer")).to_be_hidden()


def test_a_step_of_an_earlier_launch_is_found_by_number(opened: Open) -> None:
    page = opened("two_launches")
    choice = page.locator("form.tools select[name=launch]")
    expect(choice).to_be_visible()
    find_step(page, "3")
    expect(page.locator("#drawer h2")).to_have_text("Step 3, launch 2")
    page.keyboard.press("Escape")
    choice.select_option(index=0)
    page.fill("form.tools input[name=step]", "3")
    page.click("form.tools button[name=find]")
    expect(page.locator("#drawer h2")).to_have_text("Step 3, launch 1")
    expect(page.locator("#verdict")).to_contain_text("Means are of launch 2 of 2")


def test_a_launch_that_failed_before_its_first_step_counts_wherever_launches_do(
    opened: Open,
) -> None:
    page = opened("failed_first")
    expect(page.locator("#verdict .facts")).to_contain_text("3, one after another")
    expect(page.locator("#verdict")).to_contain_text("Means are of launch 3 of 3")
    choice = page.locator("form.tools select[name=launch] option")
    expect(choice).to_have_text(["2, steps 1 to 5", "3, steps 1 to 12"])
    find_step(page, "3")
    expect(page.locator("#drawer h2")).to_have_text("Step 3, launch 3")


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
    find_step(page, "778")
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
    find_step(page, "99,000")
    for _ in range(3):
        page.click("form.tools button[name=in]")
    assert page.locator(cell).text_content() != whole  # the second half is slower
    page.click("form.tools button[name=all]")
    assert page.locator(cell).text_content() == whole


def test_a_range_is_of_whole_steps_where_enough_are_told_and_else_says_so(opened: Open) -> None:
    page = opened("comms")
    range_, root = page.locator("[data-range]"), "plots.get('phases-0').figure.data[0].text[0]"
    brush(page, 0.36, 0.6)
    expect(range_).to_contain_text("a step is what its timers sum to")
    page.click("form.tools button[name=all]")
    brush(page, 0.3, 0.6)
    expect(range_).to_contain_text("Mean of 1 step of 10 to 18")
    expect(range_).to_contain_text("the one whose whole time is known")
    page.click("form.tools button[name=all]")
    assert page.evaluate(root).startswith("23.2 ms")
    brush(page, 0.2, 0.999)
    expect(range_).to_contain_text("Mean of 3 steps of")
    assert page.evaluate(root).startswith("23.2 ms")


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


def test_a_double_click_shows_the_whole_run_again(opened: Open) -> None:
    page = opened("comms")
    page.locator("[data-steps]").focus()
    page.keyboard.press("Home")
    for _ in range(2):
        page.click("form.tools button[name=in]")
    expect(page.locator("form.tools output")).not_to_contain_text("1 to 30")
    page.mouse.dblclick(*point_at(page, 1))
    expect(page.locator("form.tools output")).to_contain_text("Steps 1 to 30.")


def test_a_brush_shows_the_steps_under_it_and_their_phases(opened: Open) -> None:
    page = opened("comms")
    brush(page, 0.3, 0.6)
    expect(page.locator("form.tools output").first).to_contain_text("Steps 10 to 18.")
    expect(page.locator("[data-range]")).to_contain_text("of 10 to 18")
    whole = page.locator("#phases-0 .lead")  # one mean is told of at a time
    expect(whole).to_be_hidden()
    page.click("form.tools button[name=all]")
    expect(whole).to_be_visible()
    brush(page, 0.3, 0.6)
    drawn = page.locator(".plot-steps .barlayer .trace").first.locator(".point path")
    assert sum(1 for i in range(drawn.count()) if drawn.nth(i).get_attribute("d") != "M0,0Z") == 9


def test_a_step_out_of_view_is_not_described(opened: Open) -> None:
    page = opened("comms")
    page.locator("[data-steps]").focus()
    page.keyboard.press("End")
    says = page.locator("form.tools output").first
    expect(says).to_contain_text("Step 30:")
    brush(page, 0.3, 0.6)
    expect(says).not_to_contain_text("1 to 30")
    expect(says).not_to_contain_text("Step 30")


def test_a_step_is_told_by_its_times_before_what_it_trains(opened: Open) -> None:
    """In the table of steps and in the drawer: they say why it is slow."""
    page = opened("comms")
    page.locator("[data-steps-table] summary").click()
    expect(page.locator("[data-steps-table] thead th").first).to_have_text("step")
    head = page.locator("[data-steps-table] thead th").all_text_contents()
    find_step(page, "20")
    expect(page.locator("#drawer h2")).to_have_text("Step 20")
    drawer = page.locator("#drawer .pairs dt").all_text_contents()
    for told in (head, drawer):
        assert told.index("compute") < min(told.index("samples/s"), told.index("learning rate"))
        assert len(told) == len(set(told))


def test_the_drawer_tells_what_of_a_step_no_timer_covers(opened: Open) -> None:
    page = opened("comms")
    find_step(page, "20")
    expect(page.locator("#drawer h2")).to_have_text("Step 20")
    rows = page.locator("#drawer table tbody tr").all_text_contents()
    assert rows[-1].startswith("no timer")


def test_the_table_of_steps_fits_a_desktop(opened: Open) -> None:
    for name in ("comms", "seed", "recorded", "megatron"):
        page = opened(name, 1400)
        page.locator("[data-steps-table] summary").click()
        box = page.locator("[data-steps-table] .scroll")
        expect(box.locator("tbody tr").first).to_be_visible()
        assert box.evaluate("box => box.scrollWidth <= box.clientWidth"), name


def test_what_is_the_same_in_all_steps_is_no_column_of_their_table(opened: Open) -> None:
    page = opened("megatron")
    page.locator("[data-steps-table] summary").click()
    table = page.locator("[data-steps-table] table")
    expect(table.locator("caption")).to_contain_text("loss scale 65,536 in all of them")
    assert "loss scale" not in table.locator("th").all_text_contents()
