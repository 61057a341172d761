"""The style of figures: colours by role, the order of classes, their names and patterns.

Figures use the light colours. The page makes them dark by replacing each colour exactly, so every
colour of a figure must be in `PALETTE`.
"""

from __future__ import annotations

from typing import Final

from dsprof.colours import PALETTE
from dsprof.events import Class

__all__ = ["LABEL", "MIXED", "PALETTE", "PATTERN", "SHORT", "STACK", "colour"]


def colour(role: str) -> str:
    """The light colour of a role."""
    return PALETTE[role][0]


#: Role of timers that include both compute and communication and do not separate them.
MIXED: Final = "mixed"

#: Order of a stack from bottom to top. Communication, the page's subject, is next to the axis.
STACK: Final = (
    str(Class.COMMUNICATION),
    str(Class.WAIT),
    MIXED,
    str(Class.COMPUTE),
    str(Class.OPTIMIZER),
    str(Class.DATA),
    str(Class.OFFLOAD),
    str(Class.CHECKPOINT),
    str(Class.OTHER),
)

#: Names of the classes for readers.
LABEL: Final = {
    "communication": "communication (collectives)",
    "wait": "waiting for a pipeline peer",
    "mixed": "compute or communication",
    "compute": "compute",
    "optimizer": "optimizer",
    "data": "data loading",
    "offload": "offload",
    "checkpoint": "checkpoint",
    "other": "no timer or other",
    "unknown": "no timer",
}

#: Shorter names, where there is little room.
SHORT: Final = {
    "communication": "communication",
    "wait": "waiting",
    "mixed": "compute or communication",
    "compute": "compute",
    "optimizer": "optimizer",
    "data": "data",
    "offload": "offload",
    "checkpoint": "checkpoint",
    "other": "other",
    "unknown": "no timer",
}

#: Patterns that distinguish classes where colour does not suffice.
PATTERN: Final = {
    "wait": "/",
    "mixed": "+",
    "optimizer": "\\",
    "data": ".",
    "offload": "x",
    "checkpoint": "|",
    "other": "-",
}


#: Classes with light text, because their colours are dark in both themes.
_PALE_TEXT: Final = ("communication", "compute", "mixed", "offload", "checkpoint")


def text_on(role: str) -> str:
    """The colour of text on an area of that role."""
    return colour("paper" if role in _PALE_TEXT else "ink")


def fill(role: str) -> dict[str, object]:
    """A plotly marker for an area of that role."""
    marker: dict[str, object] = {"color": colour(role), "line": {"width": 0}}
    if role in PATTERN:
        stroke = colour("communication" if role in ("wait", MIXED) else "paper")
        marker["pattern"] = {
            "shape": PATTERN[role],
            "size": 5,
            "solidity": 0.25,
            "fillmode": "overlay",
            "fgcolor": stroke,
            "bgcolor": colour(role),
        }
    return marker
