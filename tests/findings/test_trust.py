"""Numbers that lie, and good news."""

from __future__ import annotations

import pytest

from dsprof.events import Severity
from dsprof.findings import RULES, findings_of
from tests.findings.plants import (
    WELL,
    config,
    memory,
    metric,
    one,
    phase,
    rules,
    run_of,
    silent,
    steps,
    why,
)


def test_timers_that_sum_to_more_than_the_step_are_not_trusted() -> None:
    found = one(run_of(steps(40, WELL, 0.5), world_size=2, zero_stage=1), "untrustworthy-timers")
    assert found.title.startswith("Some numbers of this source are doubtful: ")
    assert found.severity == "warning"
    assert found.evidence


def test_one_step_of_many_that_its_timers_exceed_is_a_note_and_no_verdict() -> None:
    rows = steps(40, WELL)
    odd = next(row for row in rows if row["name"] == "step_seconds" and row["step"] == 20)
    odd["seconds"] *= 0.9
    run = run_of(rows, world_size=2, zero_stage=1)
    found = one(run, "untrustworthy-timers")
    assert found.severity is Severity.INFO
    assert "of 1 of 40 steps sum to more" in found.title
    assert findings_of(run)[0].rule == "healthy"


def test_sound_timers_are_no_finding() -> None:
    assert silent(run_of(steps(40, WELL), world_size=2, zero_stage=1), "untrustworthy-timers")


def test_a_healthy_run_says_so_with_what_was_checked() -> None:
    run = run_of(steps(40, WELL), world_size=2, zero_stage=1)
    found = findings_of(run)[0]
    assert found.rule == "healthy"
    assert found.title == (
        "Nothing holds this run back: compute is 85 % of a step, communication 10 %"
    )
    assert (found.share, found.seconds_per_step) == (None, None)  # what is well costs nothing
    assert "39 printed steps, 2 to 40" in found.summary
    assert "memory-pressure" in found.summary  # what was not judged is said


def test_waiting_for_a_peer_is_not_told_as_communication() -> None:
    run = run_of(steps(40, WELL | {"pipe_recv_grad": 0.02}), world_size=2, zero_stage=1)
    title = findings_of(run)[0].title
    assert title.startswith("Nothing holds this run back: compute is ")
    assert title.endswith(", communication 9.8 %, waiting for a peer 2.0 %")


@pytest.mark.parametrize("count", [2, 3])
def test_too_few_steps_beyond_the_warm_up_show_no_healthy_run(count: int) -> None:
    run = run_of(steps(count, WELL), world_size=2, zero_stage=1)
    assert "too few steps" in (why(run, "healthy") or "")
    assert findings_of(run)[0].title == (
        "Too few steps to judge: of those that are timed, compute is 85 % of a step, "
        "communication 10 %"
    )
    assert rules(run_of(steps(4, WELL), world_size=2, zero_stage=1)) == ["healthy"]


def test_good_news_comes_before_details() -> None:
    busy = WELL | {"forward": 0.45, "backward_allreduce": 0.03, "optimizer_allgather": 0.0}
    run = run_of(steps(40, busy, 1.08), world_size=2, zero_stage=1)
    assert rules(run) == ["healthy", "compute-bound"]


@pytest.mark.parametrize(("seen", "is_healthy"), [(90, True), (50, True), (3, False)])
def test_a_recording_that_saw_few_of_its_collectives_tells_nothing_of_waiting(
    seen: int, is_healthy: bool
) -> None:
    """PyTorch counts 90, of tensor parallelism. What little is seen of them is in the table."""
    told = [config("collectives_issued", 90) | {"rank": 0}]
    told.append(config("collectives_seen", seen) | {"rank": 0})
    rows = steps(20, {"forward": 0.97, "reduce_grads": 0.02}, 1.0)
    run = run_of([*told, *rows], world_size=2, zero_stage=1)
    assert ("healthy" in rules(run)) == is_healthy
    assert any("no timer shows the communication" in f.title for f in run.findings) != is_healthy


def test_where_all_collectives_are_seen_none_hide_in_steps_that_have_none() -> None:
    """Ranks that meet at each tenth step alone, which sticks out for that."""
    rows = steps(41, {"forward": 0.97}, None)
    for step in range(1, 42):
        meets = 9.0 * (step % 10 == 0)
        rows += [phase("reduce_grads", step, meets)] if meets else []
        rows.append(metric("step_seconds", step, 1.0 + meets))
    counts = [config(f"collectives_{name}", 4) | {"rank": 0} for name in ("issued", "seen")]
    for told, hides in (([], True), (counts, False)):
        found = findings_of(run_of([*told, *rows], world_size=2))
        assert any("no timer shows the communication" in one.title for one in found) == hides


def test_a_run_with_a_warning_is_not_healthy() -> None:
    run = run_of(steps(40, WELL | {"data": 0.3}, 1.3), world_size=2, zero_stage=1)
    assert "healthy" not in rules(run)


@pytest.mark.parametrize("stage", [None, 3])
def test_a_run_whose_communication_is_not_seen_is_not_healthy(stage: int | None) -> None:
    busy = {"forward": 0.35, "backward_inner": 0.6, "optimizer_step": 0.05}
    stages = [] if stage is None else [config("zero_stage", stage)]
    run = run_of([*stages, *steps(40, busy)], world_size=2)
    assert "healthy" not in rules(run)
    assert "unknown" in findings_of(run)[0].summary


def test_a_run_whose_ranks_share_layers_is_not_said_to_be_healthy() -> None:
    rows = steps(40, {"forward": 0.35, "backward_inner": 0.5, "backward_allreduce": 0.1})
    assert "healthy" in rules(run_of(rows, world_size=4, zero_stage=1))
    shared = run_of(rows, world_size=4, zero_stage=1, tensor_parallel_size=2)
    assert "healthy" not in rules(shared)
    assert "no timer shows what tensor parallelism exchanges" in findings_of(shared)[0].summary


def test_every_run_gets_a_verdict() -> None:
    unclear = run_of(steps(40, {"optimizer_step": 0.02, "backward_allreduce": 0.05}, 0.07))
    for run in (unclear, run_of(steps(1, {})), run_of([memory("allocated", 1, bytes=1.0)])):
        assert findings_of(run)


def test_findings_are_sorted_by_what_they_cost() -> None:
    bad = {"data": 0.25, "forward": 0.2, "backward_allreduce": 0.4, "optimizer_step": 0.2}
    found = [(f.rule, f.severity) for f in findings_of(run_of(steps(40, bad, 1.05), world_size=2))]
    assert found[:3] == [
        ("communication-bound", Severity.CRITICAL),
        ("data-bound", Severity.CRITICAL),
        ("optimizer-bound", Severity.WARNING),
    ]


def test_the_rules_are_those_of_the_contract() -> None:
    contract = [
        "communication-bound",
        "pipeline-bubble",
        "pipeline-imbalance",
        "straggler-rank",
        "slow-link",
        "small-messages",
        "no-overlap",
        "zero3-gather-stall",
        "data-bound",
        "compute-bound",
        "optimizer-bound",
        "offload-bound",
        "checkpoint-stall",
        "host-sync",
        "memory-pressure",
        "memory-growth",
        "allocator-thrash",
        "oom",
        "overflow-streak",
        "nan-loss",
        "step-spikes",
        "slowdown",
        "rank-died",
        "earlier-failure",
        "hang",
        "network-fallback",
        "gpu-throttled",
        "unaccounted-time",
        "untrustworthy-timers",
    ]
    ours = [
        "loss-diverged", "evaluation-stall", "standing-still", "host-bound", "generation-bound",
        "cpu-contention", "costly-setting", "garbage-collection",
    ]  # fmt: skip
    assert set(RULES) == {*contract, *ours}  # healthy is asked after all of them


def test_a_rank_that_trains_alone_is_not_told_how_much_of_its_step_is_communication() -> None:
    """A recording knows that it is none: a class of 0 seconds."""
    alone = {"forward": 0.3, "backward_inner": 0.65, "optimizer_step": 0.05}
    run = run_of(steps(40, alone | {"backward_allreduce": 0.0}), world_size=1)
    title = next(each.title for each in findings_of(run) if each.rule == "healthy")
    assert title == "Nothing holds this run back: compute is 95 % of a step"
