"""Flushes of the allocator's cache are set against what their steps take."""

from __future__ import annotations

import pytest

from dsprof.events import Severity
from dsprof.findings import findings_of
from dsprof.run import Run
from tests.findings.plants import alone, memory, metric, one, run_of

LONG, USUAL = 1.8, 1.0


def run(*, flushing: set[int], longer: set[int], count: int = 60) -> Run:
    """Steps of a second; the `longer` ones take 1.8 s."""
    rows = [
        metric("step_seconds", step, LONG if step in longer else USUAL)
        for step in range(1, count + 1)
    ]
    return run_of([*rows, *(memory("cache_flushes", step, count=2) for step in flushing)])


def test_what_flushing_steps_take_longer_is_what_flushes_cost() -> None:
    every_third = set(range(3, 61, 3))
    found = one(run(flushing=every_third, longer=every_third), "allocator-thrash")
    assert found.seconds_per_step == pytest.approx(0.8 * 20 / 59)  # the first step warms up
    assert found.gain == pytest.approx((0.0, 0.8 * 20 / 59))
    assert "take 1.80 s, the others 1.00 s" in found.summary
    assert found.confidence == "medium"


def test_flushes_in_steps_that_take_as_long_as_all_others_cost_nothing() -> None:
    found = one(run(flushing={12, 20, 31, 44, 50}, longer={14, 33}), "allocator-thrash")
    assert found.severity is Severity.INFO
    assert found.title.endswith("10 times, which cost next to no time")
    assert (found.seconds_per_step, found.gain, found.advice) == (None, None, ())
    assert "take 1.00 s, the others 1.00 s (medians): less than 10 % more" in found.summary


def test_flushes_in_windows_of_many_steps_hide_what_they_cost() -> None:
    rows = [metric("step_seconds", step, USUAL, steps=10) for step in range(10, 610, 10)]
    found = one(run_of([*rows, memory("cache_flushes", 100, count=2)]), "allocator-thrash")
    assert found.severity is Severity.WARNING
    assert "is not in the log" in found.summary


def test_flushes_of_which_most_are_in_no_timed_step_are_not_said_to_cost_nothing() -> None:
    found = alone(run(flushing={12, 70, 71}, longer=set()), "allocator-thrash")
    assert "is not in the log" in found.summary


def test_four_steps_that_flush_and_of_which_one_is_not_longer_prove_no_price() -> None:
    found = alone(run(flushing={10, 20, 30, 40}, longer={10, 20, 30}), "allocator-thrash")
    assert found.seconds_per_step is None


def test_where_every_step_flushes_nothing_tells_what_that_costs() -> None:
    found = alone(run(flushing=set(range(1, 61)), longer=set(range(1, 61))), "allocator-thrash")
    assert found.seconds_per_step is None


def test_steps_that_stick_out_because_they_flush_are_told_so() -> None:
    some = {9, 17, 24, 38, 45, 52}
    found = alone(run(flushing=some, longer=some), "step-spikes")
    assert "In 6 of these 6 the allocator flushed its cache, in 0 of the other 53" in found.summary
    assert "PYTORCH_CUDA_ALLOC_CONF" in [advice.setting for advice in found.advice]


def test_a_slowdown_that_comes_with_flushes_is_no_matter_of_clocks() -> None:
    later = set(range(31, 61))
    slow = run(flushing=later, longer=later)
    found = one(slow, "slowdown")
    assert "In 30 of these 30 the allocator flushed its cache" in found.summary
    assert "nvidia-smi" not in " ".join(advice.to for advice in found.advice)
    assert findings_of(slow)[0].rule == "allocator-thrash"


def test_flushes_in_few_of_the_slow_steps_do_not_explain_them() -> None:
    later = set(range(31, 61))
    found = alone(run(flushing={32, 40, 51}, longer=later), "slowdown")
    assert "allocator" not in found.summary
    assert "nvidia-smi" in found.advice[0].to


def test_flushes_that_come_as_often_elsewhere_do_not_explain_a_slowdown() -> None:
    found = alone(run(flushing=set(range(1, 61)), longer=set(range(31, 61))), "slowdown")
    assert "allocator" not in found.summary
