"""What costs more than its step is no finding; a slow first step is no part of a short run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from dsprof.analysis.breakdown import engines, main_steps
from dsprof.events import Severity
from dsprof.findings import Finding, abstentions_of
from dsprof.findings.bounds import bounded
from dsprof.findings.facts import Facts
from dsprof.run import Run, from_events
from tests.findings.over_time.test_throughput import run_with
from tests.loaded import run_of_text
from tests.run.run_rows import events, grammar_with, metric, timers

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
    assert bounded(found, FACTS) == found


def test_what_lies_beside_the_steps_may_cost_more_than_one() -> None:
    """Saves of a minute, every twenty steps of a second: three seconds a step, of four."""
    found = costing(3.0, 0.75)
    assert bounded(found, FACTS) == found


def test_a_first_step_far_above_the_others_is_left_out_of_a_short_run() -> None:
    steps = main_steps(run_with(np.array([0.837, 0.012, 0.019, 0.010])).steps)
    assert steps["step"].tolist() == [2, 3, 4]


def test_a_first_step_like_the_others_stays_and_of_two_the_longer_first_one_does_not() -> None:
    assert len(main_steps(run_with(np.array([1.4, 1.0, 1.0])).steps)) == 3
    assert len(main_steps(run_with(np.array([9.0, 1.0])).steps)) == 1
    assert len(main_steps(run_with(np.array([1.0, 9.0])).steps)) == 2


def sure(steps: int, rule: str = "any", *, window: int = 1, **more: Any) -> Finding:
    """A finding of high confidence, about so many steps from the middle of a run, or means of so
    many windows of steps.
    """
    rows = [
        metric("step_seconds", 100 + n * window, 1.0, steps=window if window > 1 else None)
        for n in range(steps)
    ]
    facts = Facts(from_events(events(rows), grammar=grammar_with()))
    more = {"share": 0.5} | more
    one = Finding(rule, Severity.WARNING, "", "Nobody tells, hence medium confidence.", **more)
    answer = bounded([one], facts)
    assert isinstance(answer, list)
    return answer[0]


@pytest.mark.parametrize(("steps", "why"), [(1, "one step only"), (2, "2 steps only")])
def test_one_or_two_steps_prove_little(steps: int, why: str) -> None:
    found = sure(steps)
    assert found.confidence == "low"
    assert found.summary == f"Nobody tells. Low confidence: {why}."
    note = sure(steps, "unaccounted-time", share=None, phase="backward_inner")
    assert note.confidence == "low"


@pytest.mark.parametrize(
    ("many", "why"), [(1, "one window of 10 steps only"), (2, "2 windows of 10 steps only")]
)
def test_one_or_two_windows_of_steps_are_not_called_steps(many: int, why: str) -> None:
    assert sure(many, window=10).summary == f"Nobody tells. Low confidence: {why}."


def test_three_steps_are_believed_and_a_rule_may_be_less_sure() -> None:
    assert sure(3).confidence == "high"
    assert sure(1, confidence="low").summary == "Nobody tells, hence medium confidence."


def micro_batches(steps: Iterable[int]) -> list[dict[str, Any]]:
    parts: dict[str, Any] = {
        "forward_microstep": 0.1,
        "backward_microstep": 0.2,
        "step_microstep": 0.7,
    }
    return [
        row
        for step in steps
        for row in [*timers("zero-micro", step, None, **parts), metric("loss", step, 1.0)]
    ]


def test_a_log_of_micro_batches_alone_gives_no_high_confidence() -> None:
    rows = micro_batches(range(1, 6))
    stage = {"kind": "config", "name": "zero_stage", "value": 0}
    run = from_events(events([stage, *rows]), grammar=grammar_with())
    found = next(one for one in run.findings if one.rule == "optimizer-bound")
    assert found.confidence == "medium"
    assert "Medium confidence: only micro-batches are timed." in found.summary


def two_engines() -> Run:
    rows = []
    for step in range(1, 8):
        for engine, seconds in ((0, 0.1), (1, 0.4)):
            rows += [
                row | {"engine": engine}
                for row in (
                    *timers("zero", step, forward=0.01, backward=0.02, step=seconds),
                    metric("loss", step, 1.0 + engine),
                )
            ]
    return from_events(events(rows), grammar=grammar_with())


def test_of_two_engines_the_one_that_takes_most_is_judged_and_named() -> None:
    run = two_engines()
    assert engines(run.steps) == pytest.approx({1: 0.43, 0: 0.13})
    found = next(one for one in run.findings if one.rule == "optimizer-bound")
    assert found.share == pytest.approx(0.4 / 0.43)
    assert "of engine 1 alone, without the first step, a warm-up" in found.summary


def test_one_engine_needs_no_name() -> None:
    assert engines(run_with(np.ones(9)).steps) == {}


def test_skipped_steps_are_counted_and_need_no_timed_ones() -> None:
    one = Finding("overflow-streak", Severity.WARNING, "", "", share=0.6)
    assert bounded([one], Facts(run_with(np.ones(1)))) == [one]


def first_steps(*steps: int) -> Run:
    """A launch whose settings are told, so that the first step is known to be that."""
    rows = micro_batches(steps)
    stage = {"kind": "config", "name": "zero_stage", "value": 0}
    return from_events(events([stage, *rows]), grammar=grammar_with())


@pytest.mark.parametrize("step", [1, 501])
def test_a_launch_of_one_step_is_not_judged_by_that_warm_up(step: int) -> None:
    run = first_steps(step)
    assert run.findings[0].title == (
        "Too few steps to judge: the only one with a time is the first, a warm-up"
    )
    assert {one.rule for one in run.findings} == {"unaccounted-time"}
    assert "the first of its launch" in dict(abstentions_of(run))["unaccounted-time"]
    assert bounded(costing(0.5, 0.5), Facts(run)) == Facts(run).no_basis
    assert bounded(costing(0.5, None), Facts(run)) == costing(0.5, None)  # not of the mean


def lone_step(*before: dict[str, Any]) -> Run:
    """One step that nobody numbers, nearly all of which is its optimizer."""
    rows = [*before, *timers("zero", 1, forward=0.3, backward=0.9, step=23.0)]
    return from_events(events(rows), grammar=grammar_with(), meta={"counted_steps": True})


def test_a_lone_step_behind_settings_that_nobody_numbers_may_be_the_first_of_its_launch() -> None:
    run = lone_step({"kind": "config", "name": "zero_stage", "value": 0})
    assert run.findings[0].title == (
        "Too few steps to judge: only one has a time, which may be the first, a warm-up"
    )
    assert "may be the first of its launch" in str(Facts(run).no_basis)


def test_a_lone_step_of_an_excerpt_is_a_weak_basis() -> None:
    found = lone_step().findings[0]
    assert (found.rule, found.confidence) == ("optimizer-bound", "low")
    assert found.title.startswith("95 % of what is timed of a step is the optimizer's step")
    assert "Low confidence: one step only, which may be the first of its launch." in found.summary


def test_a_second_step_is_a_weak_basis() -> None:
    answer = bounded(costing(0.5, 0.5), Facts(first_steps(1, 2)))
    assert [one.confidence for one in answer if isinstance(one, Finding)] == ["low"]


def test_a_first_row_that_is_a_mean_over_steps_is_a_weak_basis_too() -> None:
    stage = {"kind": "config", "name": "zero_stage", "value": 0}
    rows = [stage, metric("step_seconds", 30, 1.0) | {"steps": 30}]
    run = from_events(events(rows), grammar=grammar_with())
    assert run.steps["warm_up"].tolist() == [True]
    assert Facts(run).no_basis is None


def timed(steps: int, *rates: float) -> Run:
    """Timers of 0.9 s a step, and what lines tell of whole ones in seconds, the last first."""
    rows = [{"kind": "config", "name": "train_batch_size", "value": 32}]
    for step in range(1, steps + 1):
        rows += timers("zero", step, forward=0.3, backward=0.5, backward_inner=0.5, step=0.1)
    for number, seconds in enumerate(rates):
        rows.append(metric("samples_per_second", steps - number, 32 / seconds))
    return from_events(events(rows), grammar=grammar_with())


def test_shares_of_sums_of_timers_are_of_medium_confidence_and_say_what_is_not_in_them() -> None:
    facts = Facts(timed(12))
    one = Finding("any", Severity.WARNING, "", "", share=0.5, confidence="high")
    found = bounded([one], facts)[0]
    assert isinstance(found, Finding)
    assert found.confidence == "medium"
    assert "untimed work is not included" in found.summary
    assert bounded([one], FACTS) == [one]


def test_one_line_that_shows_what_timers_leave_out_is_believed_more_than_their_sums() -> None:
    assert timed(12, 3.0).findings[0].title == "70 % of a step is explained by no timer"
    assert timed(12, 3.0).findings[0].confidence == "low"
    assert len(main_steps(timed(12, 0.92).steps)) == 11


def test_a_part_of_steps_that_only_their_timers_tell_is_of_what_is_timed_of_them() -> None:
    line = (
        "[Rank 0] time (ms) | fwd: 200.00 | bwd: 299.00 | bwd_inner: 100.00 | "
        "bwd_allreduce: 199.00 | step: 10.00\n"
    )
    found = run_of_text(line * 12).findings[0]
    assert found.rule == "communication-bound"
    assert found.title.startswith("At least 39 % of what is timed of a step is communication")


@pytest.mark.parametrize(
    ("elapsed", "of"), [("00:30", "what is timed of a step"), ("00:15", "a step")]
)
def test_a_part_of_what_is_timed_is_none_of_a_step_that_a_bar_shows_to_be_longer(
    elapsed: str, of: str
) -> None:
    """Timers of one step sum to 5 s; its bar counts 10 s a turn, or just these 5."""
    timed = (
        "[2024-03-04 10:11:12,345] [INFO] [logging.py:107:log_dist] [Rank 0] time (ms) | "
        "fwd: 2000.00 | bwd: 2990.00 | bwd_inner: 2980.00 | bwd_allreduce: 10.00 | step: 10.00\n"
    )
    bar = f"  0%|          | 3/900 [{elapsed}<2:29:00, 10.00s/it]\n"
    record = "{'loss': 2.5, 'grad_norm': 0.5, 'learning_rate': 1e-05, 'epoch': 0.01}\n"
    first = run_of_text(timed, bar, record).findings[0]
    assert first.title.startswith(f"99.6 % of {of} is computation and")
    assert ("bar counts 10.0 s per iteration" in first.summary) == (elapsed == "00:30")
