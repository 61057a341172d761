"""How long steps took, as charts show them."""

from __future__ import annotations

import re

import numpy as np
import pytest

from dsprof.run.steps.durations import clocked
from tests.findings.unknown.test_between_steps import is_twentieth, job, written
from tests.loaded import run_of_text

TIMERS = "forward: 40.0 | backward: 50.0 | step: 10.0"


def test_what_passes_between_steps_is_shown_where_it_passed() -> None:
    run = job(lambda step: 1.5 if is_twentieth(step) else 0.0)
    shown = clocked(run.steps).set_index("step")["seconds"]
    assert shown[[25, 45]].to_numpy() == pytest.approx(0.4, rel=0.03)
    assert shown.drop([5, *range(25, 165, 20)]).max() < 0.11


def test_what_classes_leave_of_a_step_by_the_clock_is_other() -> None:
    steps = job(lambda _: 0.06, timers=TIMERS).steps
    steps = steps[steps[["seconds", "whole_seconds"]].notna().all(axis=1)]
    shown = clocked(steps)
    assert set(shown["seconds_from"]) == {"clock"}
    beyond = shown["seconds"] - steps["seconds"]
    assert beyond.to_numpy() == pytest.approx(0.06, rel=0.05)
    assert (shown["other"] - steps["other"]).to_numpy() == pytest.approx(beyond.to_numpy())
    assert np.array_equal(shown["optimizer"], steps["optimizer"])


def test_timers_stay_what_is_shown_where_the_clock_tells_few_steps() -> None:
    run = job(lambda _: 0.06, timers=TIMERS)
    assert run.steps["whole_from"].eq("clock").sum() == 31
    assert clocked(run.steps) is run.steps


def test_time_stamps_that_are_too_coarse_for_single_windows_show_their_mean() -> None:
    """Every fifth step takes 1 s, the others 0.1 s: these alone are printed."""
    lines = written(lambda _: 0.0, takes=lambda step: 0.1 if step % 5 else 1.0)
    lines = [re.sub(r"(:\d\d),\d{3}\]", r"\1,000]", line) for line in lines]
    steps = run_of_text(*lines).steps
    assert set(steps["whole_from"].dropna()) == {"clock"}
    shown = clocked(steps)["seconds"].iloc[1:]
    assert shown.to_numpy() == pytest.approx(0.28, rel=0.03)
