"""Timers that lack a part of every step: their sum is not how long a step takes."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from dsprof.run import Run, from_events
from tests.run.run_rows import events, grammar_with, metric, timers

LINE: dict[str, Any] = {"forward": 0.3, "backward": 0.6, "step": 0.1}


def run_of(*rows: dict[str, Any]) -> Run:
    stage = {"kind": "config", "name": "zero_stage", "value": 1}
    return from_events(events([stage, *rows]), grammar=grammar_with())


def lines(*lacking: str, count: int = 4) -> list[dict[str, Any]]:
    held = {name: seconds for name, seconds in LINE.items() if name not in lacking}
    return [row for step in range(1, count + 1) for row in timers("zero", step, **held)]


@pytest.mark.parametrize("lacking", sorted(LINE))
def test_steps_without_forward_backward_or_update_are_of_unknown_length(lacking: str) -> None:
    run = run_of(*lines(lacking))
    assert run.steps["seconds"].isna().all()
    assert "partial-timers" in set(run.repairs["name"])
    whole = run_of(*lines())
    assert whole.steps["seconds"].tolist() == [pytest.approx(1.0)] * 4
    assert "partial-timers" not in set(whole.repairs["name"])


def test_the_optimizers_own_lines_are_no_step() -> None:
    rows = [row for n in (1, 2) for row in timers("zero-optimizer", n, optimizer_step=0.08)]
    run = run_of(*rows, metric("loss", 1, 2.0), metric("loss", 2, 2.0))
    assert run.steps["seconds"].isna().all()
    assert run.repairs["name"].tolist() == ["partial-timers"]


def test_a_length_that_is_stated_stays_and_raises_no_doubt() -> None:
    said = [metric("step_seconds", step, 2.0) for step in range(1, 5)]
    run = run_of(*lines("backward"), *said)
    assert run.steps["seconds"].tolist() == [2.0] * 4
    assert run.repairs.empty


def test_the_clock_tells_the_length_of_steps_whose_timers_are_partial() -> None:
    start = pd.Timestamp("2024-05-01")
    marks = [metric("lr", n, 0.1, at=start + pd.Timedelta(seconds=2 * n)) for n in range(1, 5)]
    run = run_of(*lines("backward"), *marks)
    assert run.steps["seconds"].dropna().tolist() == [2.0] * 3
    assert set(run.steps["seconds_from"].dropna()) == {"clock"}
    assert run.repairs["name"].tolist() == ["partial-timers"]


def test_a_dialect_of_its_own_words_is_taken_at_its_word() -> None:
    rows = [row for n in (1, 2) for row in timers("own", n, compute=0.4)]
    assert run_of(*rows).steps["seconds"].notna().all()
