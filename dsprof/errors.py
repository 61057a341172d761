"""The only exception that is shown to users: what was wrong, where, and what to do."""

from __future__ import annotations


class DsprofError(Exception):
    """The input or the environment is at fault.

    Printed by the command line as one line on standard error, exit code 1.

    Args:
        what: what was wrong, without a full stop; it follows `where` in the message.
        where: the file, line or setting, or "".
        todo: what the user can do about it, or "".
    """

    def __init__(self, what: str, where: str = "", todo: str = "") -> None:
        self.what, self.where, self.todo = what, where, todo
        super().__init__(what)

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        advice = f" ({self.todo})" if self.todo else ""
        return f"{place}{self.what}{advice}"


class GrammarError(DsprofError):
    """A dialect file is invalid."""

    def __init__(self, what: str, where: str = "", todo: str = "see parsers/README.md") -> None:
        super().__init__(what, where, todo)
