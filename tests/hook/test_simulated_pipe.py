"""A pipeline on simulated GPUs: what the recording says, beside what the devices did."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

import pytest

from dsprof import load
from dsprof.analysis.transfers import transfers
from dsprof.run import Run
from tests.hook.rows import Rows

JOB = ("simulated_pipe",)
KINDS = ["even", "late", "slow"]
MICRO_BATCH, MICROS = 0.018, 4  # seconds that a stage computes, and how often in a step
LATER = 1.5 * MICROS * MICRO_BATCH  # seconds that the last stage computes more, where it is late
SECONDS = {"even": 0.0002, "late": 0.0002, "slow": 0.008}  # of a message


@pytest.fixture
def run(results: list[dict[str, Any]], out: Path, kind: str) -> Run:
    assert kind in results[0]
    return load(out / kind)


@pytest.mark.parametrize("kind", KINDS)
def test_steps_and_what_they_wait_for_others_are_those_of_the_devices(
    results: list[dict[str, Any]], rows: list[Rows], kind: str
) -> None:
    for recorded, result in zip(rows, results, strict=True):
        found = [(one.length * 1e-9, one.classes[1] + one.classes[2]) for one in recorded.steps[1:]]
        assert len(found) == len(result[kind])
        for place in range(2):
            mine, its = (median(one[place] for one in each) for each in (found, result[kind]))
            assert mine == pytest.approx(its, rel=0.01)


@pytest.mark.parametrize("kind", KINDS)
def test_a_message_takes_what_the_link_takes(run: Run, kind: str) -> None:
    found = transfers(run.moments(run.steps.iloc[1:]), [0, 1])
    assert len(found) >= 2 * MICROS * 10
    assert found["seconds"].median() == pytest.approx(SECONDS[kind], abs=5e-5)


@pytest.mark.parametrize("kind", ["even"])
def test_a_bubble_is_what_even_stages_wait_for(run: Run) -> None:
    found = {one.rule: one for one in run.findings}["pipeline-bubble"]
    assert found.seconds_per_step == pytest.approx(MICRO_BATCH, rel=0.05)
    assert "pipeline-imbalance" not in {one.rule for one in run.findings}


@pytest.mark.parametrize("kind", ["late"])
def test_the_stage_that_computes_longer_is_named(run: Run) -> None:
    found = run.findings[0]
    assert (found.rule, found.ranks) == ("pipeline-imbalance", (1,))
    assert found.seconds_per_step == pytest.approx(LATER, rel=0.02)


@pytest.mark.parametrize("kind", ["slow"])
def test_slow_messages_are_no_bubble_and_cost_what_a_job_without_them_is_quicker(
    results: list[dict[str, Any]], run: Run
) -> None:
    found = run.findings[0]
    assert found.rule == "pipeline-imbalance"
    assert "beyond the bubble: each takes 8." in found.title
    slow, quick = (median(step for step, _ in results[0][kind]) for kind in ("slow", "even"))
    assert found.gain is not None
    assert found.gain[1] == pytest.approx(slow - quick, rel=0.1)
