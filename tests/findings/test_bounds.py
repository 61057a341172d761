"""What costs more than its step is no finding; a slow first step is no part of a short run."""

from __future__ import annotations

import numpy as np

from dsprof.analysis.breakdown import main_steps
from dsprof.events import Severity
from dsprof.findings import Finding
from dsprof.findings.bounds import bounded
from dsprof.findings.facts import Facts
from tests.findings.test_throughput import run_with

FACTS = Facts(run_with(np.array([1.0, 1.0, 1.0, 1.0])))


def costing(seconds: float | None, share: float | None) -> list[Finding]:
    return [Finding("any", Severity.WARNING, "", "", share=share, seconds_per_step=seconds)]


def test_a_cost_beyond_the_step_contradicts_the_source() -> None:
    why = bounded(costing(1.5, None), FACTS)
    assert isinstance(why, str)
    assert "1.50 s per step" in why
    assert isinstance(bounded(costing(None, 1.37), FACTS), str)


def test_a_cost_of_the_whole_step_stands() -> None:
    found = costing(1.0, 1.0)
    assert bounded(found, FACTS) is found


def test_a_first_step_far_above_the_others_is_left_out_of_a_short_run() -> None:
    steps = main_steps(run_with(np.array([0.837, 0.012, 0.019, 0.010])).steps)
    assert steps["step"].tolist() == [2, 3, 4]


def test_a_first_step_like_the_others_stays_and_so_does_one_of_two() -> None:
    assert len(main_steps(run_with(np.array([2.0, 1.0, 1.0])).steps)) == 3
    assert len(main_steps(run_with(np.array([9.0, 1.0])).steps)) == 2
