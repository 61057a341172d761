"""The lines around the tables: state and figures, the screens, verdicts, the legend, the keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from rich.cells import cell_len
from rich.text import Text
from textual.widgets import Static

from dsprof.events import Class
from dsprof.live.look import GLYPH, Look, look_of
from dsprof.live.panes import clock
from dsprof.live.picture import Picture, Verdict
from dsprof.live.text import facts, share_of
from dsprof.text.words import plain
from dsprof.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from dsprof.text.parts import Part

_WORTH_TELLING: Final = 1 << 20  # bytes: less is read by the next refresh
_MARKED: Final = 0.0005  # of a step: a part of less has no mark
_ROLES: Final = {"running": "checkpoint", "waiting": "muted", "silent": "communication",
                 "died": "communication", "ended": "compute"}  # fmt: skip


class Line(Static):
    """Words of a fixed height: drawn only when they change, and never laid out anew."""

    def say(self, words: Text | str) -> None:
        if words != self._said:
            self._said = words
            self.update(words, layout=False)

    _said: Text | str | None = None


class Head(Line):
    """Two lines: what the job does, and a word about it."""

    DEFAULT_CSS = "Head { height: 2; padding: 0 1; background: $panel; }"

    def __init__(self) -> None:
        super().__init__("reading …")
        self._picture: Picture | None = None
        self._frozen = self._stopped = False
        self._waited = 0.0

    def show(self, picture: Picture, *, frozen: bool, stopped: bool = False) -> None:
        """`stopped`: nothing is watched any more, the picture is the last one."""
        self._picture, self._frozen, self._stopped = picture, frozen, stopped
        self._draw()

    def stalled(self, seconds: float) -> None:
        """The file system has not answered for so long; 0: it answers."""
        if seconds or self._waited:
            self._waited = seconds
            self._draw()

    def on_resize(self) -> None:
        self._draw()

    def _draw(self) -> None:
        picture, look = self._picture, look_of(self)
        if picture is None:
            waited = f"for {format_seconds(round(self._waited))}" if self._waited else "…"
            self.say(Text(f"reading {waited}"))
            return
        state = "NOT WATCHED" if self._stopped else picture.state.upper()
        role = "critical" if self._stopped else _ROLES[picture.state]
        line = Text(state, look.style(role, on="raised", bold=True))
        room = self.size.width - 2 - cell_len(state)
        for fact in facts(picture):
            room -= cell_len(fact) + 3
            if room >= 0:
                line.append(" · ", look.style("muted", on="raised"))
                line.append(fact, look.style(on="raised"))
        self.say(Text("\n").join([line, self._note(picture, look)]))

    def _note(self, picture: Picture, look: Look) -> Text:
        parts = []
        if self._stopped:
            parts.append(f"was {picture.state} at {clock(picture.at)}: leave (q) and start again")
        if self._frozen:
            parts.append(f"FROZEN at {clock(picture.at)}, p goes on")
        if self._waited:
            parts.append(f"the files have not answered for {format_seconds(round(self._waited))}")
        if picture.note:
            parts.append(plain(picture.note))
        if picture.behind >= _WORTH_TELLING:
            parts.append(f"{format_bytes(picture.behind)} of earlier log still to read")
        odd = self._frozen or self._stopped or bool(self._waited)
        calm = picture.state in {"running", "ended"} and not odd
        sources = ", ".join(map(plain, picture.sources))
        words = Text(
            " · ".join(parts or [sources]), look.style("muted" if calm else "strong", on="raised")
        )
        words.truncate(max(0, self.size.width - 2), overflow="ellipsis")
        return words


class Tabs(Line):
    """The names of the screens; a click shows one."""

    DEFAULT_CSS = """
    Tabs {
        height: 1; padding: 0 1; background: $background;
        link-style: none; link-color: $foreground 70%; link-style-hover: underline;
    }
    """

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__()
        self._names = names
        self._current = names[0]

    def on_mount(self) -> None:
        self.show(self._current)

    def on_resize(self) -> None:
        self.show(self._current)

    def show(self, name: str) -> None:
        self._current = name
        wide = self.size.width >= sum(len(each) + 4 for each in self._names)
        parts = []
        for number, each in enumerate(self._names, 1):
            word = f"{number} {each.title() if wide or each == name else each.title()[:4]}"
            link = "b $accent" if each == name else f"@click=app.show('{each}')"
            parts.append(f"[{link}]{word}[/]")
        self.say("  ".join(parts))


class Foot(Line):
    """The keys one needs most; a click is as good."""

    DEFAULT_CSS = """
    Foot {
        height: 1; padding: 0 1; background: $panel;
        link-style: none; link-color: $foreground 70%; link-style-hover: underline;
    }
    """

    def on_mount(self) -> None:
        self.say("  ".join(f"[@click=app.{act}][b $accent]{key}[/] {word}[/]"
                           for key, word, act in _KEYS))  # fmt: skip


_KEYS: Final = (("q", "Quit", "quit"), ("?", "Help", "help"), ("tab", "Next", "turn(1)"),
                ("p", "Freeze", "freeze"), ("e", "Report", "report"),
                ("/", "Search", "search"))  # fmt: skip


class Sentence(Static):
    """A label and a sentence, whole in 80 columns: what one came for is not cut."""

    DEFAULT_CSS = "Sentence { height: auto; max-height: 4; padding: 0 1; }"

    def show(self, verdict: Verdict | None, label: str) -> None:
        if verdict is None:
            self.say("no verdict yet: it takes a step with a time", "muted", label)
        else:
            self.say(verdict.title, verdict.severity, label)

    def say(self, words: str, role: str = "", label: str = "") -> None:
        look = look_of(self)
        label = f"{label}: " if label else ""
        line = Text(label, look.style("muted")).append(plain(words), look.style(role))
        if line != self._said:
            self._said = line
            self.display = bool(words)
            self.update(line)

    _said: Text | None = None


class Legend(Line):
    """The parts of the mean step in the bars' colours, largest first; what no class is known of
    has the colour of what no timer covers."""

    DEFAULT_CSS = "Legend { height: 1; padding: 0 1; }"

    _verdict: Verdict | None = None

    def show(self, verdict: Verdict | None) -> None:
        self._verdict = verdict
        self._draw()

    def on_resize(self) -> None:
        self._draw()

    def _draw(self) -> None:
        look = look_of(self)
        line, room = Text(no_wrap=True), self.size.width - 2
        for part, class_ in _marked(self._verdict) if self._verdict else ():
            mark = "■" if look.colour else GLYPH[class_]
            words = f"{part.label} {share_of(part)}"
            if len(line) + cell_len(f"{mark} {words}") > room:
                break
            line.append(f"{mark} ", look.style(class_))
            line.append(f"{words}   ", look.style("muted"))
        self.say(line)


def _marked(verdict: Verdict) -> list[tuple[Part, str]]:
    """Parts that are worth a mark, and the class whose colour bars have there; the largest first:
    what has no room is the least."""
    worth = [part for part in verdict.parts if (part.share or 0.0) >= _MARKED]
    return [
        (part, part.name if part.name in verdict.classes else Class.OTHER)
        for part in sorted(worth, key=lambda part: -(part.share or 0.0))
    ]
