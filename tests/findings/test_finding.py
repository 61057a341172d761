"""What a finding says of itself."""

from __future__ import annotations

import pytest

from dsprof.events import Severity
from dsprof.findings.finding import Finding, less_sure, says_confidence


@pytest.mark.parametrize(
    ("said", "then"),
    [
        ("They wait, hence medium confidence in the advice.", "They wait."),
        ("They wait, hence medium confidence: none is printed.", "They wait: none is printed."),
        ("(It has no choice: medium confidence.)", "(It has no choice.)"),
        ("A. Medium confidence: the lines do not say.", "A. The lines do not say."),
        (
            "High confidence in low places is no grade.",
            "High confidence in low places is no grade.",
        ),
    ],
)
def test_a_finding_that_becomes_less_sure_says_how_sure_it_is_once(said: str, then: str) -> None:
    one = Finding("any", Severity.WARNING, "", said, confidence="medium")
    found = less_sure(one, "low", "one step only")
    assert found.summary == f"{then} Low confidence: one step only."
    assert found.confidence == "low"
    assert says_confidence(found)


def test_a_summary_that_gives_no_reason_says_nothing_of_how_sure_it_is() -> None:
    assert not says_confidence(Finding("any", Severity.WARNING, "", "They wait."))
    assert less_sure(Finding("any", Severity.WARNING, "", ""), "low", "x").summary == (
        "Low confidence: x."
    )
