"""The screens: one app that shows pictures as they come and answers keys meanwhile."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import ClassVar, Final, Protocol

from rich.text import Text
from textual import on, work
from textual.app import App, ComposeResult, SystemCommand
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.screen import Screen
from textual.widgets import ContentSwitcher

from dsprof.errors import DsprofError
from dsprof.findings import Evidence
from dsprof.live import screens
from dsprof.live.chart import Chart
from dsprof.live.dialogs import (
    Dialog,
    FindingDialog,
    HelpDialog,
    RankDialog,
    SearchDialog,
    StoppedDialog,
)
from dsprof.live.grid import Grid
from dsprof.live.head import Foot, Head, Tabs
from dsprof.live.logview import LogView
from dsprof.live.look import DARK, LIGHT, Look, theme
from dsprof.live.picture import Bar, Lines, Picture, Tail
from dsprof.live.screens import SCREENS

_STALLED: Final = 5.0  # seconds that files may not answer before it is said


class Job(Protocol):
    """What screens need: `apart.Apart`, or a `watch.Watch` of this process.

    Attributes:
        asked: `time.monotonic()` of when the files were asked, 0 once they have answered.
    """

    asked: float

    def refresh(self) -> Picture:
        """The next picture."""

    def tail(self, source: str) -> Tail | None:
        """The last lines of a log."""

    def excerpt(self, source: str, line: int) -> Lines | None:
        """The lines around one of a log."""

    def bars_of(self, rank: int) -> list[Bar]:
        """The last steps of one rank."""

    def report(self, path: Path) -> None:
        """Write the HTML report of now."""


class Drawn(Message):
    """A new picture is there."""

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, Drawn)  # on a slow line only the newest is drawn


class Live(App[None]):
    """Shows what `job` sees.

    Attributes:
        job: the watched run.
        picture: what is shown; None before the first.
        look: colours of the lines drawn by hand.
        fault: why nothing is watched any more.
        watching: looks at the job.
    """

    TITLE = "dsprof live"
    CSS_PATH = None
    ENABLE_COMMAND_PALETTE = True
    CSS = """
    Screen { layout: vertical; background: $background; }
    ContentSwitcher { height: 1fr; }
    ContentSwitcher > Vertical { height: 1fr; }
    #overview Chart { height: 1fr; min-height: 6; max-height: 24; }
    #overview Grid { height: 1fr; min-height: 4; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "Quit"),
        Binding("ctrl+c", "quit", "Quit", show=False, priority=True),  # in dialogs, too
        Binding("question_mark", "help", "Help", key_display="?"),
        Binding("tab", "turn(1)", "Next", priority=True),
        Binding("shift+tab", "turn(-1)", "Previous", show=False, priority=True),
        Binding("p", "freeze", "Freeze"),
        Binding("e", "report", "Report"),
        Binding("slash", "search", "Search", key_display="/"),
        Binding("n", "again(-1)", "Before", show=False),
        Binding("N", "again(1)", "After", show=False),
        Binding("s", "source", "Next log", show=False),
        Binding("d", "light", "Light", show=False),
        Binding("escape", "log_end", "Back", show=False),
        *(
            Binding(str(number), f"show('{name}')", name.title(), show=False)
            for number, name in enumerate(SCREENS, 1)
        ),
    ]

    def __init__(self, job: Job, *, every: float = 0.0, colour: bool | None = None) -> None:
        super().__init__()
        self.job = job
        self.picture: Picture | None = None
        self.look = Look(dark=True, colour=_coloured() if colour is None else colour)
        self.animation_level = "none"  # a slow line has better things to carry
        self._every = every  # seconds between two pictures, where the job does not rest itself
        self._newest: Picture | None = None
        self.fault: DsprofError | None = None
        self._frozen = False
        self._over = threading.Event()
        self.watching = threading.Thread(target=self._look_again, daemon=True, name="dsprof-watch")

    def run_to_end(self) -> None:
        """Run until somebody leaves.

        Raises:
            DsprofError: the job could not be watched, or not to the end.
            SystemExit: the process was asked to end.
        """
        self.run()
        if self.fault:
            raise self.fault
        if self.return_code:
            raise SystemExit(self.return_code)

    def compose(self) -> ComposeResult:
        yield Head()
        yield Tabs(SCREENS)
        with ContentSwitcher(initial=SCREENS[0]):
            yield from screens.widgets()
        yield Foot()

    def on_mount(self) -> None:
        self.register_theme(theme(dark=True))
        self.register_theme(theme(dark=False))
        self.theme = DARK
        self.query_one("#findings", Grid).focus()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._end)
        self.set_interval(1.0, self._notice_stall)
        self.watching.start()

    def on_unmount(self) -> None:
        self._over.set()

    def _end(self) -> None:
        """Asked to by SIGTERM: the terminal is given back first."""
        self.exit(return_code=128 + signal.SIGTERM)

    def _look_again(self) -> None:
        """In a thread of its own: nothing that a picture waits for holds up a key."""
        try:
            while not self._over.is_set():
                self._newest = self.job.refresh()
                self.post_message(Drawn())
                self._over.wait(self._every)
        except DsprofError as error:
            if not self._over.is_set():  # else it was closed because the screens have gone
                self._hand_over(partial(self._end_watch, error))

    def _hand_over(self, action: Callable[[], None]) -> None:
        """From a thread: do it among the screens, unless these are being taken down.

        Widgets go one by one then: whether one is there tells nothing of the others.
        """
        self.call_from_thread(lambda: action() if self.is_running else None)

    def _end_watch(self, error: DsprofError) -> None:
        """Before a first picture there is nothing to stay for; later the last one stays."""
        self.fault = error
        if self._newest is None:
            self.exit()
            return
        self.draw()
        self.push_screen(StoppedDialog(error, self._newest.at))

    def _notice_stall(self) -> None:
        asked = self.job.asked
        waited = time.monotonic() - asked if asked else 0.0
        for head in self.query(Head):  # none when everything is being taken down
            head.stalled(waited if waited > _STALLED else 0.0)

    @on(Drawn)
    def _take(self) -> None:
        if self._frozen and self.picture is not None:
            return
        self.picture = self._newest
        self.draw()

    def draw(self) -> None:
        """Show the picture: only the screen in view is drawn."""
        picture = self.picture
        if picture is None or not self.is_running:
            return
        self.query_one(Head).show(picture, frozen=self._frozen, stopped=self.fault is not None)
        if not picture.judged and self.screen_name != "log":
            return  # to say that there is nothing would be a guess
        screens.show(self, self.screen_name, picture)

    @property
    def screen_name(self) -> str:
        return str(self.query_one(ContentSwitcher).current)

    def action_show(self, name: str) -> None:
        self.query_one(ContentSwitcher).current = name
        self.query_one(Tabs).show(name)
        self.screen.set_focus(self.query_one(f"#{name} Grid", Grid))  # before the next key
        self.draw()

    def action_turn(self, by: int) -> None:
        if isinstance(self.screen, Dialog | SearchDialog):
            self.screen.focus_next()
            return
        at = SCREENS.index(self.screen_name)
        self.action_show(SCREENS[(at + by) % len(SCREENS)])

    def action_freeze(self) -> None:
        self._frozen = not self._frozen
        self.draw()

    def action_light(self) -> None:
        dark = self.theme != DARK
        self.look = Look(dark=dark, colour=self.look.colour)
        self.theme = DARK if dark else LIGHT
        self.draw()
        self.query(Chart).refresh()  # the same bars in other colours

    def action_help(self) -> None:
        self.push_screen(HelpDialog())

    def action_log_end(self) -> None:
        self.query_one(LogView).at_end()

    def action_search(self) -> None:
        self.action_show("log")
        log = self.query_one(LogView)
        self.push_screen(SearchDialog(log.sought), log.search)

    def action_again(self, by: int) -> None:
        if self.screen_name == "log":
            self.query_one(LogView).again(by)

    def action_source(self) -> None:
        self.query_one(LogView).next_source()

    @on(Grid.Opened, "#findings")
    def _open_finding(self, event: Grid.Opened) -> None:
        picture = self.picture
        for seen in picture.findings if picture else ():
            if seen.key == event.key:
                usual = picture.figures.seconds if picture else None
                self.push_screen(FindingDialog(seen.finding, usual), self._go_to)

    @on(Grid.Opened, "#rank-grid")
    def _open_rank(self, event: Grid.Opened) -> None:
        picture = self.picture
        for row in picture.ranks.rows if picture else ():
            if row.rank == event.key and picture:
                dialog = RankDialog(row, picture.ranks, picture.noun)
                self.push_screen(dialog)
                self._find_bars(dialog, row.rank)

    @work(thread=True)
    def _find_bars(self, dialog: RankDialog, rank: int) -> None:
        with suppress(DsprofError):  # it has gone: whoever asks for pictures says so
            bars = self.job.bars_of(rank)
            self._hand_over(lambda: dialog.show(bars))

    @on(Grid.Opened, "#problem-grid")
    def _open_problem(self, event: Grid.Opened) -> None:
        if self.picture and isinstance(event.key, int):
            row = self.picture.problems[event.key]
            self._go_to(Evidence(row.source, row.line, row.text))

    def _go_to(self, proof: Evidence | None) -> None:
        """Show the line that proves something; what no log holds is said as it is."""
        if proof is None or proof.line is None:
            return
        if self.picture is None or proof.source not in self.picture.logs:
            self.push_screen(Dialog("a row of a recording", Text(f"{proof.source}:{proof.line}"),
                                    Text(), Text(proof.text)))  # fmt: skip
            return
        self.action_show("log")
        self._find_line(proof.source, proof.line)

    @work(thread=True)
    def _find_line(self, source: str, line: int) -> None:
        with suppress(DsprofError):
            tail, lines = self.job.tail(source), self.job.excerpt(source, line)
            if tail is not None:
                self._hand_over(lambda: self.query_one(LogView).go(source, line, lines, tail))

    def action_report(self) -> None:
        name = time.strftime("dsprof-live-%Y%m%d-%H%M%S.html")
        self._write_report(Path(name))

    @work(thread=True)
    def _write_report(self, path: Path) -> None:
        self.call_from_thread(self.notify, "writing the report ...", timeout=3)
        try:
            self.job.report(path)
        except DsprofError as error:
            self.call_from_thread(self.notify, str(error), severity="error", markup=False)
            return
        self.call_from_thread(
            self.notify, str(path), title="report written", timeout=15, markup=False
        )

    @on(LogView.Wanted)
    def _want_tail(self, event: LogView.Wanted) -> None:
        self._find_tail(event.source)

    @work(thread=True, exclusive=True, group="tail")
    def _find_tail(self, source: str) -> None:
        with suppress(DsprofError):
            tail = self.job.tail(source)
            if tail is not None:
                self._hand_over(lambda: self.query_one(LogView).show(source, tail))

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        yield from super().get_system_commands(screen)
        for name in SCREENS:
            yield SystemCommand(name.title(), f"Show {name}", lambda n=name: self.action_show(n))
        yield SystemCommand("Freeze", "Keep this picture, or go on", self.action_freeze)
        yield SystemCommand("Report", "Write the HTML report of now", self.action_report)
        yield SystemCommand("Dark or light", "Turn the colours", self.action_light)


def _coloured() -> bool:
    """https://no-color.org: any value but none asks for no colour."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
