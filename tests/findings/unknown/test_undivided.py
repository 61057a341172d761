"""Timers that hold compute and communication together, and logs that divide nothing."""

from __future__ import annotations

from typing import Any

import pytest

from dsprof.events import Severity
from dsprof.findings import findings_of
from dsprof.run import Run
from tests.findings.plants import (
    WELL,
    Row,
    alone,
    call,
    metric,
    phase,
    rules,
    run_of,
    steps,
    words_of,
)

UNTIMED = "unaccounted-time"


def test_a_log_of_calls_alone_is_told_to_print_timers_and_the_rest_has_no_price() -> None:
    calls = [call("all_reduce", step, 1e6, 0.2) for step in range(1, 5)]
    found = alone(run_of(steps(4, {}) + calls, world_size=2), "unaccounted-time")
    assert found.title == "80 % of a step is outside the logged calls: this log has no timers"
    assert (found.severity, found.seconds_per_step) == (Severity.INFO, None)
    assert found.advice[0].setting == "wall_clock_breakdown"


def test_zero_3_timers_are_unknown_and_name_the_logger_that_would_tell() -> None:
    run = run_of(steps(40, WELL), world_size=2, zero_stage=3)
    found = findings_of(run)[0]
    assert found.rule == "unaccounted-time"
    assert "computation and communication together" in found.title
    assert "bound by compute or communication is unknown" in found.summary
    assert found.title.startswith("85 % of a step is computation and communication together")
    assert found.title.endswith("; beside it, at least 10 % is communication")
    assert (found.share, found.seconds_per_step) == (None, None)  # what is unknown has no price
    assert found.advice[0].setting == "comms_logger.enabled"
    assert "healthy" not in rules(run)


def test_what_is_undivided_of_a_usual_step_is_a_share_of_that_and_not_of_spikes() -> None:
    rows = steps(60, WELL)
    stuck = {"forward": 9.3, "step_seconds": 10.0}
    rows = [
        row | {"seconds": stuck[row["name"]]} if row["step"] == 30 and row["name"] in stuck else row
        for row in rows
    ]
    run = run_of(rows, world_size=2, zero_stage=3)
    assert run.findings[0].rule == "step-spikes"
    title = alone(run, UNTIMED).title
    assert title.startswith("85 % of a step is computation and communication together")
    assert title.endswith("; beside it, at least 10 % is communication")


def test_several_ranks_are_spoken_of_only_where_they_are_told() -> None:
    alike = {"forward": 0.4, "backward": 0.0, "step": 0.1}
    one_rank = run_of(steps(9, alike, 0.5))
    several = run_of(steps(9, alike, 0.5), world_size=4)
    replicas = run_of(steps(9, alike, 0.5), data_parallel_size=8)
    assert "if there are several ranks" in alone(one_rank, "unaccounted-time").title
    said = alone(one_rank, "unaccounted-time").summary
    assert "). No timer shows communication, and the number of ranks is unknown: " in said
    assert "the communication of several ranks" in alone(several, "unaccounted-time").title
    assert "the communication of several ranks" in alone(replicas, "unaccounted-time").title


@pytest.mark.parametrize(
    ("told", "hidden"),
    [
        ({}, True),
        ({"parameters": 1e9, "reduce_bucket_size": 5e8}, True),
        ({"parameters": 1e8, "reduce_bucket_size": 5e8}, False),
        ({"parameters": "many"}, True),
        ({"zero_stage": 1}, False),
        ({"world_size": 1}, False),
    ],
)
def test_zero_2_reduces_inside_backward_unless_one_bucket_holds_all_gradients(
    told: dict[str, Any], hidden: bool
) -> None:
    """So a log of it is not called healthy, nor bound by compute: no timer can tell."""
    run = run_of(steps(20, WELL), **({"world_size": 2, "zero_stage": 2} | told))
    first = run.findings[0]
    assert (first.rule == "unaccounted-time") == hidden
    if hidden:
        assert first.title.startswith("55 % of a step is computation and communication together")
        assert "ZeRO-2 reduces gradients inside backward whenever a bucket is full" in first.summary
        assert not any(one.rule in {"healthy", "compute-bound"} for one in run.findings)


OVERLAP = '{"zero_optimization": {"stage": 1, "overlap_comm": true}}'


@pytest.mark.parametrize(
    ("told", "timed", "hidden"),
    [
        ({"ds_config": OVERLAP}, WELL, True),
        ({"ds_config": OVERLAP, "parameters": 1e8, "reduce_bucket_size": 5e8}, WELL, False),
        ({"ds_config": OVERLAP, "pipeline_parallel_size": 2}, WELL, False),
        ({"ds_config": OVERLAP.replace("true", "false")}, WELL, False),
        ({"ds_config": OVERLAP}, {k: WELL[k] for k in WELL if "optimizer" not in k}, False),
    ],
    ids=["overlaps", "one bucket", "pipeline", "not", "BF16_Optimizer"],
)
def test_zero_1_with_overlap_comm_reduces_inside_backward_as_well(
    told: dict[str, Any], timed: dict[str, float], hidden: bool
) -> None:
    run = run_of(steps(20, timed), **({"world_size": 2} | told))
    assert run.zero.stage == 1
    said = [one for one in run.findings if "ZeRO-1 with overlap_comm reduces" in one.summary]
    assert [one.rule for one in said] == ["unaccounted-time"] * hidden
    assert bool({"healthy", "compute-bound"} & set(rules(run))) is not hidden


def test_where_zero_may_be_of_stage_2_its_backward_is_not_called_compute() -> None:
    """Timers of its optimizer are those of stages 1 and 2: which it is they do not tell."""
    rows = steps(20, WELL)
    rows += [phase("optimizer_allgather", n, 0.01) | {"timers": "zero-optimizer"} for n in (1, 2)]
    run = run_of(rows, world_size=2)
    assert run.zero.stages == (1, 2)
    found = alone(run, UNTIMED)
    assert found.title.startswith(
        "55 % of a step is computation, and communication, too, if the ZeRO stage is 2: this log "
        "cannot tell"
    )
    assert "Whether the ZeRO stage is 1 or 2 is not known" in found.summary
    assert not {"healthy", "compute-bound"} & set(rules(run))
    one_bucket = run_of(rows, world_size=2, parameters=1e8, reduce_bucket_size=5e8)
    assert UNTIMED not in rules(one_bucket)
    tensors = alone(run_of(rows, world_size=4, tensor_parallel_size=2), UNTIMED)
    assert "is computation and communication together: this log" in tensors.title
    assert "also hold what tensor parallelism exchanges: whether" in tensors.summary


def of_megatron(slow: float = 0.7, **parts: float) -> Run:
    """The whole schedule is timed on each rank; the last rank takes `slow` for it."""
    rows = []
    for step in range(1, 31):
        for rank in range(4):
            takes = slow if rank == 3 else 0.7
            timed = {"forward-backward": takes, "grads-all-reduce": 0.25 - (takes - 0.7), **parts}
            rows += [phase(name, step, value, rank) for name, value in timed.items()]
        rows.append(metric("step_seconds", step, 1.0))
    rows = [row | {"timers": "megatron"} if row["kind"] == "phase" else row for row in rows]
    return run_of(rows, world_size=4)


def test_megatrons_schedule_alone_is_a_mixture_and_its_parts_are_asked_for() -> None:
    found = alone(of_megatron(), "unaccounted-time")
    assert found.severity is Severity.INFO
    assert found.title.startswith("70 % of a step is computation and communication together")
    assert found.advice[0][:3] == ("--timing-log-level", "", "2")


def test_what_the_parts_of_megatrons_schedule_leave_of_it_is_unexplained() -> None:
    parts: Row = {"forward-compute": 0.2, "backward-compute": 0.3}
    found = alone(of_megatron(**parts), "unaccounted-time")
    assert found.severity is Severity.WARNING
    assert found.seconds_per_step == pytest.approx(0.25)
    assert "--timing-log-level" not in words_of(found)


def test_a_rank_that_is_late_in_megatrons_schedule_is_the_verdict() -> None:
    first, second = findings_of(of_megatron(slow=0.9))[:2]
    assert first.rule == "straggler-rank"
    assert first.ranks == (3,)
    assert second.rule == "unaccounted-time"
