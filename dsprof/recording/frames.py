"""Calls that the training thread was in, as a recording tells them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

from dsprof.quotes import quoted
from dsprof.recording.layout import BETWEEN_CALLS, CALLS

_LONG: Final = 60  #: letters of a name that a sentence has room for
_LONGEST: Final = 450  #: letters of a frame
_LINE: Final = re.compile(r":(\d{1,9})$")


class Frame(NamedTuple):
    """One call: `line` is 0 where it is unknown, as in libraries."""

    function: str
    file: str
    line: int

    @property
    def is_own(self) -> bool:
        """Whether it is of the job's own code, and of no library."""
        return self.file.startswith(("/", "./"))

    @property
    def is_script(self) -> bool:
        """Whether it is the script itself, which calls all that runs."""
        return self.function == "<module>"

    @property
    def told(self) -> str:
        """As a title has it: `score (train.py:12)`, of a script `train.py:12`."""
        file = quoted(self.file.rpartition("/")[2] if self.is_own else self.file, _LONG)
        place = f"{file}:{self.line}" if self.line else file
        return place if self.is_script else f"{quoted(self.function, _LONG)} ({place})"


def frames_of(text: Any) -> tuple[Frame, ...]:
    """The calls of a stack, the innermost first; none if it was not kept, or is longer than any."""
    if not isinstance(text, str) or len(text) > CALLS * _LONGEST:
        return ()
    return _parsed(text)


def told_of(frames: Sequence[Frame]) -> str:
    """The innermost call, and which of the job's own made it."""
    inner, own = frames[0], next((one for one in frames if one.is_own), None)
    return inner.told if own is None or own == inner else f"{inner.told}, called by {own.told}"


def line_of(frames: Sequence[Frame]) -> str:
    """The innermost call of the job's own code, or of all if none is its own."""
    return next((one for one in frames if one.is_own), frames[0]).told


@lru_cache(maxsize=4096)
def _parsed(text: str) -> tuple[Frame, ...]:
    told = (_frame(one) for one in text.split(BETWEEN_CALLS, CALLS)[:CALLS])
    return tuple(frame for frame in told if frame.file)


def _frame(text: str) -> Frame:
    """As `function (file:line)` tells it; names of functions hold no blank."""
    function, _, place = text.removesuffix(")").partition(" (")
    line = _LINE.search(place)
    return Frame(function, place[: line.start()] if line else place, int(line[1]) if line else 0)
