"""Determined AI: what its harness and its master log around a trial."""

from __future__ import annotations

import pytest

from tests.loaded import run_of_text

REPORT = (
    "[2024-03-15T16:29:{:02d}.500000Z] 5c902731 [rank=0] || INFO: [62] determined.core: "
    "report_training_metrics(steps_completed={}, metrics={{'loss': {}}})\n"
)
ENDED = (
    "[2024-03-15T16:29:50.000000Z] 5c902731 || ERROR: crashed: resources failed with non-zero "
    "exit code: container failed with non-zero exit code: 137 (exit code 137)\n"
)


def test_metrics_that_a_trial_reports_are_of_the_batch_that_they_name_and_timed_by_its_clock() -> (
    None
):
    run = run_of_text(*(REPORT.format(n, 100 * n, 1 / n) for n in range(1, 9)))
    assert run.steps["step"].tolist() == [100 * n for n in range(1, 9)]
    assert run.steps["loss"].tolist() == pytest.approx([1 / n for n in range(1, 9)])
    assert run.steps["seconds"].dropna().tolist() == pytest.approx([0.01] * 7)


def test_a_container_of_a_trial_that_failed_is_a_failure() -> None:
    run = run_of_text(REPORT.format(1, 100, 2.5), ENDED)
    assert "exit code: 137" in run.findings[0].title
