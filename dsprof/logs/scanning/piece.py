"""What is read at once of a source."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Piece:
    """Whole lines, as they come, and what was found in them.

    Attributes:
        text: without colours.
        offset: its place in the source.
        lines: how many went before it.
        unended: it is a last line without its end.
        taken: where the lines begin that hold a record.
        numbered: records that a progress bar numbers: where they begin, their line's number
            in the source, who printed them.
    """

    text: bytes
    offset: int
    lines: int
    unended: bool = False
    taken: set[int] = field(default_factory=set)
    numbered: list[tuple[int, int, int]] = field(default_factory=list)
