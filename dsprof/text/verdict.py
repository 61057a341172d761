"""The findings in words: the first at length, the others in a line each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from rich.console import Group, RenderableType
from rich.text import Text

from dsprof.text import words
from dsprof.text.layout import ACCENT, QUIET, STRONG, beside, columns, place, say, section
from dsprof.text.overview import Overview

if TYPE_CHECKING:
    from dsprof.findings import Advice, Finding

_EVIDENCE: Final = 3
_ADVICE: Final = 3
_OTHERS: Final = 8
_STYLE: Final = {"critical": ACCENT, "warning": STRONG, "info": QUIET}
_UNKNOWN: Final = "unknown"
_CONFIDENCE: Final = "Confidence"
_NEXT_TIME: Final = (
    'Ask the job for more: "wall_clock_breakdown": true in its DeepSpeed config, and with '
    '"log_level": "info" DeepSpeed 0.19.3 and later print steps again.'
)


def verdict_section(
    findings: list[Finding], seen: Overview, gpus: int | None = None
) -> list[RenderableType]:
    """What holds the job back, what that costs, what to change and what it gains."""
    if not findings:
        return [say(_no_verdict(seen), STRONG), say(_NEXT_TIME)]
    found = findings[0]
    cost = _cost(found, seen)
    costs = cost not in {"", _UNKNOWN}
    rows = columns(8 if costs else len(_CONFIDENCE))
    if cost == _UNKNOWN:
        rows.add_row(say("Cost", QUIET), say(cost))
    if costs:
        sure = say(f"{found.confidence} confidence", QUIET)
        rows.add_row(say("Cost", QUIET), Text(", ").join([say(cost, ACCENT), sure]))
    else:
        rows.add_row(say(_CONFIDENCE, QUIET), say(found.confidence))
    for verb, advice in _advised(found):
        rows.add_row(say(verb, QUIET), _change(advice))
    if costs and found.advice:
        gain = words.what_if(found, words.step_of(found, seen.seconds), gpus)
        rows.add_row(say("Gain", QUIET), say(gain or _UNKNOWN))
    return [say(found.title, STRONG), Text(), rows]


def _cost(found: Finding, seen: Overview) -> str:
    """What the verdict costs; "" where it costs nothing or ended the run."""
    if found.rule == "healthy":
        return ""
    if found.rule == "unaccounted-time" and not seen.parts and found.share in {None, 1}:
        return _UNKNOWN  # that nobody timed the step says nothing of what is lost in it
    return words.cost(found.seconds_per_step, found.share, words.step_of(found, seen.seconds))


def _no_verdict(seen: Overview) -> str:
    if not seen.rows:
        return "No verdict: the source tells of no optimizer step"
    if seen.seconds is None:
        return "No verdict: the source does not say how long a step takes"
    return "No verdict: no timer says where a step goes"


def _change(advice: Advice) -> Text:
    now = f"{advice.now} → {advice.to}" if advice.now else advice.to
    return Text(": ").join([say(advice.setting), say(now, STRONG)])


def reason_section(findings: list[Finding]) -> list[RenderableType]:
    """How the verdict follows from the log, where that stands, and why to change what."""
    if not findings:
        return []
    found = findings[0]
    rows = columns(8)
    for label, cell in (*_proofs(found), *_reasons(found)):
        rows.add_row(say(label, QUIET), cell)
    said = [say(found.summary)] if found.summary else []
    return section("Why", "", *said, *([rows] if rows.rows else []))


def _proofs(found: Finding) -> Iterator[tuple[str, RenderableType]]:
    """A line for each fact, and under those of one place where they stand."""
    lines: dict[tuple[str, int | None], list[str]] = {}
    for proof in found.evidence:
        lines.setdefault((proof.source, proof.line), []).append(proof.text)
    for index, ((source, line), said) in enumerate(list(lines.items())[:_EVIDENCE]):
        yield "" if index else "Proof", Group(*map(say, said), beside(place(source, line)))


def _reasons(found: Finding) -> Iterator[tuple[str, RenderableType]]:
    for verb, advice in _advised(found):
        yield verb, Text(": ").join([say(advice.setting), say(advice.why, QUIET)])


def _advised(found: Finding) -> Iterator[tuple[str, Advice]]:
    """What to change or to do; the verb stands where it is another than above."""
    above = ""
    for advice in found.advice[:_ADVICE]:
        yield "" if advice.verb == above else advice.verb, advice
        above = advice.verb


def other_section(findings: list[Finding]) -> list[RenderableType]:
    others = findings[1:]
    if not others:
        return []
    rows = columns(8)
    for found in others[:_OTHERS]:
        label = say(str(found.severity), _STYLE.get(str(found.severity), ""))
        rows.add_row(label, _line(found))
    left = len(others) - _OTHERS
    more = [say(f"{left} lesser ones are in --json", QUIET)] if left > 0 else []
    return section("Also", "", rows, *more)


def _line(found: Finding) -> RenderableType:
    proof = next((p for p in found.evidence if p.source and p.line is not None), None)
    return beside(say(found.title), place(proof.source, proof.line) if proof else Text())
