"""Runs that become slower."""

from __future__ import annotations

import json
import time
from types import SimpleNamespace
from typing import cast

import numpy as np
import pandas as pd
import pytest

from dsprof.events import Severity
from dsprof.findings import Finding, findings_of
from dsprof.findings.facts import Facts
from dsprof.findings.over_time.spikes import step_spikes
from dsprof.findings.over_time.throughput import slowdown
from dsprof.run import Run, from_events
from tests.findings.plants import (
    Row,
    alone,
    config,
    metric,
    one,
    phase,
    quiet,
    run_of,
    silent,
    steps,
    why,
)


def run_with(seconds: np.ndarray) -> Run:
    """A run that prints nothing but how long each step took."""
    count = len(seconds)
    frame = pd.DataFrame(
        {
            "segment": 0,
            "engine": 0,
            "kind": "metric",
            "name": "step_seconds",
            "raw": "t",
            "step": np.arange(1, count + 1),
            "steps": 1,
            "rank": 0,
            "seconds": seconds,
            "source": "planted.log",
            "line": np.arange(1, count + 1),
            "record": np.arange(count),
        }
    )
    return from_events(frame)


def noisy(count: int, seed: int, spread: float = 0.05) -> np.ndarray:
    return np.random.default_rng(seed).lognormal(0.0, spread, count)


def test_a_step_that_takes_20_percent_longer_from_some_point_on_is_found_there() -> None:
    seconds = noisy(1_000, seed=1)
    seconds[600:] *= 1.2
    found = alone(run_with(seconds), "slowdown")
    assert found.steps is not None
    assert abs(found.steps[0] - 601) <= 5
    assert found.steps[1] == 1000
    assert found.severity is Severity.WARNING
    assert found.seconds_per_step == pytest.approx(0.2 * 400 / 999, rel=0.1)
    assert found.confidence == "high"


def test_a_slowdown_by_a_third_is_critical() -> None:
    seconds = noisy(1_000, seed=2)
    seconds[300:] *= 1.33
    assert alone(run_with(seconds), "slowdown").severity is Severity.CRITICAL


@pytest.mark.parametrize(("times", "severity"), [(1.4, Severity.WARNING), (3.2, Severity.CRITICAL)])
def test_of_a_slowdown_in_the_last_few_steps_only_a_great_one_is_critical(
    times: float, severity: Severity
) -> None:
    seconds = noisy(200, seed=2, spread=0.01)
    seconds[185:] *= times
    found = slowdown(Facts(run_with(seconds)))
    assert [finding.severity for finding in found if isinstance(finding, Finding)] == [severity]


def test_a_slowdown_that_ends_says_when() -> None:
    seconds = noisy(1_000, seed=3)
    seconds[300:500] *= 1.5
    found = alone(run_with(seconds), "slowdown")
    assert found.steps is not None
    assert abs(found.steps[0] - 301) <= 5
    assert abs(found.steps[1] - 500) <= 5
    assert found.title.startswith(f"From step {found.steps[0]} to {found.steps[1]}, a step takes")
    assert "until step" in found.summary


def test_a_drift_climbs_in_stairs_none_of_which_would_be_a_finding() -> None:
    seconds = noisy(60, seed=3, spread=0.01)
    seconds[20:] += np.arange(40) * 0.015
    found = alone(run_with(seconds), "slowdown")
    assert found.steps is not None
    assert abs(found.steps[0] - 24) <= 4
    assert found.steps[1] == 60
    assert "up to" in found.title
    assert "little by little" in found.summary
    assert found.seconds_per_step == pytest.approx(0.3 * 40 / 59, rel=0.15)


def test_noise_that_comes_in_bouts_is_no_slowdown() -> None:
    """Steps take longer for five in a row, again and again: the last bout is no news."""
    seconds = noisy(40, seed=10, spread=0.01)
    for bout in (8, 20, 35):
        seconds[bout : bout + 5] *= 1.4
    assert quiet(run_with(seconds), "slowdown")


def test_a_slow_stretch_that_is_over_is_judged_by_what_it_cost() -> None:
    """8 of 39 steps at 1.2 times: 4 % of the time."""
    seconds = noisy(40, seed=11, spread=0.01)
    seconds[15:23] *= 1.2
    assert quiet(run_with(seconds), "slowdown")


def test_a_run_that_becomes_faster_is_no_slowdown() -> None:
    seconds = noisy(1_000, seed=4)
    seconds[:200] *= 1.5
    assert quiet(run_with(seconds), "slowdown")


def test_what_grew_is_named_where_classes_are_known() -> None:
    fast = {"forward": 0.4, "backward_inner": 0.5, "backward_allreduce": 0.1}
    rows = steps(60, fast | {"backward": 1e-9, "step": 1e-9}, None)
    for row in rows:
        if row["name"] == "backward_allreduce" and row["step"] > 30:
            row["seconds"] = 0.5
    found = alone(run_of(rows, world_size=2), "slowdown")
    assert found.steps == (31, 60)
    assert "100 % is communication" in found.summary


@pytest.mark.parametrize(
    ("grows", "first"),
    [
        ("forward", "samples of a batch, and their length"),
        ("optimizer_step", "what the optimizer keeps from step to step"),
        ("backward_allreduce", "GPU clocks and neighbours at that time"),
    ],
)
def test_steps_that_only_work_longer_may_have_more_to_do(grows: str, first: str) -> None:
    took = {"forward": 0.4, "backward_inner": 0.5, "backward_allreduce": 0.1}
    rows = steps(60, took | {"backward": 1e-9, "step": 0.1, "optimizer_step": 0.1}, None)
    for row in rows:
        is_longer = row["name"] == grows or (row["name"], grows) == ("step", "optimizer_step")
        row["seconds"] += 0.4 * (is_longer and row["step"] > 30)
    advice = alone(run_of(rows, world_size=2), "slowdown").advice
    assert advice[0].setting == first
    assert advice[-1].setting == "GPU clocks and neighbours at that time"


def longer_from_41_on(late: float, computing: float) -> Run:
    """Rank 1 comes `late` s after rank 0, 0.3 s from step 41 on; both compute as much longer then
    as `computing` says.
    """
    rows: list[Row] = []
    for step in range(1, 81):
        behind, longer = (0.3, computing) if step > 40 else (late, 0.0)
        rows.append(metric("step_seconds", step, 1.0 + behind + longer))
        for rank in (0, 1):
            rows += [
                phase("forward", step, 0.9 + longer + behind * rank, rank),
                phase("backward_allreduce", step, 0.1 + behind * (1 - rank), rank),
            ]
    return run_of(rows, world_size=2)


def test_the_rank_for_which_the_others_wait_in_the_longer_steps_is_named() -> None:
    found = alone(longer_from_41_on(0.0, 0.0), "slowdown")
    assert found.ranks == (1,)
    assert found.title == "From step 41 on, a step takes 30 % longer: rank 1 is late"
    assert "In all of the later ones rank 1 is the last of 2" in found.summary
    assert found.advice[0].setting == "GPU clocks and neighbours of rank 1 at that time"


def test_waiting_for_a_rank_that_became_late_is_not_told_again_as_communication() -> None:
    """Up to step 40 rank 0 comes 0.1 s later, then rank 1 0.5 s: no rank is late all the time."""
    rows: list[Row] = []
    for step in range(1, 81):
        late, behind = (0, 0.1) if step <= 40 else (1, 0.5)
        rows.append(metric("step_seconds", step, 1.0 + behind))
        for rank in (0, 1):
            rows += [
                phase("forward", step, 0.9 + behind * (rank == late), rank),
                phase("backward_allreduce", step, 0.1 + behind * (rank != late), rank),
            ]
    run = run_of(rows, world_size=2)
    assert one(run, "slowdown").ranks == (1,)
    assert one(run, "straggler-rank").severity == "info"  # in the same steps
    assert sum(run.steps["communication"]) > 0.15 * sum(run.steps["seconds"])
    assert silent(run, "communication-bound")


def test_a_rank_that_came_as_late_before_is_not_why_steps_take_longer() -> None:
    found = alone(longer_from_41_on(0.3, 0.3), "slowdown")
    assert found.ranks == ()
    assert found.title.endswith(" longer")


def test_a_ramp_is_shared_out_over_the_steps_that_it_is_the_mean_of() -> None:
    """Its last steps are the slowest: their height is not that of the others."""
    timers = {"forward": 0.4, "backward": 1e-9, "backward_inner": 0.5, "step": 1e-9}
    rows = steps(60, timers | {"backward_allreduce": 0.1}, None)
    for row in rows:
        if row["name"] == "forward":
            row["seconds"] += 0.02 * max(0, row["step"] - 30)
    assert "100 % is compute" in alone(run_of(rows, world_size=2), "slowdown").summary


def test_a_slowdown_begins_where_steps_become_longer_and_its_proof_shows_it() -> None:
    seconds = np.full(60, 2.0)
    seconds[20:30] = 2.01  # a level of its own, that nobody would call slower
    seconds[30:] = 2.8
    found = alone(run_with(seconds), "slowdown")
    assert found.steps == (31, 60)
    assert "little by little" not in found.summary
    assert [proof.text for proof in found.evidence] == ["step 30: 2.01 s", "step 31: 2.80 s"]


@pytest.mark.parametrize(
    ("settings", "planned"),
    [
        ({"curriculum_learning": {"enabled": True}}, True),
        ({"curriculum_learning": {"enabled": False}}, False),
        ({"data_efficiency": {"data_sampling": {"curriculum_learning": {"enabled": True}}}}, True),
        ({"data_efficiency": {"data_routing": {"random_ltd": {"enabled": True}}}}, True),
        ({"progressive_layer_drop": {"enabled": True}}, False),  # drops ever more layers
    ],
)
def test_longer_steps_that_a_curriculum_asks_for_are_no_fault_and_promise_no_gain(
    settings: dict[str, object], planned: bool
) -> None:
    rows = [metric("step_seconds", step, 1.0 + 0.02 * max(0, step - 30)) for step in range(1, 61)]
    found = alone(run_of(rows, ds_config=json.dumps(settings)), "slowdown")
    assert (found.severity is Severity.INFO) is planned
    assert (found.gain is None) is planned
    assert (not found.advice) is planned
    assert ("they are meant to take longer" in found.summary) is planned


@pytest.mark.parametrize(
    ("size", "grown", "said"),
    [
        ({"global_batch_size": 16}, 32, "A sample took 62.5 ms, now 62.5 ms"),
        ({"global_batch_size": 16, "seq_length": 512}, 1024, "1,000 tokens took 122 ms, now 122"),
        ({"seq_length": 512}, 1024, "a sample from 512 to 1,024 tokens"),
    ],
)
def test_a_step_that_takes_as_much_longer_as_its_batch_or_texts_grew_is_no_fault(
    size: dict[str, int], grown: int, said: str
) -> None:
    found = alone(run_of(growing(size, grown, 2.0)), "slowdown")
    assert found.severity is Severity.INFO
    assert found.seconds_per_step is None
    assert not found.advice
    assert said in found.summary


def test_of_a_step_with_a_larger_batch_only_what_exceeds_that_is_a_slowdown() -> None:
    found = alone(run_of(growing({"global_batch_size": 16}, 32, 3.0)), "slowdown")
    assert found.severity is Severity.CRITICAL
    assert found.title.endswith("200 % longer, more than what it computes")
    assert found.seconds_per_step == pytest.approx(1.0 * 30 / 59)


def test_a_batch_that_is_told_only_where_it_is_not_the_configured_one_grew_from_that() -> None:
    """As recordings tell it, which have 64 bytes for it in a step."""
    rows = growing({"global_batch_size": 16}, 32, 2.0)
    told = [row for row in rows if row["name"] != "global_batch_size" or row["step"] > 30]
    found = alone(run_of(told, train_batch_size=16), "slowdown")
    assert found.severity is Severity.INFO
    assert "A sample took 62.5 ms, now 62.5 ms" in found.summary


def test_of_a_second_engine_its_own_configured_batch_is_what_grew() -> None:
    rows = growing({"global_batch_size": 16}, 32, 2.0)
    told = [row for row in rows if row["name"] != "global_batch_size" or row["step"] > 30]
    actor = [metric("step_seconds", step, 0.1) for step in range(1, 61)]
    own = config("train_batch_size", 16.0)
    run = run_of([*actor, *(row | {"engine": 1} for row in [own, *told])], train_batch_size=4.0)
    found = alone(run, "slowdown")
    assert found.severity is Severity.INFO
    assert "A sample took 62.5 ms, now 62.5 ms" in found.summary


def growing(size: dict[str, int], grown: int, seconds: float) -> list[Row]:
    """60 steps of 1 s; from 31 on the last size is `grown`, and a step takes so many `seconds`."""
    rows = []
    for step in range(1, 61):
        late = step > 30
        rows.append(metric("step_seconds", step, seconds if late else 1.0))
        now = size | ({list(size)[-1]: grown} if late else {})
        rows += [metric(name, step, value) for name, value in now.items()]
    return rows


def test_stationary_noise_is_quiet_in_95_of_100_runs() -> None:
    run = run_with(noisy(2_000, seed=0))
    rng = np.random.default_rng(0)
    loud = 0
    for seed in range(100):
        count, spread = int(rng.integers(21, 2_000)), float(rng.uniform(0.01, 0.12))
        part = run.steps.iloc[:count].assign(seconds=noisy(count, seed, spread))
        facts = Facts(
            cast(
                "Run",
                SimpleNamespace(
                    steps=part,
                    told=run.told,
                    phases=run.phases,
                    is_recording=False,
                    steps_were="printed",
                ),
            )
        )
        loud += bool(slowdown(facts) or step_spikes(facts))
    assert loud <= 5


def test_19_steps_after_the_first_are_too_few_to_judge() -> None:
    run = run_with(noisy(20, seed=5))
    assert why(run, "slowdown") == "19 timed steps, 20 needed"
    assert why(run, "step-spikes") == "19 timed steps, 20 needed"


def test_few_windows_of_steps_are_not_called_steps() -> None:
    took = noisy(13, seed=5)
    rows = [metric("step_seconds", 10 * n, took[n - 1], steps=10) for n in range(1, 14)]
    assert why(run_of(rows), "slowdown") == "12 timed windows of 10 steps, 20 needed"


#: The first of them is a warm-up, and not compared.
CLIMB = np.array([9.0, 84.6, 142.5, 202.4, 262.0, 322.0, 381.0])


def test_few_steps_each_longer_than_the_one_before_are_a_slowdown() -> None:
    found = alone(run_with(CLIMB), "slowdown")
    assert found.title == "From step 3 on, a step takes up to 350 % longer"
    assert found.severity is Severity.CRITICAL
    assert found.confidence == "low"
    assert found.seconds_per_step == pytest.approx((CLIMB[1:] - 84.6).mean(), rel=0.01)
    assert "keeps from step to step" in found.advice[0].setting


@pytest.mark.parametrize(
    ("took", "title"),
    [
        ([8.0, 8.1, 8.2, 8.4, 9.5, 9.0, 9.8, 10.0, 12.0, 14.0, 15.0, 16.0, 16.2],
         "From step 8 on, a step takes up to 93 % longer"),
        ([8.0, 8.1, 8.2, 12.1, 9.0, 9.5, 9.8, 10.0, 12.0, 14.0, 12.0, 16.0, 16.2], None),
        ([8.0, 8.1, 8.2, 8.4, 9.0, 9.1, 9.2, 9.2, 9.3, 9.4, 9.5, 9.6, 9.7], None),
        ([8.0, 8.1, 8.2, 8.4, 9.0, 9.5, 15.0, 16.0, 16.2],
         "From step 6 on, a step takes up to 102 % longer"),
    ],
)  # fmt: skip
def test_steps_that_end_longer_than_the_first_half_are_a_slowdown_though_few_are_timed(
    took: list[float], title: str | None
) -> None:
    run = run_with(np.array([9.0, *took]))  # behind a warm-up
    if title is None:
        assert why(run, "slowdown") == f"{len(took)} timed steps, 20 needed"
    else:
        assert alone(run, "slowdown").title == title


def test_the_proof_of_a_climb_is_a_usual_step_of_each_end() -> None:
    found = alone(run_with(CLIMB), "slowdown")
    assert [proof.line for proof in found.evidence] == [2, 7]


def test_few_steps_that_end_hardly_longer_or_in_no_order_are_too_few_to_judge() -> None:
    shuffled, hardly, four = CLIMB.copy(), np.linspace(1.0, 1.2, 7), CLIMB[1:5]
    shuffled[[3, 4]] = shuffled[[4, 3]]
    assert why(run_with(shuffled), "slowdown") == "6 timed steps, 20 needed"
    assert why(run_with(hardly), "slowdown") == "6 timed steps, 20 needed"
    assert why(run_with(four), "slowdown") == "4 timed steps, 20 needed"


def test_steps_that_grow_by_the_same_each_time_may_be_those_of_a_timer_never_reset() -> None:
    may_be = "by about the same, 59.3 s: so grows a timer that is never reset, too."
    found = alone(run_with(CLIMB), "slowdown")
    assert may_be in found.summary
    assert found.summary.endswith("hence low confidence.")
    assert "medium" not in found.summary
    doubling = alone(run_with(2.0 ** np.arange(7)), "slowdown")
    assert "never reset" not in doubling.summary
    assert (found.confidence, doubling.confidence) == ("low", "medium")


def test_a_step_that_sticks_out_of_the_slow_ones_is_not_in_what_they_cost() -> None:
    seconds = noisy(200, seed=4, spread=0.01)
    seconds[100:] *= 1.3
    seconds[150] = 60.0
    found = alone(run_with(seconds), "slowdown")
    assert found.seconds_per_step == pytest.approx(0.15, rel=0.05)


def test_a_slowdown_shortly_before_the_end_costs_what_its_steps_take_longer() -> None:
    seconds = noisy(50, seed=4, spread=0.01)
    seconds[40:] *= 2  # all of them stick out of the 51 steps around them
    run = run_with(seconds)
    assert alone(run, "step-spikes").steps == (41, 50)
    found = alone(run, "slowdown")
    assert found.steps == (41, 50)
    assert found.seconds_per_step == pytest.approx(10 / 49, rel=0.05)


def test_a_short_stretch_of_longer_steps_that_is_over_is_told_by_step_spikes_alone() -> None:
    seconds = noisy(200, seed=4, spread=0.01)
    seconds[100:115] *= 3
    run = run_with(seconds)
    assert quiet(run, "slowdown")
    assert alone(run, "step-spikes").steps == (101, 115)


def test_spikes_are_no_slowdown() -> None:
    seconds = noisy(1_000, seed=8, spread=0.02)
    seconds[500:503] = 50.0
    assert quiet(run_with(seconds), "slowdown")


def test_judging_many_steps_costs_no_more_than_in_proportion() -> None:
    """A rule that compares every step with every other would take a hundred times as long."""
    few, _ = judged(10_000)
    many, found = judged(100_000)
    assert many < 40 * few
    slow = next(finding for finding in found if finding.rule == "slowdown")
    assert slow.steps is not None
    assert abs(slow.steps[0] - 60_001) <= 5


def judged(steps: int) -> tuple[float, list[Finding]]:
    """CPU seconds that the findings of so many steps take, and the findings."""
    seconds = noisy(steps, seed=9)
    seconds[steps * 6 // 10 :] *= 1.2
    run = run_with(seconds)
    _ = run.steps, run.phases, run.comm, run.problems, run.repairs
    began = time.process_time()
    found = findings_of(run)
    return time.process_time() - began, found


def test_a_wave_is_told_as_what_comes_and_goes_and_a_single_rise_is_not() -> None:
    seconds = noisy(500, seed=4, spread=0.01)
    seconds[:100] *= 1.15  # as long as later on
    seconds[300:] *= 1.15
    found = alone(run_with(seconds), "slowdown")
    assert found.title.endswith("longer, and not for the first time")
    assert "It was about as long before, within steps 2 to 100: it comes and goes" in found.summary
    seconds[:100] /= 1.15
    risen = alone(run_with(seconds), "slowdown")
    assert risen.title.endswith(" longer")
    assert "before, within" not in risen.summary


def test_what_climbs_little_by_little_is_not_said_to_start_at_one_step() -> None:
    found = alone(run_with(np.concatenate([np.ones(40), np.linspace(1.0, 2.2, 60)])), "slowdown")
    assert "little by little" in found.summary
    assert "start at one step" not in found.advice[0].why
    jumped = alone(run_with(np.concatenate([np.ones(40), np.full(40, 1.5)])), "slowdown")
    assert "start at one step and stay" in jumped.advice[0].why


def test_a_few_steps_that_jump_do_not_climb_little_by_little() -> None:
    seconds = noisy(14, seed=4, spread=0.02)
    seconds[7:] *= 2
    found = alone(run_with(seconds), "slowdown")
    assert found.title.startswith("From step 8 on, a step takes ")
    assert "up to" not in found.title
    assert "little by little" not in found.summary


@pytest.mark.parametrize(("accelerator", "whose"), [("cpu", "CPU"), ("cuda", "GPU")])
def test_the_clocks_to_look_at_are_those_of_what_computes(accelerator: str, whose: str) -> None:
    seconds = noisy(200, seed=4, spread=0.02)
    seconds[100:] *= 2
    rows = [metric("step_seconds", number, float(took)) for number, took in enumerate(seconds, 1)]
    found = alone(run_of(rows, accelerator=accelerator), "slowdown")
    assert found.advice[0].setting.startswith(f"{whose} clocks")
