"""What the tests in a browser share: open pages, and what a reader does with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

Written = Callable[[str], Path]
Open = Callable[..., Page]
Scheme = Literal["light", "dark"]
WIDE = 1400  #: px, of a desktop
FIVE = ("seed", "megatron", "failure", "zero3", "huge")

#: All that a test may have changed, but for what the charts hold. How high a box is, the page
#: measures once that is shown, and again whenever that changes.
_STATE = """async () => {
  for (let frames = 0; frames < 3; frames++) await new Promise(requestAnimationFrame);
  const words = document.querySelector("main").cloneNode(true);
  for (const plot of words.querySelectorAll(".plot, .keys")) plot.remove();
  for (const box of words.querySelectorAll(".short")) box.classList.remove("short");
  const fields = [...document.querySelectorAll("input, select")].map((one) => one.value);
  const views = [...timelines.values()].map(({ from, to, row }) => [from, to, row]);
  const around = [document.documentElement.dataset.theme, byId("drawer").hidden, innerWidth];
  around.push(localStorage.length);
  return JSON.stringify([words.innerHTML, fields, views, around]);
}"""

#: What a reader would undo by hand. Charts are drawn anew only where one was changed.
_PUT_BACK = """async () => {
  closeDrawer();
  leavePhases();
  if (document.documentElement.dataset.theme) setTheme("auto");
  localStorage.clear();
  for (const timeline of timelines.values()) {
    const { track, from, to, row } = timeline;
    timeline.row = -1;
    timeline.form.elements.step.value = "";
    if (from > 0 || to < track.size || row >= 0) await timeline.show(0, track.size);
    timeline.form.elements.says.value = "";
    const { launch } = timeline.form.elements;
    launch.selectedIndex = launch.length - 1;
  }
  const search = byId("search");
  if (search?.value) {
    search.value = "";
    search.dispatchEvent(new Event("input"));
  }
  for (const open of document.querySelectorAll("details[open]")) open.open = false;
  for (const table of document.querySelectorAll("[data-steps-table] .scroll")) {
    table.replaceChildren();
    table.classList.remove("short");
    delete table.dataset.more;
  }
  for (const box of document.querySelectorAll(".scroll")) box.scrollTop = 0;
  for (const row of document.querySelectorAll(".pointed")) row.removeAttribute("class");
  document.activeElement.blur();
  scrollTo(0, 0);
}"""


#: A change of width draws anew what was drawn, once the width has stayed for 120 ms.
_DRAWN_ANEW = """async () => {
  for (let frames = 0; frames < 2; frames++) await new Promise(requestAnimationFrame);
  await new Promise((done) => setTimeout(done, 121));
}"""

#: To ask for other media costs, with any answer, new styles of all pages of the process.
_MEDIA = """() => [
  matchMedia("print").matches ? "print" : "screen",
  matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light",
]"""


@dataclass
class Opened:
    """A page, how it looked when it was opened, and what it complained of or asked for since."""

    page: Page
    state: Any = ""
    complaints: list[str] = field(default_factory=list)

    def set(self, width: int, scheme: Scheme) -> None:
        """On such a screen, in the system's colours."""
        if self.page.viewport_size != {"width": width, "height": 900}:
            self.page.set_viewport_size({"width": width, "height": 900})
            self.page.evaluate(_DRAWN_ANEW)
        if self.page.evaluate(_MEDIA) != ["screen", scheme]:
            self.page.emulate_media(media="null", color_scheme=scheme)

    def put_back(self) -> bool:
        """Whether the page is as it was opened."""
        self.page.mouse.move(0, 0)
        self.set(WIDE, "light")
        self.page.evaluate(_PUT_BACK)
        return bool(self.page.evaluate(_STATE) == self.state)


class Shelf:
    """Open pages: to load one takes longer than most questions to it.

    One that a test leaves as it found it serves the next test; any other is opened anew. All are
    opened at the same address, by one process: it has compiled plotly.js of that address then.
    """

    KEPT = 16

    def __init__(self, browser: Browser, written: Written, address: Path) -> None:
        self._context = browser.new_context(
            viewport={"width": WIDE, "height": 900}, reduced_motion="reduce"
        )
        self._written, self._address = written, address
        self._kept: dict[str, Opened] = {}

    def take(self, name: str, width: int = WIDE, scheme: Scheme = "light") -> Opened:
        """The page of a run: off the shelf, or opened."""
        opened = self._kept.pop(name, None) or self.open(name, WIDE, scheme)
        opened.set(width, scheme)
        return opened

    def give_back(self, name: str, opened: Opened) -> None:
        if name in self._kept or not opened.put_back():
            opened.page.close()
            return
        self._kept[name] = opened
        while len(self._kept) > self.KEPT:
            self._kept.pop(next(iter(self._kept))).page.close()

    def open(self, name: str, width: int, scheme: Scheme) -> Opened:
        page = self._context.new_page()
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)
        self._address.unlink(missing_ok=True)
        self._address.symlink_to(self._written(name))
        opened, address = Opened(page), self._address.as_uri()
        page.on("console", lambda said: opened.complaints.append(f"{said.type}: {said.text}"))
        page.on("pageerror", lambda error: opened.complaints.append(str(error)))
        page.on(
            "request",
            lambda r: (
                None
                if r.url == address or r.url.startswith("data:")
                else opened.complaints.append(r.url)
            ),
        )
        page.goto(address)
        page.wait_for_selector("html[data-ready]")
        opened.state = page.evaluate(_STATE)
        return opened


def draw_everything(page: Page) -> None:
    """Charts are drawn as they come into view."""
    page.evaluate("drawAll()")
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def violations(page: Page, *rules: str) -> list[tuple[str, str]]:
    """What axe finds by all of its rules or by these, but for minor things. It looks for paths only
    to what it finds."""
    options: dict[str, Any] = {"resultTypes": ["violations"]}
    if rules:
        options["runOnly"] = {"type": "rule", "values": rules}
    found = Axe().run(page, options=options).response["violations"]
    return [(v["id"], v["nodes"][0]["html"][:200]) for v in found if v["impact"] != "minor"]


def find_step(page: Page, number: str) -> None:
    """Opens a step in the drawer by its number."""
    page.fill("form.tools input[name=step]", number)
    page.keyboard.press("Enter")


def step_says(page: Page, number: str, *words: str) -> None:
    """Opens a step, whose drawer must say these words of it."""
    find_step(page, number)
    for said in words:
        expect(page.locator("#drawer .pairs")).to_contain_text(said)


def point_at(page: Page, step: int) -> tuple[float, float]:
    """Moves the mouse over the column of a step; where that is."""
    page.locator(".plot-steps").scroll_into_view_if_needed()
    box = page.locator(".plot-steps .nsewdrag").first.bounding_box()
    assert box
    low, high = page.evaluate("document.querySelector('.plot-steps')._fullLayout.xaxis.range")
    x = box["x"] + box["width"] * (step - low) / (high - low)
    y = box["y"] + 0.9 * box["height"]
    page.mouse.move(x, y)
    page.wait_for_timeout(200)
    return x, y


def click_column(page: Page, step: int) -> None:
    """Clicks the chart of steps where that step stands."""
    page.mouse.click(*point_at(page, step))


def click_mark(page: Page, marks: str) -> None:
    """Clicks the last mark of a chart."""
    mark = page.locator(f"{marks} .point").last
    mark.scroll_into_view_if_needed()
    box = mark.bounding_box()
    assert box
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.click(x, y)


def brush(page: Page, start: float, end: float) -> None:
    """Drags across the chart of steps, from one share of its width to another."""
    page.locator(".plot-steps").scroll_into_view_if_needed()
    box = page.locator(".plot-steps .nsewdrag").first.bounding_box()
    assert box
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + start * box["width"], y)
    page.mouse.down()
    page.mouse.move(box["x"] + end * box["width"], y, steps=5)
    page.mouse.up()
    page.wait_for_timeout(200)
