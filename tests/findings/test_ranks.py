"""Ranks that make the others wait."""

from __future__ import annotations

import pytest

from dsprof.events import Severity
from dsprof.findings import findings_of
from dsprof.run import Run
from tests.findings.plants import Row, call, one, phase, run_of, silent, steps, why


def ranks(count: int, slow: int, late: float, every: int = 1) -> list[Row]:
    """4 ranks; in every n-th step one of them is late and the others wait for it."""
    rows = steps(count, {}, 1.0)
    for step in range(1, count + 1):
        for rank in range(4):
            behind = late if step % every == 0 else 0.0
            own = behind if rank == slow else 0.0
            rows += [
                phase("data", step, 0.05 + own, rank),
                phase("forward", step, 0.25, rank),
                phase("backward_inner", step, 0.5, rank),
                phase("backward_allreduce", step, 0.2 + behind - own, rank),
            ]
    return rows


def test_the_late_rank_and_its_phase_are_named() -> None:
    run = run_of([{"kind": "config", "name": "x", "rank": 2, "host": "w1"}, *ranks(30, 2, 0.15)])
    found = one(run, "straggler-rank")
    assert found.ranks == (2,)
    assert found.phase == "data"
    assert found.seconds_per_step == pytest.approx(0.15)
    assert found.severity is Severity.WARNING
    assert found.title == "The others wait for rank 2 on w1, 15 % of each step"
    assert found.evidence[0].text == "rank 2, step 30, data: 200 ms"


def test_a_fifth_of_the_step_is_critical() -> None:
    assert one(run_of(ranks(30, 1, 0.25)), "straggler-rank").severity is Severity.CRITICAL


def test_equal_ranks_are_no_finding() -> None:
    assert silent(run_of(ranks(30, 0, 0.0)), "straggler-rank")


def test_a_rank_that_is_late_only_now_and_then_is_no_straggler() -> None:
    rows = ranks(30, 2, 0.0)
    for step in range(1, 31):  # each rank in turn
        rows.append(phase("data", step, 0.3, step % 4))
    assert silent(run_of(rows), "straggler-rank")


def test_too_few_steps_are_not_judged() -> None:
    assert "20 needed" in (why(run_of(ranks(10, 2, 0.3)), "straggler-rank") or "")


def test_one_rank_is_not_judged() -> None:
    run = run_of(steps(30, {"forward": 1.0}))
    assert "timers of fewer than two ranks" in (why(run, "straggler-rank") or "")


def test_stages_of_a_pipeline_are_not_compared() -> None:
    rows = [*ranks(30, 2, 0.3), *(phase("pipe_recv_grad", s, 0.1, 0) for s in range(1, 31))]
    assert "stages" in (why(run_of(rows), "straggler-rank") or "")


def test_a_log_cannot_tell_of_throttling() -> None:
    assert "no samples of the GPUs" in (why(run_of(ranks(30, 2, 0.3)), "gpu-throttled") or "")


def _table(world_size: int) -> Run:
    """Rank 0 waits for 90 % of the 0.4 s that it communicates in a step of 1 s."""
    rows = steps(3, {"forward": 0.6, "backward_allreduce": 0.4})
    rows += [
        call("all_reduce", 3, 1e6, 0.9, name="comm_straggler", kind="metric", text="all_reduce"),
        call("all_reduce", 3, 1e6, 0.1, name="comm_fastest_rank", kind="metric", text="all_reduce"),
    ]
    return run_of(rows, world_size=world_size)


def test_the_straggler_table_of_deepspeed_tells_waiting_from_moving() -> None:
    found = one(_table(5), "straggler-rank")
    assert found.title == "Rank 0 waits for a slower rank, 36 % of each step"
    assert found.gain == pytest.approx((0.18, 0.36))
    assert (found.ranks, found.confidence) == ((), "medium")
    assert findings_of(_table(5))[0].rule == "straggler-rank"


def test_of_two_ranks_the_one_that_does_not_wait_is_late() -> None:
    found = one(_table(2), "straggler-rank")
    assert (found.ranks, found.confidence) == ((1,), "high")
