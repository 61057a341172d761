"""The one exception that reaches the user: what was wrong, where, what to do."""

from __future__ import annotations


class DsprofError(Exception):
    """The input or the environment is at fault.

    Printed by the command line as one line on standard error, exit code 1.

    Args:
        what: what was wrong, a sentence without a full stop.
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
    """A dialect file says something that cannot be meant."""

    def __init__(self, what: str, where: str = "", todo: str = "see parsers/README.md") -> None:
        super().__init__(what, where, todo)
