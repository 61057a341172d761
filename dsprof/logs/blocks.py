"""Lines that follow an opening line and belong to it: tables, dumps, tracebacks."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Final

from dsprof.grammar.model import Block
from dsprof.logs.torn import whole_groups

_LONGEST_JSON: Final = 1 << 18
_LONGEST_LINE: Final = 1 << 14

Found = tuple[int, tuple[bytes | None, ...]]


@dataclass(slots=True)
class OpenBlock:
    """A block that is being read.

    `wrapped` says that the opening line had something in front of its text (`margin`: what
    people put there; launchers and loggers come behind it), so its
    lines do too; `who` is whose lines they are: several ranks print at once.
    """

    pattern: int
    block: Block
    opened_at: int
    wrapped: bool
    margin: re.Pattern[bytes] | None
    who: int
    opening: bytes
    at: bytes | None
    until: int = -1  # where in the piece another opening ended it
    seen: int = 0
    missed: int = 0
    done: bool = False
    kept: dict[str, bytes | None] = field(default_factory=dict)
    _json: list[bytes] | None = None
    _length: int = 0
    _depth: int = 0

    def __post_init__(self) -> None:
        if self.block.json is not None and b"{" in self.opening:
            self._json = []
            self._collect(self.opening[self.opening.index(b"{") :])

    def read(self, text: bytes, *, is_open: bool = False) -> Found | None:
        """One line of the block: which of its shapes it has and what its groups are.

        Args:
            text: the line without what stood in front of it.
            is_open: its end is missing.
        """
        self.seen += 1
        if self.seen >= self.block.limit:
            self.done = True
        if self._json is not None:
            return self._collect(text)
        if self.block.end is not None and self.block.end.match(text):
            self.done = True
            return None
        if len(text) <= _LONGEST_LINE:
            for number, line in enumerate(self.block.lines):
                match = line.regex.match(text)
                if match is not None:
                    self.missed = 0
                    for name in line.keep:
                        self.kept[name] = match[name]
                    self.done = self.done or line.last
                    names = dict.fromkeys(name for other in self.block.lines for name in other.keep)
                    kept = tuple(self.kept.get(name) for name in names)
                    groups = match.groups()
                    if is_open and match.end() == len(text):
                        groups = whole_groups(match, line.rows) or (None,) * len(groups)
                    return (number, (*groups, *kept)) if line.rows else None
        if self.block.json is not None and text.rstrip().endswith(b"{"):
            self._json, self._length, self._depth = [], 0, 0
            return self._collect(text[text.index(b"{") :])
        self.miss()
        return None

    def miss(self) -> None:
        """A line that fits nothing: other ranks print in between, but not for ever."""
        self.missed += 1
        if self.missed > self.block.gap:
            self.done = True

    def _collect(self, text: bytes) -> Found | None:
        assert self._json is not None
        self._json.append(text)
        self._length += len(text)
        self._depth += text.count(b"{") - text.count(b"}")
        if self._length > _LONGEST_JSON:
            self.done = True
        if self._depth > 0 or self.done:
            return None
        whole = b"\n".join(self._json)
        self._json, self._length, self._depth = None, 0, 0
        self.missed = 0
        whole = whole[: whole.rfind(b"}") + 1]
        return (len(self.block.lines), (whole,)) if _is_json(whole) else None


def _is_json(text: bytes) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
