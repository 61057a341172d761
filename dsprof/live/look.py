"""Colours and glyphs of the screens: those of the page, by day and by night."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.style import Style
from textual.theme import Theme
from textual.widget import Widget

from dsprof.colours import PALETTE
from dsprof.events import Class

if TYPE_CHECKING:
    from dsprof.live.app import Live

DARK: Final = "dsprof-dark"
LIGHT: Final = "dsprof-light"

#: Bottom of a stack to its top: what is looked for stands on the axis.
STACK: Final = (
    Class.COMMUNICATION,
    Class.WAIT,
    Class.COMPUTE,
    Class.OPTIMIZER,
    Class.DATA,
    Class.OFFLOAD,
    Class.CHECKPOINT,
    Class.OTHER,
)

#: Tells classes apart where there is no colour.
GLYPH: Final = {
    "communication": "#",
    "wait": "w",
    "compute": ".",
    "optimizer": "o",
    "data": "d",
    "offload": "f",
    "checkpoint": "c",
    "other": "~",
    "unknown": "|",
}

#: Shades of a heat map, cold to hot; a glyph says the same without colour.
HEAT: Final = (" ", "░", "▒", "▓", "█")


def theme(*, dark: bool) -> Theme:
    """The page's palette as a theme of textual."""
    colours = {role: pair[1 if dark else 0] for role, pair in PALETTE.items()}
    return Theme(
        name=DARK if dark else LIGHT,
        dark=dark,
        primary=colours["compute"],
        secondary=colours["optimizer"],
        accent=colours["communication"],
        warning=colours["communication"],
        error=colours["communication"],
        success=colours["checkpoint"],
        foreground=colours["ink"],
        background=colours["paper"],
        surface=colours["paper"],
        panel=colours["raised"],
        variables={
            "footer-key-foreground": colours["communication"],
            "block-cursor-background": colours["line"],
            "block-cursor-foreground": colours["ink"],
            "scrollbar": colours["line"],
            "scrollbar-background": colours["paper"],
        },
    )


class Look:
    """Styles by role, for lines that are drawn by hand."""

    def __init__(self, *, dark: bool, colour: bool) -> None:
        self.colour = colour
        self._of = {role: pair[1 if dark else 0] for role, pair in PALETTE.items()}

    def hex(self, role: str) -> str:
        return self._of[role]

    def style(self, role: str = "", *, on: str = "paper", bold: bool = False) -> Style:
        """Words of a role on a ground; roles are those of the palette, and `critical`,
        `warning`, `info`, `gone`."""
        name, strong = _ROLES.get(role, (role or "ink", False))
        return Style(color=self._of[name], bgcolor=self._of[on], bold=bold or strong)


def look_of(widget: Widget) -> Look:
    """That of the app in which a widget is."""
    app: Live = widget.app  # type: ignore[assignment]
    return app.look


_ROLES: Final = {
    "critical": ("communication", True),
    "warning": ("ink", True),
    "info": ("muted", False),
    "gone": ("muted", False),
    "strong": ("ink", True),
    "died": ("communication", True),
    "silent": ("communication", False),
}
