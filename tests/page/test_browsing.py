"""Pages that tests share: one that was put back is the page that was opened."""

from __future__ import annotations

from playwright.sync_api import Page

from tests.page.browsing import Shelf, click_column, draw_everything, find_step


def looked_at(page: Page) -> None:
    """As a reader leaves it: zoomed, searched, dark, with an open drawer."""
    draw_everything(page)
    click_column(page, 20)
    page.keyboard.press("Escape")
    page.fill("#search", "stage")
    page.get_by_role("button", name="Dark", exact=True).click()
    find_step(page, "30")
    page.click("form.tools button[name=in]")
    page.emulate_media(media="print")


def test_a_page_that_one_test_has_used_serves_the_next(shelf: Shelf) -> None:
    taken = shelf.take("comms")
    looked_at(taken.page)
    shelf.give_back("comms", taken)
    assert shelf.take("comms") is taken
    shelf.give_back("comms", taken)


def test_a_page_that_cannot_be_put_back_is_opened_anew(shelf: Shelf) -> None:
    taken = shelf.take("comms")
    taken.page.evaluate("document.querySelector('h1').textContent = 'another'")
    shelf.give_back("comms", taken)
    assert taken.page.is_closed()
