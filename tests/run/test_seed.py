"""The required numbers of step 30 of the 2023 pipeline log."""

from __future__ import annotations

import pytest

from dsprof.run import from_events
from tests.run.run_rows import events, grammar_with, seed_line_30


def test_step_30_of_the_pipeline_log_splits_without_double_counting() -> None:
    run = from_events(events(seed_line_30()), grammar=grammar_with())
    step = run.steps.iloc[0]
    assert step["seconds"] == 5.792
    assert step["wait"] == pytest.approx(4.1090, abs=5e-5)
    assert step["communication"] == pytest.approx(0.2955, abs=5e-5)
    assert step["compute"] == pytest.approx(1.3227, abs=5e-5)
    assert step["optimizer"] == pytest.approx(0.0632, abs=5e-5)
    assert step["data"] == pytest.approx(0.0009, abs=5e-5)
    assert step["communication_share"] == pytest.approx(0.760, abs=5e-4)
    assert step["bound"] == "pipeline"
