"""ZeRO-3's parameter gathers."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsprof.events import Severity
from dsprof.run import load
from tests.findings.plants import (
    WELL,
    alone,
    call,
    metric,
    one,
    phase,
    problem,
    recorded,
    run_of,
    silent,
    steps,
    why,
)
from tests.loaded import run_of_text
from tests.recording.recorded import record

#: Where the hook sees a gathering of ZeRO-3's.
PATH = "forward/all_gather_into_tensor"


def test_waiting_for_a_prefetch_is_a_gather_stall() -> None:
    run = run_of(steps(10, WELL | {"forward_fetch_wait": 0.2}, 1.2), zero_stage=3)
    found = one(run, "zero3-gather-stall")
    assert found.seconds_per_step == pytest.approx(0.2)
    assert found.severity is Severity.WARNING
    assert found.confidence == "high"


def test_gathers_of_the_communication_logger_are_an_upper_bound() -> None:
    rows = [call("all_gather_into_tensor", step, 1e6, 0.1) for step in range(1, 11)]
    found = one(run_of(steps(10, WELL) + rows, zero_stage=3, world_size=2), "zero3-gather-stall")
    assert found.seconds_per_step == pytest.approx(0.1)
    assert "upper bound" in found.summary
    assert found.confidence == "low"
    assert found.gain is None


@pytest.mark.parametrize(
    ("parameters", "advised"),
    [
        (1e6, ["stage3_param_persistence_threshold"]),
        (2e8, ["stage3_prefetch_bucket_size"]),
        (7e9, ["stage3_prefetch_bucket_size", "stage3_max_live_parameters"]),
    ],
)
def test_a_size_that_holds_the_whole_model_is_not_advised_to_be_larger(
    parameters: float, advised: list[str]
) -> None:
    """By default 5e7 parameters are fetched ahead, and 1e9 are kept."""
    run = run_of(
        steps(10, WELL | {"forward_fetch_wait": 0.2}, 1.2),
        ds_config='{"zero_optimization": {"stage": 3}}',
        parameters=parameters,
    )
    found = alone(run, "zero3-gather-stall")
    assert [one.setting for one in found.advice] == [
        *(f"zero_optimization.{key}" for key in advised), "zero_optimization.stage"
    ]  # fmt: skip


def test_a_broken_prefetch_is_found_without_a_price() -> None:
    rows = [
        problem("prefetch-broken", f"Invalidate trace cache @ step {7 + n}", step=3 + n)
        for n in range(5)
    ]
    found = alone(run_of(steps(10, WELL) + rows, zero_stage=3), "zero3-gather-stall")
    assert found.seconds_per_step is None
    assert found.title == (
        "ZeRO-3 lost its trace of modules 5 times: it then prefetches no parameters"
    )
    assert found.evidence[0].text == "Invalidate trace cache @ step 7"
    assert found.advice[0].setting == "deepspeed.utils.set_z3_leaf_modules"


def test_a_broken_prefetch_is_the_finding_where_gathering_takes_little() -> None:
    rows = [problem("prefetch-broken", "Invalidate trace cache", step=3 + n) for n in range(5)]
    run = run_of(steps(10, WELL | {"forward_fetch_wait": 0.02}, 1.2) + rows, zero_stage=3)
    found = one(run, "zero3-gather-stall")
    assert found.title.startswith("ZeRO-3 lost its trace of modules 5 times")
    assert "Gathering takes 20.0 ms per step" in found.summary
    assert found.severity is Severity.WARNING


def test_the_module_that_a_trace_broke_at_is_no_step_that_was_counted() -> None:
    losses = "".join(f"{{'loss': {n}.5, 'learning_rate': 1e-05, 'epoch': 0.0}}\n" for n in (3, 2))
    line = "Invalidate trace cache @ step 391: expected module 25, but got module 5"
    found = alone(run_of_text(losses, *[f"{line}\n"] * 5), "zero3-gather-stall")
    assert found.evidence[0].text == line


def test_a_trace_that_breaks_now_and_then_is_no_finding() -> None:
    rows = [problem("prefetch-broken", "Invalidate trace cache", step=s) for s in range(1, 11)]
    few = run_of(steps(1000, {}) + rows, zero_stage=3, world_size=2)
    assert "no line times them" in (why(few, "zero3-gather-stall") or "")
    often = run_of(steps(50, {}) + rows, zero_stage=3, world_size=2)
    assert "invalidated 10 times" in one(often, "zero3-gather-stall").summary
    twice = [row | {"segment": launch} for launch in (0, 1) for row in steps(75, {})]
    rare = run_of(twice + rows, zero_stage=3, world_size=2)
    assert "no line times them" in (why(rare, "zero3-gather-stall") or "")


def test_a_trace_that_broke_once_does_not_hide_that_memory_is_full() -> None:
    flush = (
        "[2024-03-04 10:11:12,345] [WARNING] [stage3.py:1826:step] 2 pytorch allocator cache "
        "flushes since last step. this happens when there is high memory pressure\n"
    )
    run = run_of_text(flush, "Invalidate trace cache @ step 9: expected module 1, but got module 5")
    assert run.findings[0].title == "The allocator flushed its cache 2 times: GPU memory is full"
    assert why(run, "zero3-gather-stall")


def test_one_rank_gathers_from_nobody() -> None:
    rows = [problem("prefetch-broken", "Invalidate trace cache", step=3)]
    run = run_of(steps(3, {}) + rows, zero_stage=3, world_size=1)
    assert why(run, "zero3-gather-stall") == "a single rank gathers from no other"


def test_zero_3_without_comm_lines_is_not_judged_but_says_what_would_show_it() -> None:
    run = run_of([*steps(10, WELL), phase("step", 3, 0.1)], zero_stage=3, world_size=2)
    assert "comms_logger" in (why(run, "zero3-gather-stall") or "")


def test_a_recording_tells_of_gathers_that_were_not_fetched_ahead() -> None:
    timed = WELL | {"forward": 0.1, "backward_inner": 0.5, "optimizer_allgather": 0.3}
    rows = [
        recorded("all_gather_into_tensor", step, 4 << 20, 0.1, "forward") for step in range(1, 11)
    ] * 3
    run = run_of(steps(10, timed) + rows, world_size=2, zero_stage=3)
    found = one(run, "zero3-gather-stall")
    assert found.seconds_per_step == pytest.approx(0.3)
    assert found.gain == pytest.approx((0.15, 0.45))
    assert found.confidence == "high"
    assert silent(run, "communication-bound")


def test_small_gathers_of_zero_3_are_a_gather_stall_and_nothing_else() -> None:
    timed = WELL | {"forward": 0.1, "backward_inner": 0.2, "optimizer_allgather": 0.6}
    rows = [
        recorded("all_gather_into_tensor", step, 4096, 0.03, "forward")
        for step in range(1, 11)
        for _ in range(20)
    ]
    run = run_of(steps(10, timed) + rows, world_size=2, zero_stage=3)
    assert run.findings[0].rule == "zero3-gather-stall"
    assert silent(run, "small-messages")


def test_a_recording_without_deepspeed_is_of_no_zero_3_run(tmp_path: Path) -> None:
    """It would have recorded the engine's stage, and gathers are calls of their own."""
    record(tmp_path, 30)
    record(tmp_path, 30, rank=1)
    assert why(load(tmp_path), "zero3-gather-stall") == "not a ZeRO-3 run"


@pytest.mark.parametrize(
    ("meeting", "stall"), [("backward_allreduce", 0.3), ("optimizer_allgather", 0.2)]
)
def test_waiting_for_a_late_rank_is_taken_off_the_gathers_only_where_it_is_in_them(
    meeting: str, stall: float
) -> None:
    rows = []
    for step in range(1, 31):
        for rank, late in ((0, 0.0), (1, 0.2)):
            rows += [
                metric("step_seconds", step, 1.0, rank=rank),
                phase("forward", step, 0.3 + late, rank),
                phase(meeting, step, 0.7 - late, rank),
                call("all_gather_into_tensor", step, 1e8, 0.3, rank, value=0.3, raw=PATH),
            ]
    found = alone(run_of(rows, world_size=2, zero_stage=3), "zero3-gather-stall")
    assert found.seconds_per_step == pytest.approx(stall)


def test_waiting_for_whichever_rank_comes_late_is_no_gathering() -> None:
    """Every second step rank 0 works for 0.4 s beside the engine, and rank 1 waits to gather."""
    rows = []
    for step in range(1, 31):
        late = 0.4 * (step % 2)
        for rank, waits in ((0, 0.0), (1, late)):
            rows += [
                metric("step_seconds", step, 1.0 + late, rank=rank),
                phase("forward", step, 0.5, rank),
                phase("all_gather_in_forward", step, 0.2 + waits, rank),
                phase("backward_allreduce", step, 0.3, rank),
                call(
                    "all_gather_into_tensor",
                    step,
                    1e8,
                    0.2 + waits,
                    rank,
                    value=0.2 + waits,
                    raw=PATH,
                ),
            ]
    found = alone(run_of(rows, world_size=2, zero_stage=3), "zero3-gather-stall")
    assert found.seconds_per_step == pytest.approx(0.2)


def test_what_the_script_gathers_beside_all_phases_is_not_to_be_fetched_ahead() -> None:
    """As an average of ZeRO-3's weights does, which gathers each of them: 0.4 s of a step."""
    timed = WELL | {"forward": 0.3, "all_gather_into_tensor": 0.4, "all_gather_in_forward": 0.1}
    op, rows = "all_gather_into_tensor", []
    for step in range(1, 11):
        rows.append(recorded(op, step, 4 << 20, 0.1, "forward"))
        rows += [recorded(op, step, 4 << 20, 0.1)] * 4
    run = run_of(steps(10, timed) + rows, world_size=2, zero_stage=3)
    assert alone(run, "zero3-gather-stall").seconds_per_step == pytest.approx(0.1)
    found = alone(run, "communication-bound")
    assert found.seconds_per_step == pytest.approx(0.4)
    assert "400 ms of it are calls that the script or its trainer makes" in found.summary
    assert found.phase == op
