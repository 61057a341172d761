"""Known defects: corrected where they can be, doubted where they cannot, silent elsewhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from dsprof.run import Run, from_events
from tests.loaded import run_of_text
from tests.run.run_rows import config, events, grammar_with, metric, timers

LOGGED = {"kind": "comm", "rank": 0, "count": 1, "bytes": 1024.0, "pattern": "deepspeed_comms.op"}
SUMMARY = LOGGED | {"pattern": "deepspeed_comms.summary"}
START = pd.Timestamp("2026-11-01")


def run_of(*rows: dict[str, Any], lines: tuple[str, ...] = ()) -> Run:
    """Of ZeRO 1, unless said."""
    return run_of_any_stage(config("zero_stage", 1), *rows, lines=lines)


def run_of_any_stage(*rows: dict[str, Any], lines: tuple[str, ...] = ()) -> Run:
    meta = {"fingerprints": dict.fromkeys(lines, 1)}
    return from_events(events(rows), grammar=grammar_with(), meta=meta)


def version(text: str) -> dict[str, Any]:
    return {"kind": "config", "name": "deepspeed_version", "text": text}


def calls(*milliseconds: float, op: str = "all_reduce", **more: Any) -> list[dict[str, Any]]:
    return [LOGGED | {"name": op, "seconds": ms / 1000} | more for ms in milliseconds]


def names(run: Run) -> list[str]:
    return run.repairs["name"].tolist()


def test_a_run_without_defects_reports_none() -> None:
    assert names(run_of(version("0.16.9"), metric("loss", 1, 1.0))) == []


def test_a_repair_says_how_many_rows_and_where() -> None:
    run = run_of(metric("lr", 0, 0.1), metric("skipped", 0, 0.0), metric("lr", 10, 0.1))
    repair = run.repairs.iloc[0]
    assert (repair["name"], repair["kind"], repair["rows"]) == ("initial-step-zero", "repair", 2)
    assert (repair["source"], repair["line"], repair["lines"]) == ("a.log", 2, "2, 3")


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), -5.0, 1e300])
def test_a_duration_that_no_clock_reads_takes_the_timers_beside_it_along(odd: float) -> None:
    run = run_of(
        *timers("zero", 1, forward=odd, backward=0.03, step=0.0),
        *timers("zero", 2, forward=0.01, backward=0.03, step=0.0),
    )
    assert "impossible-seconds" in names(run)
    assert list(run.phases["step"].unique()) == [2]
    assert run.steps["seconds"].dropna().tolist() == [pytest.approx(0.04)]


def test_step_zero_is_no_step_but_stays_an_event() -> None:
    run = run_of(metric("lr", 0, 0.1), metric("lr", 10, 0.2))
    assert run.steps["step"].tolist() == [10]
    assert (run.events["name"] == "lr").sum() == 2


# --- communication latencies that add up -------------------------------------


def test_latencies_that_only_rise_are_replaced_by_their_increase() -> None:
    run = run_of(*calls(5.0, 7.0, 7.5, 9.0, 10.0))
    assert run.comm["seconds"].tolist() == pytest.approx([0.005, 0.002, 0.0005, 0.0015, 0.001])
    assert names(run) == ["cumulative-comm-latency"]


def test_each_operation_has_its_own_sum() -> None:
    rows = [
        call
        for pair in zip(calls(1, 2, 3, 4, 5), calls(10, 30, 60, 90, 120, op="barrier"), strict=True)
        for call in pair
    ]
    comm = run_of(*rows).comm
    assert comm.loc[comm["op"] == "barrier", "seconds"].tolist() == pytest.approx(
        [0.01, 0.02, 0.03, 0.03, 0.03]
    )


def test_latencies_that_fall_now_and_then_are_believed() -> None:
    run = run_of(version("0.19.8"), *calls(5.0, 7.0, 6.0, 9.0, 10.0))
    assert run.comm["seconds"].tolist() == pytest.approx([0.005, 0.007, 0.006, 0.009, 0.010])
    assert names(run) == []


def test_four_rising_latencies_prove_nothing_unless_the_version_does() -> None:
    assert names(run_of(*calls(1.0, 2.0, 3.0, 4.0))) == []
    assert names(run_of(version("0.19.8"), *calls(1.0, 2.0))) == ["cumulative-comm-latency"]


def test_rising_latencies_of_an_older_version_are_believed() -> None:
    assert names(run_of(version("0.16.9"), *calls(1, 2, 3, 4, 5, 6))) == []


def test_equal_latencies_are_no_sum() -> None:
    assert names(run_of(*calls(0.2, 0.2, 0.2, 0.2, 0.2, 0.2))) == []


def test_a_new_process_starts_its_sum_anew() -> None:
    run = run_of(version("0.19.8"), *calls(1, 2, 4), *calls(3, 4, segment=1))
    assert run.comm["seconds"].tolist() == pytest.approx([0.001, 0.001, 0.002, 0.003, 0.001])


def test_a_summary_of_sums_is_suspect_and_left_as_it_is() -> None:
    run = run_of(version("0.19.8"), SUMMARY | {"name": "all_reduce", "seconds": 5.0, "count": 40})
    assert run.comm["seconds"].tolist() == [5.0]
    assert run.comm["suspect"].notna().all()
    assert names(run) == ["cumulative-comm-latency"]


def summary_after(seconds: float, *, pattern: str) -> list[dict[str, Any]]:
    """Two operations of 4 s and 5 s in a log that ends `seconds` after its first line."""
    ops = [SUMMARY | {"name": "all_reduce", "seconds": s, "record": 9} for s in (4.0, 5.0)]
    start = {"kind": "config", "name": "nodes", "value": 1, "pattern": pattern, "at": START}
    return [start, *ops, metric("loss", 9, 1.0, at=START + pd.Timedelta(seconds=seconds))]


def test_a_summary_that_exceeds_the_time_since_launch_is_suspect_whatever_the_version() -> None:
    assert names(run_of(*summary_after(8, pattern="launcher.nodes"))) == ["cumulative-comm-latency"]
    assert names(run_of(*summary_after(10, pattern="launcher.nodes"))) == []


def test_a_summary_in_an_excerpt_may_exceed_the_excerpts_time() -> None:
    assert names(run_of(*summary_after(8, pattern="x.y"))) == []


def test_moe_timers_that_add_up_are_repaired_too() -> None:
    lines = [timers("moe", step, first_alltoall=0.01 * step) for step in range(1, 7)]
    marks = [metric("loss", step, 1.0) for step in range(1, 7)]
    run = run_of(version("0.19.8"), *(row for line in lines for row in line), *marks)
    assert run.phases["seconds"].tolist() == pytest.approx([0.01] * 6)
    assert names(run) == ["moe-a2a-cumulative"]


# --- timers that read zero ----------------------------------------------------


def test_zero_global_timers_are_rebuilt_from_the_micro_batches() -> None:
    later: dict[str, Any] = {"backward_microstep": 0.3, "step_microstep": 0.1}
    run = run_of(
        *timers("zero-micro", 1, steps=None, forward_microstep=0.1, **later),
        *timers("zero-micro", 1, steps=None, forward_microstep=0.2, **later),
        *timers("zero", 1, forward=0.0, backward=0.0, step=0.0),
        metric("loss", 1, 1.0),
    )
    seconds = dict(zip(run.phases["name"], run.phases["seconds"], strict=True))
    assert seconds == pytest.approx({"forward": 0.3, "backward": 0.6, "step": 0.2})
    assert names(run) == ["zero-global-timers"]


def test_what_a_loop_around_the_engine_does_not_see_is_the_engines_to_tell() -> None:
    """gpt-neox prints its own timers behind DeepSpeed's: its backward-allreduce is always 0."""
    engine: dict[str, Any] = {"backward": 0.6, "backward_inner": 0.4, "backward_allreduce": 0.2}
    run = run_of(
        *timers("zero-micro", 1, steps=None, backward_allreduce=0.2),
        *timers("zero", 1, forward=0.1, step=0.1, **engine),
        metric("loss", 1, 1.0),
        *timers("loop", 1, **engine | {"backward_inner": 0.6, "backward_allreduce": 0.0}),
    )
    seconds = dict(zip(run.phases["name"], run.phases["seconds"], strict=True))
    assert seconds == pytest.approx({"forward": 0.1, "step": 0.1, **engine})
    assert names(run) == []


def test_one_zero_timer_beside_its_micro_batches_is_rebuilt_alone() -> None:
    run = run_of(
        *timers("zero-micro", 1, steps=None, forward_microstep=0.1),
        *timers("zero", 1, forward=0.0, backward=0.5, step=0.1),
        metric("loss", 1, 1.0),
    )
    seconds = dict(zip(run.phases["name"], run.phases["seconds"], strict=True))
    assert seconds == {"forward": 0.1, "backward": 0.5, "step": 0.1}


def test_a_line_of_zeros_says_nothing() -> None:
    run = run_of(*timers("megatron", 1, optimizer=0.0), metric("loss", 1, 1.0))
    assert len(run.phases) == 0
    assert np.isnan(run.steps["optimizer"][0])
    assert names(run) == ["all-zero-timers"]


def test_a_set_up_timer_may_round_to_zero() -> None:
    run = run_of(*timers("setup", 1, init_optimizer_state=0.0), metric("loss", 1, 1.0))
    assert names(run) == []


def test_a_zero_among_other_timers_stays() -> None:
    run = run_of(*timers("zero", 1, forward=0.1, backward=0.0, step=0.1), metric("loss", 1, 1.0))
    assert len(run.phases) == 3
    assert names(run) == []


# --- the pipeline's own line --------------------------------------------------


def pipeline_line(step: int, seconds: float, rate: float, at: float) -> list[dict[str, Any]]:
    shared = {
        "pattern": "deepspeed_pipeline.steps", "steps": 10, "record": 500_000 + step,
        "at": START + pd.Timedelta(seconds=at),
    }  # fmt: skip
    return [
        metric("step_seconds", step, seconds, **shared),
        metric("samples_per_second", step, rate, **shared),
    ]


def test_iteration_times_a_thousand_times_the_clock_are_divided() -> None:
    # Ten steps in 5 s: 0.5 s each, printed as 500 s.
    lines = [*pipeline_line(10, 500.0, 0.128, 0), *pipeline_line(20, 500.0, 0.128, 5)]
    run = run_of(*lines, lines=("logging.py:69",))
    assert run.steps["seconds"].tolist() == [0.5, 0.5]
    assert run.steps["samples_per_second"].tolist() == [128.0, 128.0]
    assert names(run) == ["pipeline-1000x"]


def test_a_rate_of_one_digit_says_no_more_a_thousand_times_as_large() -> None:
    lines = [*pipeline_line(10, 500.0, 0.001, 0), *pipeline_line(20, 500.0, 0.001, 5)]
    run = run_of(*lines, lines=("logging.py:69",))
    assert names(run) == ["pipeline-1000x"]
    assert run.steps["samples_per_second"].isna().all()


def test_iteration_times_that_fit_the_clock_stay() -> None:
    lines = [*pipeline_line(10, 0.5, 128.0, 0), *pipeline_line(20, 0.5, 128.0, 5)]
    run = run_of(*lines, lines=("logging.py:69",))
    assert run.steps["seconds"].tolist() == [0.5, 0.5]
    assert names(run) == []


def bare(step: int, at: float) -> list[dict[str, Any]]:
    """The engine's line with a time, and the pipeline's own that follows it without."""
    stamp = START + pd.Timedelta(seconds=at)
    line = pipeline_line(step, 500.0, 0.128, 0)
    return [metric("lr", step, 0.1, at=stamp), *(row | {"at": pd.NaT} for row in line)]


def test_the_line_before_a_bare_one_tells_its_time() -> None:
    run = run_of(*bare(10, 0), *bare(20, 5), lines=("logging.py:69",))
    assert run.steps["seconds"].tolist() == [0.5, 0.5]
    assert names(run) == ["pipeline-1000x"]
    assert names(run_of(*bare(10, 0), *bare(20, 5000), lines=("logging.py:69",))) == []


def test_timers_tell_an_iteration_time_that_is_a_thousand_fold() -> None:
    line = [row | {"at": pd.NaT} for row in pipeline_line(10, 500.0, 0.128, 0)]
    timed = timers("pipeline", 10, steps=10, forward=1.5, pipe_recv_grad=2.5)
    run = run_of(*line, *timed, lines=("logging.py:69",))
    assert run.steps["seconds"].tolist() == [0.5]
    assert names(run) == ["pipeline-1000x"]
    slow = [row | {"seconds": 200 * row["seconds"]} for row in timed]
    assert names(run_of(*line, *slow, lines=("logging.py:69",))) == []


@pytest.mark.parametrize(
    ("of", "forward", "kind", "seconds"),
    [
        ("0.7.3", 200.0, "repair", 0.2),
        ("0.9.2", 200.0, None, 200.0),
        ("", 200.0, "doubt", 200.0),
        ("", 0.2, None, 0.2),
    ],
)
def test_times_that_a_monitor_wrote_a_thousand_fold_are_divided_or_doubted(
    of: str, forward: float, kind: str | None, seconds: float
) -> None:
    rows = [row for step in (1, 2, 3) for row in timers("zero", step, forward=forward)]
    written = [row | {"pattern": "csv_monitor.scalar"} for row in rows]
    run = run_of(*written, *([version(of)] if of else []))
    found = run.repairs[run.repairs["name"] == "monitor-1000x"]
    assert found["kind"].tolist() == [kind] * (kind is not None)
    assert run.phases["seconds"].tolist() == pytest.approx([seconds] * 3)


def _iteration(batch: int, milliseconds: float, rate: str) -> str:
    return (
        f" iteration 17067/ 159576 | elapsed time per iteration (ms): {milliseconds} | global "
        f"batch size: {batch} | lm loss: 4.1E+00 | samples per second: {rate} | TFLOPs: 32.00 |\n"
    )


def test_a_rate_a_thousandth_of_the_batch_over_the_time_on_its_line_is_what_these_give() -> None:
    run = run_of_text(_iteration(2048, 423000.0, "0.005"))
    assert run.steps["samples_per_second"].tolist() == pytest.approx([2048 / 423])
    assert names(run) == ["rate-1000x"]


@pytest.mark.parametrize(
    ("batch", "milliseconds", "rate"),
    [(2048, 423000.0, "4.841"), (2, 400000.0, "0.005"), (2048, 423000.0, "0.009")],
)
def test_a_rate_that_its_line_does_not_prove_a_thousandth_stays(
    batch: int, milliseconds: float, rate: str
) -> None:
    run = run_of_text(_iteration(batch, milliseconds, rate))
    assert run.steps["samples_per_second"].tolist() == [float(rate)]
    assert "rate-1000x" not in names(run)


def test_throughput_divided_by_the_window_is_multiplied_back() -> None:
    # 64 samples in 0.5 s are 128 a second; 0.3.0 printed a tenth of it.
    rows = [config("train_batch_size", 64), *pipeline_line(10, 0.5, 12.8, 0)]
    run = run_of(*rows, lines=("logging.py:60",))
    assert run.steps["samples_per_second"].tolist() == [128.0]
    assert names(run) == ["throughput-steps-per-print"]


@pytest.mark.parametrize(
    ("samples", "printed", "rates"),
    [
        (64, 6.4, [128.0, 120.755, 133.333]),  # 6.4 samples are none: ten times as many are
        (80, 8.0, [16.0, 15.094, 16.667]),  # 8 may be all of a step
        (64, 64.0, [128.0, 120.755, 133.333]),
    ],
)
def test_a_throughput_of_parts_of_samples_was_divided_whatever_the_batch(
    samples: int, printed: float, rates: list[float]
) -> None:
    rows = [
        row
        for n, seconds in enumerate((0.5, 0.53, 0.48), 1)
        for row in pipeline_line(10 * n, seconds, round(printed / seconds, 3), 5.0 * n)
    ]
    run = run_of(*rows, lines=("logging.py:60",))
    assert run.steps["samples_per_second"].round(3).tolist() == rates
    assert names(run) == ["throughput-steps-per-print"] * (printed * 10 == samples != 80)


def test_a_right_throughput_of_the_same_version_stays() -> None:
    rows = [config("train_batch_size", 64), *pipeline_line(10, 0.5, 128.0, 0)]
    assert names(run_of(*rows, lines=("logging.py:60",))) == []


# --- doubts -------------------------------------------------------------------


def test_timers_that_keep_only_the_last_interval_are_doubted() -> None:
    rows = [metric("loss", 10, 1.0), *timers("pipeline", 10, steps=10, forward=1.0)]
    assert "last-interval-only" in names(run_of(version("0.5.4"), *rows))
    assert "last-interval-only" not in names(run_of(version("0.5.7"), *rows))
    # 0.4.2 to 0.5.6 or 0.7.0 to 0.8.0: not sure enough.
    assert "last-interval-only" not in names(run_of(*rows, lines=("logging.py:68",)))


def last_steps(*versions: dict[str, Any], stamps: float = 50.0) -> Run:
    """A pipeline of 5 s a step that prints every ten: its last step's 5 s, divided by ten."""
    rows = [
        row
        for n in range(1, 6)
        for row in (
            *pipeline_line(10 * n, 0.5, 64.0, stamps * n),
            *timers("pipeline", 10 * n, steps=10, forward=0.125, backward=0.25, step=0.3),
        )
    ]
    return run_of(*versions, *rows, lines=("logging.py:68",))


@pytest.mark.parametrize("versions", [[version("0.5.0")], []], ids=["stated", "by the clock"])
def test_the_last_steps_time_that_was_divided_by_the_window_is_multiplied_back(
    versions: list[dict[str, Any]],
) -> None:
    run = last_steps(*versions)
    assert run.steps["seconds"].tolist() == [5.0] * 5
    assert run.steps["samples_per_second"].tolist() == pytest.approx([6.4] * 5)
    assert names(run) == ["last-interval-only", "last-step-divided"]


def test_a_window_whose_time_fits_the_clock_was_not_divided() -> None:
    run = last_steps(stamps=5.0)
    assert run.steps["seconds"].tolist() == [0.5] * 5
    assert names(run) == []


def test_a_clock_that_shows_other_than_whole_windows_proves_no_division() -> None:
    assert names(last_steps(stamps=35.0)) == []


def test_what_lies_outside_of_timers_that_lost_intervals_is_in_no_finding() -> None:
    run = last_steps()
    assert run.phases.empty
    assert run.steps["other"].isna().all()
    assert all(found.share is None for found in run.findings)
    assert run.findings[0].rule == "untrustworthy-timers"


def test_a_save_that_is_timed_once_has_lost_no_interval() -> None:
    rows = [metric("loss", 1, 1.0), *timers("save", 1, save=2.0)]
    assert names(run_of(version("0.5.4"), *rows)) == []


def test_lines_of_micro_batches_leave_the_last_interval_nothing_to_hide() -> None:
    line: dict[str, Any] = {"forward": 0.1, "backward": 0.2, "step": 0.4}
    parts: dict[str, Any] = {f"{name}_microstep": seconds for name, seconds in line.items()}
    one = [*timers("zero-micro", 1, steps=None, **parts), *timers("zero", 1, **line)]
    run = run_of(version("0.5.4"), metric("loss", 1, 1.0), *one)
    assert names(run) == []
    assert run.steps["seconds"].tolist() == pytest.approx([0.7])


def accumulating(step: int, forward: float) -> list[dict[str, Any]]:
    """Two micro-batches of 0.1 and 0.2 s forward; the step's own line says `forward`."""
    parts: list[dict[str, Any]] = [
        {"forward_microstep": seconds, "backward_microstep": 0.0} for seconds in (0.1, 0.2)
    ]
    return [
        *timers("zero-micro", step, steps=None, **parts[0], step_microstep=0.0),
        *timers("zero-micro", step, steps=None, **parts[1], step_microstep=0.4),
        *timers("zero", step, forward=forward, backward=0.0, step=0.4),
    ]


def test_numbers_that_prove_the_last_interval_need_no_version() -> None:
    run = run_of(*accumulating(1, 0.2), *accumulating(2, 0.2), lines=("logging.py:68",))
    assert run.phases.loc[run.phases["name"] == "forward", "seconds"].tolist() == pytest.approx(
        [0.3, 0.3]
    )
    assert run.steps["seconds"].tolist() == pytest.approx([0.7, 0.7])
    assert run.repairs[["name", "kind"]].to_numpy().tolist() == [["last-interval-only", "repair"]]


def test_a_version_that_adds_up_its_timers_has_lost_no_interval() -> None:
    run = run_of(*accumulating(1, 0.2), *accumulating(2, 0.2), lines=("logging.py:96",))
    assert "last-interval-only" not in names(run)


def test_sums_over_micro_batches_are_believed() -> None:
    lines = [*accumulating(1, 0.3), *accumulating(2, 0.3)]
    assert names(run_of(*lines, lines=("logging.py:68",))) == []


def test_one_micro_batch_has_no_interval_to_lose() -> None:
    line = timers("zero", 1, forward=1.0, backward=1.0, step=1.0)
    rows = [version("0.5.4"), metric("loss", 1, 1.0), *line]
    assert names(run_of(*rows, config("gradient_accumulation_steps", 1))) == []
    assert names(run_of(*rows)) == ["last-interval-only"]


def test_memory_breakdown_makes_backward_doubtful() -> None:
    look = {
        "kind": "memory",
        "name": "max_allocated",
        "bytes": 1.0,
        "pattern": "deepspeed_memory.see_memory",
    }
    line = timers("zero", 1, forward=1.0, backward=1.0, backward_allreduce=0.5, step=1.0)
    rows = [metric("loss", 1, 1.0), *line]
    run = run_of(*rows, *[look | {"step": 1}] * 6)
    assert names(run) == ["memory-breakdown-inflates-backward"]
    assert run.repairs["rows"].tolist() == [2]
    assert names(run_of(*rows, look | {"step": 1})) == []


def test_looks_at_memory_while_zero_is_set_up_are_not_memory_breakdown() -> None:
    """Without a line of step 0 they count as the first step's, and no later step has any."""
    look = {
        "kind": "memory",
        "name": "max_allocated",
        "bytes": 1.0,
        "pattern": "deepspeed_memory.see_memory",
        "step": 1,
    }
    timed = [
        row
        for step in (1, 2, 3)
        for row in timers("zero", step, forward=1.0, backward=1.0, backward_allreduce=0.5, step=1.0)
    ]
    rows = [*(metric("loss", step, 1.0) for step in (1, 2, 3)), *timed]
    assert names(run_of(*rows, *[look] * 8)) == []
    every = [look | {"step": step} for step in (1, 2, 3) for _ in range(6)]
    assert names(run_of(*rows, *every)) == ["memory-breakdown-inflates-backward"]


def test_the_last_micro_batchs_rate_is_doubted_with_accumulation() -> None:
    rate = metric("samples_per_second", 1, 5.0, pattern="deepspeed.throughput_07")
    assert names(run_of(rate, config("gradient_accumulation_steps", 4))) == [
        "last-micro-throughput"
    ]
    assert names(run_of(rate, config("gradient_accumulation_steps", 1))) == []
    assert names(run_of(rate)) == ["last-micro-throughput"]


@pytest.mark.parametrize(("many", "speed"), [(1, 5.0), (4, None)])
def test_the_last_micro_batchs_rate_is_no_speed_where_throughput_lines_count_several(
    many: int, speed: float | None
) -> None:
    rows = [
        metric(name, step, value, pattern="deepspeed.throughput_07", record=step)
        for step in (10, 20, 30)
        for name, value in (("samples_per_second", 5.0), ("micro_step", 10.0 + step * many))
    ]
    run = run_of(*rows)
    assert names(run) == ["last-micro-throughput"] * (many > 1)
    assert run.steps["samples_per_second"].dropna().tolist() == [speed] * 3 * (many == 1)


def test_reduce_scatter_bandwidth_does_not_count_its_input_n_times() -> None:
    rows = calls(1.0, op="reduce_scatter_tensor", bytes=8e6)
    run = run_of(config("world_size", 4), *rows)
    assert run.comm["algbw"].tolist() == pytest.approx([8e9])
    assert run.comm["busbw"].tolist() == pytest.approx([6e9])
    assert names(run) == ["reduce-scatter-n-times"]


def test_groups_smaller_than_the_world_make_bandwidth_doubtful() -> None:
    run = run_of(config("tensor_parallel_size", 2), config("world_size", 4), *calls(1.0))
    assert names(run) == ["subgroup-bandwidth"]


def test_missing_step_lines_of_a_silent_version_are_explained() -> None:
    line = timers("zero", 1, forward=1.0, backward=1.0, step=1.0)
    assert names(run_of(version("0.19.8"), *line)) == ["log-level-hides-lines"]
    assert names(run_of(version("0.19.8"), *line, metric("skipped", 1, 0.0))) == []
    assert names(run_of(version("0.14.2"), *line)) == []


@pytest.mark.parametrize("step", [1, 700])
def test_an_unknown_zero_stage_is_doubted_also_where_the_log_shows_the_launch(step: int) -> None:
    line = timers("zero", step, forward=1.0, backward=1.0, step=1.0)
    mark = metric("loss", step, 1.0)
    launch = {"kind": "config", "name": "nodes", "value": 1, "pattern": "launcher.nodes"}
    assert names(run_of_any_stage(mark, *line)) == ["zero-stage-unknown"]
    assert names(run_of_any_stage(launch, mark, *line)) == ["zero-stage-unknown"]
    assert names(run_of_any_stage(config("zero_stage", 2), mark, *line)) == []
    assert names(run_of(mark, *line)) == []


def test_the_forks_numbers_follow_no_table_of_defects() -> None:
    fork = metric("communication_percent", 10, 76.0)
    assert names(run_of(fork, *calls(1, 2, 3, 4, 5, 6), lines=("logging.py:60",))) == []


def beside_the_engine(**strange: Any) -> list[dict[str, Any]]:
    """Two steps of 3 s, with timers of an optimizer's own."""
    rows = [
        row
        for step in (1, 2)
        for row in (
            *timers("zero-optimizer", step, optimizer_step=1.9, **strange),
            *timers("zero", step, forward=0.4, backward=0.6, step=2.0),
        )
    ]
    return [row | {"pattern": "deepspeed.timers"} for row in rows]


def test_timers_that_no_dialect_knows_may_lie_within_those_of_the_engine() -> None:
    run = run_of(*beside_the_engine(update_groups=1.7, unscale_all=0.1))
    assert run.steps["seconds"].tolist() == pytest.approx([3.0, 3.0])
    assert not {"update_groups", "unscale_all"} & set(run.phases["name"].astype("str"))
    assert names(run) == ["unplaced-timers"]
    assert "update_groups 1.70 s" in run.repairs["text"][0]


def test_timers_that_are_known_are_not_left_out() -> None:
    run = run_of(*beside_the_engine(optimizer_allgather=0.1))
    assert names(run) == []
    assert "optimizer_allgather" in set(run.phases["name"].astype("str"))


def test_timers_of_a_loop_around_the_engine_are_its_own() -> None:
    rows = [row for step in (1, 2) for row in timers("megatron", step, optimizer=2.5, logging=0.5)]
    beside = [row | {"pattern": "deepspeed.timers"} for row in rows]
    run = run_of(*beside_the_engine(), *beside)
    assert names(run) == []
    assert "logging" in set(run.phases["name"].astype("str"))


def test_timers_that_no_dialect_knows_are_a_step_where_no_engine_is_timed() -> None:
    rows = [row for step in (1, 2) for row in timers("", step, model=0.4, update=0.1)]
    run = run_of(*[row | {"timers": None, "pattern": "deepspeed.timers"} for row in rows])
    assert run.steps["seconds"].tolist() == pytest.approx([0.5, 0.5])
