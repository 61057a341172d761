"""The drawer in a browser: a number leads to the lines that prove it, a step to its own."""

from __future__ import annotations

import re
from pathlib import Path

from playwright.sync_api import expect

from tests.page.browsing import Open, draw_everything, find_step, step_says, violations


def test_the_open_drawer_has_no_accessibility_fault(opened: Open) -> None:
    page = opened("seed")
    page.locator(".evidence .proof").first.click()
    assert violations(page) == []


def test_the_drawer_is_closed_by_escape_and_gives_the_focus_back(opened: Open) -> None:
    page = opened("seed")
    proof = page.locator(".evidence .proof").first
    proof.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#drawer")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#drawer")).to_be_hidden()
    expect(proof).to_be_focused()


def test_tab_stays_in_the_open_drawer(opened: Open) -> None:
    page = opened("seed")
    page.locator(".evidence .proof").first.click()
    for _ in range(9):
        page.keyboard.press("Tab")
        assert page.evaluate("byId('drawer').contains(document.activeElement)")


def test_the_theme_is_switched_while_the_drawer_is_open(opened: Open) -> None:
    page = opened("comms")
    page.locator(".evidence .proof").first.click()
    expect(page.locator("#drawer")).to_be_visible()
    page.get_by_role("button", name="Dark", exact=True).click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    expect(page.locator("#drawer")).to_be_visible()


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


def test_a_line_that_gives_several_numbers_is_shown_once(opened: Open) -> None:
    page = opened("seed")
    page.locator(".mix .legend .proof", has_text="4.11").click()  # two timers of three lines
    expect(page.locator("#drawer-body > p").first).to_contain_text(
        "6 numbers of the source on 3 lines give this one. Here: all of them."
    )
    lines = page.locator("#drawer .among .proof").all_inner_texts()
    assert lines == ["6", "13", "20"]
    expect(page.locator("#drawer .among li").first).to_contain_text("first 2023-03-15")
    expect(page.locator("#drawer .among b").last).to_have_text("longest, last ")


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


def test_a_key_of_the_configuration_leads_to_the_line_that_sets_it(opened: Open) -> None:
    page = opened("comms")
    page.fill("#search", "zero_optimization.stage")
    page.locator("#settings tbody tr:visible .proof").first.click()
    expect(page.locator("#drawer .hit")).to_contain_text('"stage": 1')


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
    step_says(page, "30", "sum of its timers19.7 ms", "whole step23.1 ms")


def test_a_step_tells_what_holds_it_back_even_if_that_is_unknown(opened: Open) -> None:
    step_says(opened("megatron"), "77", "held back byunknown")
    step_says(opened("comms"), "20", "held back bycommunication")


def test_a_step_says_that_it_follows_a_validation(opened: Open) -> None:
    page = opened("validated")
    step_says(page, "101", "follows", "a validation")
    page.get_by_role("button", name="Next").click()
    expect(page.locator("#drawer .pairs")).not_to_contain_text("a validation")


def test_a_step_that_several_files_tell_shows_the_lines_of_all(opened: Open) -> None:
    page = opened("csv")
    find_step(page, "7")
    said = page.locator("#drawer-body").inner_text()
    for name in ("train_loss.csv", "lr.csv", "elapsed_time_ms_forward.csv"):
        assert f"Train_Samples_{name}" in said


def test_a_row_of_a_recording_is_not_said_to_be_a_line_of_text(opened: Open) -> None:
    page = opened("recorded")
    find_step(page, "7")
    expect(page.locator("#drawer-body")).to_contain_text("Row 7 of a recording")
    expect(page.locator("#drawer-body code")).to_have_text("dsprof export 'runs/a' -o rows.csv")


def test_evidence_of_a_recording_opens_its_row_in_the_drawer(opened: Open) -> None:
    page = opened("recorded")
    page.locator(".verdict .evidence .proof").first.click()
    drawer = page.locator("#drawer")
    expect(drawer).to_contain_text(re.compile(r"Row \d+ of a recording, which holds no text"))
    expect(drawer.locator("code")).to_have_text("dsprof export 'runs/a' -o rows.csv")


def test_hostile_words_of_a_log_stay_words(opened: Open) -> None:
    page = opened("hostile")
    draw_everything(page)
    page.locator("#problems .proof").first.click()
    expect(page.locator("#drawer .hit")).to_contain_text("<img src=x onerror=window.hit=1>")
    find_step(page, "9")
    expect(page.locator("#drawer table")).to_contain_text("</script>")
    assert page.evaluate("window.hit") is None
    assert (
        page.locator("main img, aside img, main script, aside script, main b:text('bold')").count()
        == 0
    )
    assert "</script>" in page.locator(".plot-phases").first.evaluate("e => e.textContent")
    assert "{{7*7}}" in page.locator("#problems").inner_text()
    assert page.locator("#configuration").inner_text().count("{{7*7}}") >= 2


def test_names_that_turn_the_writing_are_shown_as_escapes_in_the_drawer(opened: Open) -> None:
    page = opened("turned")
    find_step(page, "2")
    said = page.locator("#drawer").inner_text()
    assert "\\u202egol" in said
    assert "\u202e" not in said


def test_control_characters_are_shown_as_escapes(opened: Open) -> None:
    page = opened("seed")
    assert page.evaluate("visible('a\\x07b\\x1b[31m\\tc')") == "a\\x07b\\x1b[31m\tc"
