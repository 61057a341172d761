"""What each screen is made of, and what of a picture it shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from textual.app import ComposeResult
from textual.containers import Vertical

from dsprof.live import panes
from dsprof.live.chart import Chart
from dsprof.live.grid import Grid
from dsprof.live.head import Legend, Sentence
from dsprof.live.logview import LogView
from dsprof.live.picture import Picture

if TYPE_CHECKING:
    from dsprof.live.app import Live

SCREENS: Final = ("overview", "ranks", "communication", "memory", "problems", "log")

_NO_PROBLEM: Final = (
    "no failure was reported so far; what was found besides, as skipped steps, is on screen 1"
)


def widgets() -> ComposeResult:
    """All screens, in the order of `SCREENS`."""
    with Vertical(id="overview"):
        yield Sentence(id="now")
        yield Sentence(id="since")
        yield Chart()
        yield Legend()
        yield Sentence(id="whose")
        yield Grid("nothing has been found yet", id="findings")
    with Vertical(id="ranks"):
        yield Sentence(id="who")
        yield Grid("no rank has reported its phases yet", id="rank-grid")
    with Vertical(id="communication"):
        yield Sentence(id="moved")
        yield Grid("no single communication call is shown: use dsprof attach, or "
                   "comms_logger in the DeepSpeed config", id="comm-grid")  # fmt: skip
    with Vertical(id="memory"):
        yield Sentence(id="safe")
        yield Grid("no line or recording shows memory yet", id="memory-grid")
    with Vertical(id="problems"):
        yield Grid(_NO_PROBLEM, id="problem-grid", sticky=True)
    yield LogView(id="log")


def show(app: Live, screen: str, picture: Picture) -> None:
    """Draw what that screen tells of it."""
    _SHOW[screen](app, picture)


def _fill(app: Live, grid: str, table: panes.Table) -> None:
    app.query_one(grid, Grid).fill(*table)


def _overview(app: Live, picture: Picture) -> None:
    now, since = app.query_one("#now", Sentence), app.query_one("#since", Sentence)
    if (picture.now and picture.now.title) == (picture.since and picture.since.title):
        now.show(picture.now, "Now and since the start" if picture.now else "")
        since.say("")
    else:
        now.show(picture.now, "Now")
        since.show(picture.since, "Since the start")
    app.query_one("#overview Chart", Chart).show(picture.bars, picture.noun)
    app.query_one(Legend).show(picture.now)
    app.query_one("#whose", Sentence).say(picture.now.whose if picture.now else "", "muted")
    _fill(app, "#findings", panes.findings(picture))


def _ranks(app: Live, picture: Picture) -> None:
    app.query_one("#who", Sentence).say(picture.ranks.sentence)
    _fill(app, "#rank-grid", panes.ranks(picture, app.size.width, colour=app.look.colour))


def _communication(app: Live, picture: Picture) -> None:
    app.query_one("#moved", Sentence).say(panes.moved(picture))
    _fill(app, "#comm-grid", panes.communication(picture))


def _memory(app: Live, picture: Picture) -> None:
    app.query_one("#safe", Sentence).say(panes.safe(picture))
    _fill(app, "#memory-grid", panes.memory(picture))


def _problems(app: Live, picture: Picture) -> None:
    _fill(app, "#problem-grid", panes.problems(picture))


def _log(app: Live, picture: Picture) -> None:
    app.query_one(LogView).offer(picture.logs)


_SHOW: Final[dict[str, Callable[[Live, Picture], None]]] = dict(
    zip(SCREENS, (_overview, _ranks, _communication, _memory, _problems, _log), strict=True)
)
