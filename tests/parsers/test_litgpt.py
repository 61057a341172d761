"""Lines of LitGPT's loops."""

from __future__ import annotations

import pytest

from dsprof.events import Severity
from dsprof.findings.gate import trips, unjudged
from tests.loaded import run_of_text


def test_micro_batches_of_litgpt_add_up_to_the_step_that_the_last_one_closes() -> None:
    text = "".join(
        f"iter {2 * step - 1} step {step - 1}: loss 3.1250, iter time: 500.50ms\n"
        f"iter {2 * step} step {step}: loss 3.0000, iter time: 750.25ms (optimizer.step)\n"
        for step in range(1, 7)
    )
    run = run_of_text(text)
    assert run.steps["step"].tolist() == list(range(1, 7))
    assert run.steps["seconds"].tolist() == pytest.approx([1.25075] * 6)
    (found,) = (one for one in run.findings if one.rule == "unaccounted-time")
    assert found.title == (
        "A step takes 1.25 s; where that goes is unknown: its one timer, iter_time, holds all of it"
    )
    assert not trips(run, Severity.WARNING)
    assert unjudged(run, Severity.WARNING)
