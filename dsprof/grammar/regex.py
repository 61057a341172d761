"""Regular expressions of dialects, compiled when they are first used."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cached_property
from typing import Final

#: A sign that is escaped, a set of signs, or the name of a group.
_NAMES: Final = re.compile(rb"\\.|\[\^?\]?(?:\\.|[^\\\]])*\]|\(\?P<(\w+)>", re.DOTALL)


class Regex:
    """Compiling those of all dialects takes a sixth of a short report; a log needs a few of them.

    Attributes:
        pattern: its text.
    """

    def __init__(self, pattern: bytes) -> None:
        self.pattern = pattern

    @property
    def names(self) -> set[str]:
        """Of its groups, known without compiling it."""
        return {name.decode() for name in _NAMES.findall(self.pattern) if name}

    @cached_property
    def compiled(self) -> re.Pattern[bytes]:
        return re.compile(self.pattern)

    @cached_property
    def match(self) -> Callable[..., re.Match[bytes] | None]:
        """That of `re.Pattern`, kept: it is called at each hit of a needle."""
        return self.compiled.match
