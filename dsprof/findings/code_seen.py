"""The code that a recording saw running where no phase tells what runs, in words."""

from __future__ import annotations

from typing import Final

from dsprof.analysis.looks import Code
from dsprof.findings.evidence import row_evidence
from dsprof.findings.finding import Advice, Evidence
from dsprof.quotes import quoted

_LONG: Final = 120  #: letters of a name


def said(code: Code) -> str:
    """A sentence."""
    caller = f", called by {code.caller}" if code.caller else ""
    where = f"{quoted(code.function, _LONG)} ({quoted(code.file, _LONG)}:{code.line}{caller})"
    return f"At {code.often} looks the training thread was in {where}."


def proof(code: Code | None) -> tuple[Evidence, ...]:
    if code is None:
        return ()
    return (row_evidence(code.row, f"{code.seen_there:,} looks: {code.stack}"),)


def change(code: Code | None, to: str = "quicker, or less often") -> tuple[Advice, ...]:
    return () if code is None else (Advice(code.name, "", to, "it is what runs there"),)


def mostly(code: Code | None) -> str:
    """The end of a title or sentence."""
    return "" if code is None else f", mostly in {code.name}"
