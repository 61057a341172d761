"""Nothing costs more than the step it is taken from: a rule that says so was misled."""

from __future__ import annotations

from dsprof.findings.facts import Facts
from dsprof.findings.finding import Finding
from dsprof.units import format_seconds, format_share

#: Sums and means of floats may differ by this.
_ROUNDING = 1.001


def bounded(answer: list[Finding] | str, facts: Facts) -> list[Finding] | str:
    """A rule's answer; or why the source contradicts itself: a part exceeds the whole."""
    if isinstance(answer, str):
        return answer
    step = _average_step(facts)
    reasons = [_contradiction(one, step) for one in answer]
    return next((why for why in reasons if why), answer)


def _average_step(facts: Facts) -> float | None:
    seconds = [] if facts.steps.empty else [float(facts.steps["seconds"].mean())]
    if facts.breakdown is not None:
        seconds.append(facts.breakdown.seconds)
    return max(seconds, default=None)


def _contradiction(one: Finding, step: float | None) -> str | None:
    cost, share = one.seconds_per_step, one.share
    if cost is not None and step is not None and cost > _ROUNDING * step:
        return (
            f"the source contradicts itself: it would cost {format_seconds(cost)} per step, "
            f"but the average step takes {format_seconds(step)}"
        )
    if share is not None and share > _ROUNDING:
        return f"the source contradicts itself: it would cost {format_share(share)} of a step"
    return None
