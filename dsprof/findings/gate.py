"""Whether a run may pass a gate that asks for findings of some severity."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dsprof.events import Severity
from dsprof.findings.facts import NO_TIMERS, Facts
from dsprof.findings.rules import findings_of
from dsprof.findings.thresholds import COMMUNICATION_CRITICAL, COMMUNICATION_WARNING
from dsprof.findings.unknown.undivided import only_timer, undivided_share
from dsprof.units import format_share

if TYPE_CHECKING:
    from dsprof.run import Run

_RISING: Final = tuple(Severity)
_FROM: Final = {Severity.CRITICAL: COMMUNICATION_CRITICAL}


def trips(run: Run, least: Severity) -> bool:
    """Whether something is wrong that is at least that severe."""
    wrong = (found.severity for found in findings_of(run) if found.rule != "healthy")
    return any(_RISING.index(one) >= _RISING.index(least) for one in wrong)


def unjudged(run: Run, least: Severity) -> str | None:
    """Why a run whose gate does not trip may still be that severely wrong; None if it may not."""
    if run.meta.get("jobs"):
        return "the files are of several jobs, of which only one was judged"
    return next(filter(None, (_unjudged(facts, least) for facts in run.judged)), None)


def _unjudged(facts: Facts, least: Severity) -> str | None:
    """Time that may all be communication could be as bad as what was asked for."""
    if facts.breakdown is None or only_timer(facts):
        return NO_TIMERS
    if facts.no_basis is not None:
        return facts.no_basis
    share = undivided_share(facts)
    if share < _FROM.get(least, COMMUNICATION_WARNING):
        return None
    return f"up to {format_share(share)} of a step may be communication"
