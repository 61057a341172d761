"""Findings of a source that numbers no step: what they call a step is a record of it."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace
from typing import Final

from dsprof.findings.finding import Finding

_NUMBERED: Final = re.compile(r"\b([Ss])teps? (\d[\d,]*(?:(?: to | and steps? )\d[\d,]*)?)")
_SPAN: Final = re.compile(
    r"(printed steps?|windows? of \S+ steps), (?:printed at )?\d[\d,]*(?: to \d[\d,]*)?"
)
_NOTE: Final = " Records are counted as they were printed: which steps they belong to is unknown."


def unnumbered(found: Finding, quoted: Collection[str]) -> Finding:
    """The same with records in the place of steps, wherever it gives a number.

    Args:
        quoted: what lines of the log say, which is left as it stands where it is the proof.
    """
    title, summary = _records(found.title), _records(_SPAN.sub(r"\1", found.summary))
    proofs = tuple(
        proof if proof.text in quoted else proof._replace(text=_records(proof.text))
        for proof in found.evidence
    )
    if title != found.title or proofs != found.evidence:
        summary += _NOTE
    return replace(found, title=title, summary=summary, evidence=proofs, steps=None)


def _records(text: str) -> str:
    return _NUMBERED.sub(lambda said: f"{'Rr'[said[1] == 's']}ecord {said[2]}", text)
