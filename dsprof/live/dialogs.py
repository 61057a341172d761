"""What opens over a screen: a finding or a rank at length, the keys, a search."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from rich.console import Group, RenderableType
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Input, Label, Static

from dsprof.errors import DsprofError
from dsprof.findings import Evidence, Finding
from dsprof.findings.finding import says_confidence
from dsprof.live.chart import Chart
from dsprof.live.panes import clock
from dsprof.live.picture import Bar, RankRow, RankTable
from dsprof.text.layout import columns, place, say
from dsprof.text.words import cost, plain, step_of
from dsprof.units import format_seconds

_BOX: Final = """
    align: center middle;
    & > VerticalScroll {
        width: 90%; max-width: 110; height: auto; max-height: 90%;
        border: round $accent; scrollbar-size-vertical: 1; background: $panel; padding: 0 1;
    }
    & Static { width: 100%; background: $panel; }
    & Chart { background: $panel; height: 10; }
"""


class Dialog(ModalScreen[Evidence | None]):
    """A box over the screen; esc closes it."""

    DEFAULT_CSS = "Dialog {" + _BOX + "}"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "dismiss(None)", "Back"),
        Binding("e", "app.report", "Report"),
    ]

    def __init__(self, title: str, *parts: RenderableType) -> None:
        super().__init__()
        self._title, self._parts = title, parts

    def compose(self) -> ComposeResult:
        with VerticalScroll() as box:
            box.border_title = plain(self._title).replace("[", "\\[")
            box.border_subtitle = self.subtitle
            yield from self.inside()

    def inside(self) -> ComposeResult:
        yield Static(Group(*self._parts))

    subtitle: ClassVar[str] = "esc: back"


class FindingDialog(Dialog):
    """A finding at length; enter goes to the line that proves it."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "proof", "Its line")]
    subtitle: ClassVar[str] = "enter: its line · esc: back"

    def __init__(self, found: Finding, step: float | None) -> None:
        super().__init__(f"{found.severity}: {found.rule}", *_finding(found, step))
        self._found = found

    def action_proof(self) -> None:
        proofs = [proof for proof in self._found.evidence if proof.source and proof.line]
        self.dismiss(proofs[0] if proofs else None)


def _finding(found: Finding, step: float | None) -> list[RenderableType]:
    parts: list[RenderableType] = [say(found.title, "bold"), Text(), say(found.summary)]
    price = cost(found.seconds_per_step, found.share, step_of(found, step))
    sure = "" if says_confidence(found) else f"{found.confidence} confidence"
    if price or sure:
        said = filter(None, [f"costs {price}" if price else "", sure])
        parts += [Text(), say(", ".join(said))]
    if found.advice:
        parts += [Text(), say("What to do", "dim")]
    for advice in found.advice:
        now = f"{advice.now} → {advice.to}" if advice.now else advice.to
        why = f" ({advice.why})" if advice.why else ""
        parts.append(say(f"  {advice.setting}: {now}{why}"))
    if found.evidence:
        parts += [Text(), say("Proof", "dim")]
    for proof in found.evidence:
        parts.append(Text("  ").join([say(proof.text), place(proof.source, proof.line)]))
    return parts


class RankDialog(Dialog):
    """A rank's own steps, and how its phases compare with the median rank's."""

    def __init__(self, row: RankRow, table: RankTable, noun: str) -> None:
        host = f" on {row.host}" if row.host else ""
        super().__init__(f"rank {row.rank}{host}")
        self._row, self._table, self._noun = row, table, noun
        self._chart = Chart()

    def inside(self) -> ComposeResult:
        yield Static(Group(*self._words()))
        yield self._chart
        yield Static(Group(*self._phases()))

    def show(self, bars: Sequence[Bar]) -> None:
        """Its own steps, which are asked for meanwhile."""
        self._chart.show(bars, self._noun)

    def _words(self) -> list[RenderableType]:
        row = self._row
        said = [f"state: {row.state or 'unknown'}"]
        if row.step is not None:
            said.append(f"step {row.step:,}")
        if row.operation:
            said.append(f"in {row.operation}" + f", {row.code}" * bool(row.code))
        if row.late_by is not None:
            late = format_seconds(abs(row.late_by))
            sign = "later" if row.late_by >= 0 else "earlier"
            apart = f"{late} {sign} per step than" if late != "0 s" else "no later than"
            said.append(f"{apart} the median rank")
        return [say(" · ".join(said)), Text()]

    def _phases(self) -> list[RenderableType]:
        lines: list[RenderableType] = [
            Text(f"{'phase':30} {'this rank':>12} {'median':>12}", "dim")
        ]
        for name, own, median in zip(
            self._table.phases, self._row.phases, self._table.medians, strict=True
        ):
            mine = "-" if own is None else format_seconds(own)
            line = say(name)
            line.truncate(30, overflow="ellipsis", pad=True)
            lines.append(line.append(f" {mine:>12} {format_seconds(median):>12}"))
        return lines


KEYS: Final = (
    ("1 to 6, tab, shift+tab", "another screen"),
    ("arrows, page up, down", "another row; left and right: columns beside (‹ ›)"),
    ("enter", "open a finding or a rank; in a finding: the line that proves it"),
    ("esc", "back; at the log's end again"),
    ("/ then n and N", "search the log: the one before, the one after"),
    ("s", "the next log, where there are several"),
    ("p", "freeze the picture, and go on"),
    ("e", "write the HTML report of what is there now"),
    ("d", "dark or light"),
    ("ctrl+p", "the palette: everything by its name"),
    ("q", "leave; the job does not notice"),
)

_ABOUT: Final = (
    "dsprof live reads what the job writes anyway: recordings (dsprof attach), logs, a pipe. "
    '"Now" are the last steps, "since the start" is everything so far. Bars are steps, the newest '
    "at the right; ▲ marks those that communication holds back. On the ranks screen a rank's own "
    "work is compared with the median rank's: the one that is late makes the others wait."
)


class HelpDialog(Dialog):
    """The keys; the one that opened it closes it, too."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("question_mark", "dismiss(None)", "Back")]
    subtitle: ClassVar[str] = "? or esc: back"

    def __init__(self) -> None:
        rows = columns(22)
        for keys, words in KEYS:
            rows.add_row(say(keys, "bold"), say(words))
        super().__init__("keys", rows, Text(), say(_ABOUT))


class StoppedDialog(Dialog):
    """Why the watch has ended, and what one can do."""

    subtitle: ClassVar[str] = "esc: look at what there was"

    def __init__(self, fault: DsprofError, at: float) -> None:
        super().__init__(
            "not watched any more",
            say(str(fault), "bold"),
            Text(),
            say(f"What the screens show is of {clock(at)} and will not change. {_AGAIN}"),
        )


_AGAIN: Final = (
    "q leaves; then start dsprof live again: it reads everything anew. If it ends this way again, "
    "please report the message above."
)


class SearchDialog(ModalScreen[str | None]):
    """One line to write what is looked for."""

    DEFAULT_CSS = """
    SearchDialog { align: center bottom; background: $background 0%; }
    SearchDialog > Label { width: 100%; background: $panel; padding: 0 1; }
    SearchDialog > Input { width: 100%; height: 1; border: none; background: $panel; padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "Back")]

    def __init__(self, before: str) -> None:
        super().__init__()
        self._before = before

    def compose(self) -> ComposeResult:
        yield Label("search the log (enter: the last match, esc: back)")
        yield Input(self._before, placeholder="text", compact=True)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value)
