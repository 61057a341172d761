"""The code that a recording saw running where no phase tells what runs, in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pandas as pd

from dsprof.analysis.looks import Code, share_of_looks
from dsprof.findings.evidence import row_evidence
from dsprof.findings.facts import Facts
from dsprof.findings.finding import Advice, Evidence
from dsprof.quotes import quoted

LITTLE: Final = 0.2  #: a part of the time at a place that others than those meant may spend there
_LONG: Final = 120  #: letters of a name


def others_look_alike(
    facts: Facts, phase: str, ranks: Sequence[int], *, inside: bool = False
) -> bool:
    """Whether other ranks than these spend time behind or inside a phase, too: what runs there is
    then not what only these do."""
    told, known = facts.run.told, facts.run.phases["rank"].dropna().unique()
    others = [one for one in known if one not in ranks]
    mine, theirs = (
        share_of_looks(told, phase, inside=inside, ranks=one) for one in (ranks, others)
    )
    return bool(others) and not theirs <= LITTLE * mine


def beginning(steps: pd.DataFrame) -> pd.Timestamp | None:
    """A moment in the first of some steps: what looks saw is told at the end of a step, and what is
    told at the end of this one, or later, is of it and those behind it. No end of the step before,
    as a warm-up, which each rank has at a moment of its own."""
    told = steps[steps["at"].notna()]
    if told.empty:
        return None
    first = told.iloc[int(told["at"].argmin())]
    half = 0.0 if pd.isna(first["seconds"]) else float(first["seconds"]) / 2
    moment: pd.Timestamp = first["at"] - pd.Timedelta(seconds=half)
    return moment


def said(code: Code) -> str:
    """A sentence."""
    caller = f", called by {code.caller}" if code.caller else ""
    line = f":{code.line}" if code.line else ""
    where = f"{quoted(code.function, _LONG)} ({quoted(code.file, _LONG)}{line}){caller}"
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
