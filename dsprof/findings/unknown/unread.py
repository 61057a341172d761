"""Sources whose lines that look like metrics are mostly of no format that is known."""

from __future__ import annotations

import shlex
from typing import Final

from dsprof.findings.facts import Facts
from dsprof.findings.finding import Advice

_LINES: Final = 5  #: fewer may look like metrics by chance


def mostly_unread(facts: Facts) -> bool:
    """Whether what a source shows may stand in lines that no dialect reads."""
    read = facts.run.coverage
    if read is None:
        return False
    left = read.metric_lines - read.read_lines
    return bool(left >= _LINES and left > read.read_lines)


def some_unread(facts: Facts) -> bool:
    """Whether a line looks like metrics that no dialect reads."""
    read = facts.run.coverage
    return read is not None and read.metric_lines > read.read_lines


def said_of_unread(facts: Facts) -> str:
    """How many such lines there are, as a sentence of a summary; "" if they are few."""
    if not mostly_unread(facts):
        return ""
    read = facts.run.coverage
    left = read.metric_lines - read.read_lines
    return f"{left:,} of {read.metric_lines:,} lines that look like metrics are not understood. "


def read_them(facts: Facts) -> tuple[Advice, ...]:
    """How such lines can be read nevertheless."""
    if not mostly_unread(facts):
        return ()
    sources = facts.run.told["source"].dropna().unique()
    which = shlex.quote(str(sources[0])) if len(sources) == 1 else "PATH"
    return (
        Advice(
            f"dsprof parsers --unknown {which}",
            "",
            "see the shapes of these lines",
            "a file of your own teaches dsprof to read them (--parsers DIR)",
        ),
    )
