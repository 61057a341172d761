"""Findings of a source that numbers no step."""

from __future__ import annotations

import pytest

from dsprof.events import Severity
from dsprof.findings.finding import Finding
from dsprof.findings.unknown.unnumbered import unnumbered


@pytest.mark.parametrize(
    ("numbered", "said"),
    [
        ("mean of 3 printed steps, 20 to 40", "mean of 3 printed steps"),
        ("one printed step, 1,200, without 2", "one printed step, without 2"),
        ("mean of 3 windows of 10 steps, printed at 20 to 40", "mean of 3 windows of 10 steps"),
        ("one window of 10 steps, printed at 20", "one window of 10 steps"),
        (
            "mean of 3 windows of several steps, printed at 1 to 40, without 2",
            "mean of 3 windows of several steps, without 2",
        ),
    ],
)
def test_what_a_mean_is_of_has_no_numbers(numbered: str, said: str) -> None:
    found = Finding("any", Severity.WARNING, "", f"It takes 2 s ({numbered}).", share=0.5)
    assert unnumbered(found, ()).summary == f"It takes 2 s ({said})."


def test_steps_with_numbers_are_records_and_that_is_said() -> None:
    found = Finding("any", Severity.WARNING, "Steps 3 and 4 stick out", "They do.", steps=(3, 4))
    told = unnumbered(found, ())
    assert told.title == "Records 3 and 4 stick out"
    assert told.summary.startswith("They do. Records are counted as they were printed")
    assert told.steps is None
