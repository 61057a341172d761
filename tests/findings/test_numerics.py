"""Overflows and losses that are none."""

from __future__ import annotations

import math

import pytest

from dsprof.events import Severity
from tests.findings.plants import WELL, metric, one, run_of, silent, steps, why


def skipped(*counts: tuple[int, int]) -> list[dict[str, object]]:
    return [metric("skipped", step, count) for step, count in counts]


def test_skips_of_the_start_are_a_warning_that_says_they_are_over() -> None:
    found = one(run_of(steps(40, WELL) + skipped((30, 18), (40, 18))), "overflow-streak")
    assert found.title == "18 of 40 steps were skipped: gradients overflowed"
    assert found.severity is Severity.WARNING
    assert found.share == pytest.approx(0.45)
    assert found.seconds_per_step == pytest.approx(0.45)
    assert "No more since step 30" in found.summary
    assert found.gain is None


def test_skips_that_go_on_are_critical() -> None:
    found = one(
        run_of(steps(40, WELL) + skipped((10, 4), (20, 8), (30, 12), (40, 16))), "overflow-streak"
    )
    assert found.severity is Severity.CRITICAL
    assert "8 of the last 20" in found.summary or "4 of the last 10" in found.summary


def test_a_skip_now_and_then_is_no_finding() -> None:
    assert silent(run_of(steps(100, WELL) + skipped((50, 1), (100, 2))), "overflow-streak")


def test_a_resumed_run_is_judged_by_what_it_skipped_itself() -> None:
    rows = [metric("step_seconds", s, 1.0) for s in range(1001, 1041)]
    found = one(run_of(rows + skipped((1001, 0), (1040, 13))), "overflow-streak")
    assert found.title.startswith("13 of 39 steps")


def test_the_scale_that_was_found_is_advised() -> None:
    rows = [*skipped((30, 18), (40, 18)), metric("loss_scale", 40, 2.0**14)]
    json = '{"fp16": {"enabled": true, "initial_scale_power": 32}}'
    found = one(run_of(steps(40, WELL) + rows, ds_config=json), "overflow-streak")
    assert found.advice[0][:3] == ("fp16.initial_scale_power", "32", "14")


def test_a_log_that_counts_no_skips_is_not_judged() -> None:
    assert why(run_of(steps(40, WELL)), "overflow-streak") == "no line counts skipped steps"


def test_a_loss_that_stays_nan_is_critical() -> None:
    rows = [metric("loss", s, 2.0 if s < 20 else math.nan) for s in range(1, 41)]
    found = one(run_of(steps(40, WELL) + rows), "nan-loss")
    assert found.severity is Severity.CRITICAL
    assert found.title == "The loss is not finite at step 20"
    assert found.steps == (20, 40)


def test_a_loss_that_recovers_is_a_warning() -> None:
    rows = [metric("loss", s, math.inf if s == 20 else 2.0) for s in range(1, 41)]
    assert one(run_of(steps(40, WELL) + rows), "nan-loss").severity is Severity.WARNING


def test_finite_losses_are_no_finding() -> None:
    rows = [metric("loss", s, 2.0) for s in range(1, 41)]
    assert silent(run_of(steps(40, WELL) + rows), "nan-loss")


def test_an_infinite_gradient_of_a_skipped_step_is_the_loss_scaler_at_work() -> None:
    rows = [metric("loss", s, 2.0) for s in range(1, 41)]
    rows += [metric("grad_norm", 7, math.inf), metric("overflow", 7, 1.0)]
    assert silent(run_of(steps(40, WELL) + rows), "nan-loss")


def test_without_a_loss_nothing_is_said() -> None:
    assert "no line shows a loss" in (why(run_of(steps(40, WELL)), "nan-loss") or "")


def test_overflows_of_a_log_without_steps_are_counted_once_for_all_ranks() -> None:
    told = [
        {"kind": "metric", "name": "overflow", "raw": "overflow", "value": 1.0, "rank": rank}
        for _ in range(4)
        for rank in range(2)
    ]
    found = one(run_of(told), "overflow-streak")
    assert found.title == "4 steps were skipped: gradients overflowed"
    assert found.share is None


def test_steps_that_are_not_finite_are_counted_once_and_told_in_words() -> None:
    names = ("loss", "grad_norm")
    bad = [metric(name, 20, float("nan"), text="nan") for name in names]
    well = [metric("loss", step, 2.0) for step in (10, 30, 40)]
    found = one(run_of([*well[:1], *bad, *well[1:]]), "nan-loss")
    assert found.title == "The gradient norm and loss are not finite at step 20"
    assert "1 of the printed steps" in found.summary


def test_overflows_of_which_only_some_have_a_step_are_all_counted() -> None:
    told = [
        {"kind": "metric", "name": "overflow", "raw": "overflow", "value": 1.0, "rank": 0}
        | ({"step": 380} if n == 0 else {})
        for n in range(5)
    ]
    found = one(run_of([metric("loss", 380, 2.0), *told]), "overflow-streak")
    assert found.title == "5 steps were skipped: gradients overflowed"
