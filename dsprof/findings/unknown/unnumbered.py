"""Findings of a source that numbers no step: what they call a step is a record of it."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace
from typing import Final

from dsprof.findings.finding import Finding

_NUMBER: Final = r"\d+(?:,\d{3})*"
_NUMBERED: Final = re.compile(
    rf"\b([Ss])tep(s?) ({_NUMBER}(?:(?: to | and (?:steps? )?){_NUMBER})?)"
)
_SPAN: Final = re.compile(
    rf"(printed steps?|windows? of \S+ steps), (?:printed at )?{_NUMBER}(?: to {_NUMBER})?"
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
    return _NUMBERED.sub(lambda said: f"{'Rr'[said[1] == 's']}ecord{said[2]} {said[3]}", text)
