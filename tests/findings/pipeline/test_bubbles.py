"""Waiting in a pipeline, split into the bubble and what is worse than the bubble."""

from __future__ import annotations

from typing import Any

import pytest

from dsprof.events import Severity
from tests.findings.pipelines import FORWARD, pipeline
from tests.findings.plants import (
    alone,
    config,
    metric,
    one,
    quiet,
    rules,
    run_of,
    silent,
    steps,
    why,
)

#: Stage 0 computes 1.0 of 2.0 s, waits 0.75 s for gradients; sending takes 0.05 s.
STAGE_0 = {
    "forward": 0.4,
    "backward_inner": 0.6,
    "pipe_recv_grad": 0.75,
    "pipe_send_output": 0.05,
    "reduce_grads": 0.1,
    "step": 0.1,
}


def test_a_wait_as_long_as_the_bubble_of_p_and_m_is_called_a_bubble() -> None:
    run = run_of(
        steps(3, STAGE_0, 2.0), pipeline_parallel_size=5, gradient_accumulation_steps=5
    )  # (p-1)/m = 4/5 of 1.0 s of compute = 0.8 s: all of the wait
    found = one(run, "pipeline-bubble")
    assert found.severity is Severity.CRITICAL
    assert found.seconds_per_step == pytest.approx(0.8)
    assert found.share == pytest.approx(0.4)
    assert found.confidence == "high"
    assert found.title.startswith(
        "45 % of a step is communication, and 83 % of that is stage 0 waiting for gradients: "
        "a pipeline bubble, not the network"
    )
    assert "44 % of their time even when balanced" in found.summary  # 4 / (5 + 4)
    assert "the wait here, 800 ms, is no longer than that bubble" in found.summary
    assert silent(run, "pipeline-imbalance")


def test_more_micro_batches_are_advised_with_what_they_save() -> None:
    run = run_of(steps(3, STAGE_0, 2.0), pipeline_parallel_size=5, gradient_accumulation_steps=5)
    found = one(run, "pipeline-bubble")
    assert found.advice[0][:3] == ("gradient_accumulation_steps", "5", "20")
    # 20 instead of 5 micro-batches: three quarters of 0.8 s, and of the 0.2 s of reduction and step
    assert found.gain == pytest.approx((0.6, 0.75))


def test_a_gain_beyond_the_bubble_says_what_else_is_saved() -> None:
    much = STAGE_0 | {"pipe_recv_grad": 0.5, "reduce_grads": 0.5}
    run = run_of(steps(3, much, 2.3), pipeline_parallel_size=3, gradient_accumulation_steps=4)
    found = one(run, "pipeline-bubble")
    assert found.gain is not None
    assert found.gain[1] > (found.seconds_per_step or 0.0)
    assert "done once a step" in found.gain_why
    usual = run_of(steps(3, STAGE_0, 2.0), pipeline_parallel_size=5, gradient_accumulation_steps=5)
    assert one(usual, "pipeline-bubble").gain_why == ""


def test_collectives_that_take_as_long_as_the_waiting_are_not_belittled() -> None:
    for reduction, said in ((0.1, "take only 100 ms"), (0.5, "take 500 ms")):
        much = STAGE_0 | {"pipe_recv_grad": 0.5, "reduce_grads": reduction}
        run = run_of(steps(3, much, 2.3), pipeline_parallel_size=3, gradient_accumulation_steps=4)
        assert said in alone(run, "pipeline-bubble").summary


def test_what_the_bubble_does_not_explain_is_an_imbalance_of_its_own() -> None:
    run = run_of(
        steps(3, STAGE_0, 2.0), pipeline_parallel_size=2, gradient_accumulation_steps=10
    )  # bubble: 1/10 of 1.0 s
    found = one(run, "pipeline-imbalance")
    assert found.seconds_per_step == pytest.approx(0.7)
    assert found.share == pytest.approx(0.35)
    assert found.title == (
        "Stage 0 waits for other stages for 40 % of a step, 88 % of that beyond the bubble: "
        "other stages are slower"
    )
    assert "pipeline-bubble" not in rules(run)  # 0.1 of 2.0 s is below its threshold


def test_without_p_and_m_bubble_and_slower_stages_are_not_told_apart() -> None:
    run = run_of(steps(3, STAGE_0, 2.0))
    found = one(run, "pipeline-bubble")
    assert "a pipeline bubble or slower later stages, not the network's bandwidth" in found.title
    assert found.confidence == "medium"
    assert found.gain == pytest.approx((0.0, 0.4))
    assert "p - 1 = 0.80 m" in found.summary
    assert "cannot be split" in (why(run, "pipeline-imbalance") or "")


def test_a_dear_transfer_is_not_excluded_as_the_cause() -> None:
    slow = STAGE_0 | {"pipe_recv_grad": 0.5, "pipe_send_output": 0.3}
    found = one(run_of(steps(3, slow, 2.0)), "pipeline-bubble")
    assert "slow transfers between them" in found.title
    assert found.confidence == "low"


def test_each_kind_of_waiting_is_named_with_its_own_share() -> None:
    """0.45 of 0.9 s go into sending, 0.35 into waiting for gradients."""
    both = STAGE_0 | {"pipe_send_output": 0.45, "pipe_recv_grad": 0.35}
    found = alone(run_of(steps(3, both, 2.0)), "pipeline-bubble")
    assert "50 % of that is stage 0 sending results on: " in found.title
    assert (
        "Of 900 ms of communication, 50 % is sending results on and 39 % is waiting for gradients."
        in found.summary
    )


def test_with_many_micro_batches_twice_as_many_still_halve_the_bubble() -> None:
    long = STAGE_0 | {"pipe_recv_grad": 0.25}
    run = run_of(steps(3, long, 1.5), pipeline_parallel_size=9, gradient_accumulation_steps=36)
    found = one(run, "pipeline-bubble")  # (p-1)/m = 0.22 of 1.0 s, and 0.2 s once a step
    assert found.advice[0][:3] == ("gradient_accumulation_steps", "36", "72")
    assert found.gain == pytest.approx((0.111, 0.211), abs=0.001)


@pytest.mark.parametrize(
    ("micro_batches", "rule", "part"),
    [(6, "pipeline-bubble", 1 / 6), (9, "pipeline-imbalance", 0.25 - 1 / 9)],
)
def test_waiting_whose_parts_are_both_short_is_laid_to_the_larger_one(
    micro_batches: int, rule: str, part: float
) -> None:
    """0.25 of 1.45 s: neither part is worth a warning by itself, the sum is."""
    short = STAGE_0 | {"pipe_recv_grad": 0.2}
    run = run_of(
        steps(3, short, 1.45), pipeline_parallel_size=2, gradient_accumulation_steps=micro_batches
    )
    found = one(run, rule)
    assert found.severity is Severity.WARNING
    assert found.seconds_per_step == pytest.approx(part)
    assert sum(name.startswith("pipeline") for name in rules(run)) == 1


def test_what_of_the_shape_is_told_is_not_said_to_be_unknown() -> None:
    run = run_of(steps(3, STAGE_0, 2.0), pipeline_parallel_size=4)
    said = alone(run, "pipeline-bubble").summary
    assert "The number of micro-batches m is not in this log, so" in said
    untimed = {name: STAGE_0[name] for name in ("pipe_recv_grad", "pipe_send_output", "step")}
    run = run_of(steps(3, untimed, 2.0), pipeline_parallel_size=4, gradient_accumulation_steps=8)
    assert "No timer shows what a stage computes, so" in alone(run, "pipeline-bubble").summary


def test_a_middle_stage_is_not_called_stage_0() -> None:
    middle = STAGE_0 | {"pipe_recv_input": 0.1}
    found = alone(run_of(steps(3, middle, 2.1)), "pipeline-bubble")
    assert "the stage that prints waiting for gradients" in found.title


def test_the_number_of_samples_bounds_the_micro_batches() -> None:
    rows = steps(3, STAGE_0, 2.0) + [metric("samples_per_second", s, 4.0) for s in (1, 2, 3)]
    assert "at most 8 micro-batches" in alone(run_of(rows), "pipeline-bubble").summary


def test_a_short_wait_is_no_finding() -> None:
    quick = STAGE_0 | {"pipe_recv_grad": 0.1, "pipe_send_output": 0.01}
    assert quiet(run_of(steps(3, quick, 1.4)), "pipeline-bubble")


def test_a_run_without_pipeline_timers_is_not_judged() -> None:
    run = run_of([config("world_size", 2), *steps(3, {"forward": 1.0})])
    assert why(run, "pipeline-bubble") == "no pipeline timers in this run"


def test_where_every_stage_is_recorded_the_slow_one_is_named() -> None:
    """Ranks 2 and 3 are stage 1, which computes 0.5 s more: 0.25 more than the mean, of which an
    even split saves what 7 of 8 micro-batches take."""
    rows = steps(3, STAGE_0, 2.0, ranks=2)
    late = STAGE_0 | {"backward_inner": 1.1, "pipe_recv_grad": 0.25}
    rows += [
        row | {"rank": row["rank"] + 2}
        for row in steps(3, late, None, ranks=2)
    ]  # fmt: skip
    run = run_of(rows, world_size=4, pipeline_parallel_size=2, gradient_accumulation_steps=8)
    found = one(run, "pipeline-imbalance")
    assert found.seconds_per_step == pytest.approx(0.5)
    assert (found.ranks, found.confidence) == ((2, 3), "high")
    assert found.title.startswith("Stage 1 computes 500 ms a step more than the others")
    assert found.title.endswith(" % of the step")
    assert found.gain == pytest.approx((0.25 / 2 * 7 / 8, 0.25 * 7 / 8))
    assert [proof.text for proof in found.evidence] == [
        "rank 3, step 3, backward_inner: 1.10 s", "rank 0, step 3, backward_inner: 600 ms",
    ]  # fmt: skip


def test_a_bubble_of_uneven_stages_is_what_all_but_the_slowest_compute_of_a_micro_batch() -> None:
    """In one micro-batch of three stages, 0.2, 0.8 and 0.2 s long: two wait 1.0 s, one 0.4."""
    rows = []
    for rank, computes, waits, blocked in ((0, 0.2, 0.9, 0.12), (1, 0.8, 0.4, 0.02),
                                           (2, 0.2, 0.5, 0.52)):  # fmt: skip
        stage = {"forward": computes / 2, "backward_inner": computes / 2,
                 "pipe_recv_grad": waits, "reduce_grads": blocked}  # fmt: skip
        rows += [row | {"rank": rank} for row in steps(3, stage, None if rank else 1.22)]
    shape: dict[str, Any] = {"world_size": 3, "pipeline_parallel_size": 3}
    run = run_of(rows, gradient_accumulation_steps=1, **shape)
    found = one(run, "pipeline-bubble")
    assert found.seconds_per_step == pytest.approx(0.4)  # of balanced stages it would be 0.8
    assert found.gain == pytest.approx((0.4 * 11 / 12, 0.42 * 11 / 12))
    assert "3 stages and 1 micro-batch idle 67 % of their time even when balanced" in found.summary
    assert "the slowest one of these leaves less to fill and drain, and 400 ms" in found.summary
    assert silent(run, "communication-bound")  # waiting in collectives is of the slow stage, too
    slow = one(run, "pipeline-imbalance")
    assert (slow.severity, slow.gain, slow.advice) == (Severity.INFO, None, ())
    assert "an even split saves nothing" in slow.summary


def test_of_a_slow_first_stage_that_runs_ahead_an_even_split_needs_more_micro_batches() -> None:
    """14 ms forward instead of 4, three times: the others wait for it, and nothing is healthy."""
    run = pipeline([0.0] * 3, 3, [14.0, 4.0, 4.0], clips=True)
    assert silent(run, "pipeline-bubble")
    assert silent(run, "healthy")
    slow = one(run, "pipeline-imbalance")
    assert slow.severity is not Severity.INFO
    assert "together with more micro-batches it saves time" in slow.summary
    assert slow.advice[1].setting == "micro-batches of a step"
    now = 3 * (14 + 8) + 8  # stage 0 waits twice for 4 ms between its backwards
    even = (12 + 2) * (22 / 3 + 8)  # of 12 micro-batches
    assert slow.gain is not None
    assert slow.gain[1] == pytest.approx((now - even * 3 / 12) * 1e-3)


def test_the_last_stage_waits_for_the_first_one_where_gradients_are_reduced() -> None:
    """One micro-batch, two stages: while one computes 0.8 s, the other one waits as long."""
    first = {"forward": 0.3, "backward_inner": 0.5, "pipe_recv_grad": 0.8, "reduce_grads": 0.02}
    last = {"forward": 0.3, "backward_inner": 0.5, "pipe_recv_input": 0.3, "reduce_grads": 0.52}
    rows = steps(3, first, 1.62)
    rows += [row | {"rank": 1} for row in steps(3, last, None)]
    shape: dict[str, Any] = {"pipeline_parallel_size": 2, "gradient_accumulation_steps": 1}
    run = run_of(rows, world_size=2, **shape)
    found = one(run, "pipeline-bubble")
    assert found.seconds_per_step == pytest.approx(0.8)
    assert found.title.startswith(
        "51 % of a step is communication, and 49 % of that is stages waiting for gradients: "
        "a pipeline bubble"
    )
    assert (
        "49 % is waiting for gradients, 30 % is waiting in collectives for the last one and 18 % "
        "is waiting for activations." in found.summary
    )
    assert "Collectives take 270 ms, of which 250 ms is waiting for the stage that comes last" in (
        found.summary
    )
    assert found.gain == pytest.approx((0.8 * 7 / 8, (0.8 + 0.02) * 7 / 8))
    assert silent(run, "communication-bound")
    alone = run_of(steps(3, first, 1.62), world_size=2, **shape)
    assert "in collectives" not in one(alone, "pipeline-bubble").title


@pytest.mark.parametrize(("longer", "warned"), [(1.2, False), (0.2, True)])
def test_input_of_a_stage_costs_nothing_where_a_slower_one_works_longer_anyway(
    longer: float, *, warned: bool
) -> None:
    """Of two stages the first loads for 0.6 s in 8 micro-batches, the other computes longer."""
    own = {"forward": 0.4, "backward_inner": 0.6, "pipe_recv_grad": 0.3}
    late = own | {"backward_inner": 0.6 + longer, "data": 0.001}
    rows = steps(4, own | {"data": 0.6}, 2.5)
    rows += [row | {"rank": 1} for row in steps(4, late, None)]
    shape: dict[str, Any] = {"pipeline_parallel_size": 2, "gradient_accumulation_steps": 8}
    run = run_of(rows, world_size=2, **shape)
    assert ("data-bound" in rules(run)) == warned


def test_input_of_one_stage_costs_all_stages_what_that_stage_waits_for_it() -> None:
    """Stage 0 of three waits 0.5 s for its batches, and the others for stage 0; the middle one
    loads nothing."""
    own = {"forward": 0.4, "backward_inner": 0.8}
    rows = steps(4, own | {"data": 0.5, "pipe_recv_grad": 0.3}, 2.0)
    for rank, loads in ((1, {}), (2, {"data": 0.01})):
        waits = {"pipe_recv_input": 0.8 - sum(loads.values())}
        rows += [row | {"rank": rank} for row in steps(4, own | loads | waits, None)]
    shape: dict[str, Any] = {"pipeline_parallel_size": 3, "gradient_accumulation_steps": 16}
    found = alone(run_of(rows, world_size=3, **shape), "data-bound")
    assert found.title == "24 % of a step is waiting for input data of stage 0"
    assert found.seconds_per_step == pytest.approx(0.49)
    assert "more a step, the other stages wait for the input of stage 0." in found.summary
    alike = [row | {"seconds": 0.5} if row["name"] == "data" else row for row in rows]
    assert "of stage" not in alone(run_of(alike, world_size=3, **shape), "data-bound").title


def test_input_of_stages_alike_costs_each_of_them_what_the_others_wait_for() -> None:
    found = alone(pipeline((0, 0), micro_batches=2, loads=(8, 8)), "data-bound")
    assert found.summary.endswith(" For 4.00 ms more a step, stages wait for the input of others.")


@pytest.mark.parametrize(("slow", "micro_batches"), [(0, 2), (1, 2), (0, 8), (1, 8), (0, 1)])
def test_an_even_split_gains_what_the_job_is_quicker_with_it(slow: int, micro_batches: int) -> None:
    """Of a slow first stage that is less: it runs forward while the other one runs backward."""
    forwards = [FORWARD + 16 * (stage == slow) for stage in range(2)]
    run = pipeline((0, 0), micro_batches, forwards)
    even = pipeline((0, 0), micro_batches, [FORWARD + 8] * 2)
    longer, seconds = (each.judged[0].step_seconds for each in (run, even))
    assert longer is not None
    assert seconds is not None
    found = one(run, "pipeline-imbalance")
    if micro_batches == 1 or (slow, micro_batches) == (0, 2):
        assert longer == pytest.approx(seconds)
        assert "a step an even split saves nothing" in found.summary
        noted = (found.severity, found.gain, found.advice) == (Severity.INFO, None, ())
        assert noted is not silent(run, "pipeline-bubble")  # that tells of more micro-batches
        return
    assert found.gain is not None
    assert found.gain[1] == pytest.approx(longer - seconds, rel=0.02)
