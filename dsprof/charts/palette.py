"""What figures are drawn with: colours by role, the order of classes, their names and patterns.

Figures are drawn in the light colours. The page turns them dark by exact
substitution, so every colour a figure uses must stand in `PALETTE`.
"""

from __future__ import annotations

from typing import Final

from dsprof.colours import PALETTE
from dsprof.events import Class

__all__ = ["LABEL", "MIXED", "PALETTE", "PATTERN", "SHORT", "STACK", "colour"]


def colour(role: str) -> str:
    """The light colour of a role."""
    return PALETTE[role][0]


#: Timers that hold compute and communication and cannot tell them apart.
MIXED: Final = "mixed"

#: Bottom of a stack to its top: what the page is about stands on the axis.
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

#: What a class is called where a person reads it.
LABEL: Final = {
    "communication": "communication (collectives)",
    "wait": "waiting for a pipeline peer",
    "mixed": "compute or communication",
    "compute": "compute",
    "optimizer": "optimizer",
    "data": "data loading",
    "offload": "offload",
    "checkpoint": "checkpoint",
    "other": "other or not timed",
    "unknown": "not broken down",
}

#: The same in one word, where there is little room.
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
    "unknown": "not broken down",
}

#: Hatching tells classes apart where colour cannot.
PATTERN: Final = {
    "wait": "/",
    "mixed": "+",
    "optimizer": "\\",
    "data": ".",
    "offload": "x",
    "checkpoint": "|",
    "other": "-",
}


#: What is written upon a class: light on dark ones, in both themes.
_PALE_TEXT: Final = ("communication", "compute", "mixed", "offload", "checkpoint")


def text_on(role: str) -> str:
    """The colour of words upon an area of that role."""
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
