"""One row a step: what the marks say and where the seconds went."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsprof.events import CLASSES
from dsprof.run import Run, from_events
from dsprof.run.steps.bound import bound_of
from dsprof.run.steps.durations import whole_steps
from dsprof.text.overview import overview
from tests.loaded import run_of_text
from tests.run.run_rows import config, events, grammar_with, metric, timers

ENGINE: dict[str, Any] = {
    "forward": 0.2,
    "backward": 0.5,
    "backward_inner": 0.3,
    "backward_allreduce": 0.2,
}


def run_of(*rows: dict[str, Any]) -> Run:
    """Of ZeRO 0, unless said."""
    return from_events(events([config("zero_stage", 0), *rows]), grammar=grammar_with())


def only(run: Run) -> pd.Series:
    assert len(run.steps) == 1
    return run.steps.iloc[0]


def test_an_empty_table_gives_empty_views() -> None:
    run = from_events(pd.DataFrame(), grammar=grammar_with())
    for view in ("events", "steps", "phases", "comm", "memory", "gpu", "problems", "repairs"):
        assert len(getattr(run, view)) == 0
    assert run.config == {}


def test_logged_seconds_come_first_and_the_rest_is_other() -> None:
    run = run_of(metric("step_seconds", 1, 1.0), *timers("zero", 1, **ENGINE, step=0.1))
    step = only(run)
    assert (step["seconds"], step["seconds_from"]) == (1.0, "logged")
    assert step["compute"] == pytest.approx(0.5)
    assert step["communication"] == pytest.approx(0.2)
    assert step["optimizer"] == pytest.approx(0.1)
    assert step["other"] == pytest.approx(0.2)
    assert step["communication_share"] == pytest.approx(0.2)


def test_batch_size_over_throughput_is_the_next_best() -> None:
    run = run_of(
        config("train_batch_size", 64),
        metric("samples_per_second", 1, 32.0),
        *timers("zero", 1, **ENGINE, step=0.1),
    )
    assert (only(run)["seconds"], only(run)["seconds_from"]) == (2.0, "throughput")


def test_without_either_a_step_is_the_sum_of_its_timers() -> None:
    step = only(run_of(*timers("zero", 1, **ENGINE, step=0.1)))
    assert (step["seconds"], step["seconds_from"]) == (pytest.approx(0.8), "timers")


def rated(*, every: int, count: int) -> Run:
    """Steps of 0.8 s of timers; a line says for every so many of them that it took 2 s."""
    lines = [timers("zero", step, **ENGINE, step=0.1) for step in range(1, count + 1)]
    rates = [metric("samples_per_second", s, 32.0) for s in range(every, count + 1, every)]
    return run_of(config("train_batch_size", 64), *(row for line in lines for row in line), *rates)


def test_all_steps_of_a_run_are_measured_in_one_way() -> None:
    run = rated(every=10, count=40)
    assert run.steps["seconds"].tolist() == [pytest.approx(0.8)] * 40
    assert set(run.steps["seconds_from"]) == {"timers"}
    often = rated(every=2, count=40).steps
    assert often["seconds"].dropna().tolist() == [2.0] * 20
    assert set(often["seconds_from"].dropna()) == {"throughput"}


def test_the_whole_step_is_known_where_a_line_says_it_and_the_untimed_rest_is_other() -> None:
    steps = rated(every=10, count=40).steps
    assert steps["whole_seconds"].dropna().index.tolist() == [9, 19, 29, 39]
    whole = whole_steps(steps)
    assert whole["seconds"].tolist() == [2.0] * 4
    assert set(whole["seconds_from"]) == {"throughput"}
    assert whole[list(CLASSES)].sum(axis=1).tolist() == [pytest.approx(2.0)] * 4
    assert whole["communication_share"].tolist() == [pytest.approx(0.1)] * 4
    assert set(steps["bound"]) == {"unknown"}  # 1.2 of 2 s nobody timed


def test_what_moves_data_is_a_share_of_the_whole_step_and_unknown_where_that_is() -> None:
    share = rated(every=10, count=40).steps["communication_share"]
    assert share.dropna().to_dict() == pytest.approx(dict.fromkeys([9, 19, 29, 39], 0.1))
    once = rated(every=40, count=40).steps["communication_share"]
    assert once.tolist() == pytest.approx([0.25] * 39 + [0.1])


def test_the_clock_speaks_where_a_run_says_nothing_else() -> None:
    marks = [
        metric("lr", step, 0.1, at=pd.Timestamp("2024-01-01") + pd.Timedelta(seconds=at))
        for step, at in ((10, 0), (20, 5), (40, 11))
    ]
    steps = run_of(*marks).steps
    assert steps["seconds"].tolist()[1:] == [0.5, 0.3]
    assert np.isnan(steps["seconds"][0])
    assert list(steps["seconds_from"][1:]) == ["clock", "clock"]


def test_steps_that_the_clock_alone_times_have_a_rate_of_their_batch() -> None:
    """Their loops state a mean since the start at most, and of what an engine times."""
    marks = [
        metric("lr", step, 0.1, at=pd.Timestamp("2024-01-01") + pd.Timedelta(seconds=at))
        for step, at in ((10, 0), (20, 5), (40, 11))
    ]
    steps = run_of(config("train_batch_size", 12), *marks).steps
    assert steps["samples_per_second"].tolist()[1:] == [24.0, 40.0]


def test_samples_that_a_loop_counts_from_step_to_step_are_its_batch() -> None:
    """DPO's reference loop counts 32 where its engine was told 128."""
    marks = [
        row
        for step in range(1, 5)
        for row in (metric("samples_per_second", step, 64.0), metric("samples", step, 32.0 * step))
    ]
    steps = run_of(config("train_batch_size", 128), *marks).steps
    assert steps["seconds"].tolist() == [0.5] * 4
    alone = run_of(config("train_batch_size", 128), *marks[:2]).steps
    assert alone["seconds"].tolist() == [2.0]  # how many each step has, one count does not say


def test_the_clock_spans_steps_that_another_framework_prints_without_a_stamp() -> None:
    """The Trainer logs every fifth step without one, DeepSpeed every tenth with one."""
    text = ""
    for step in range(5, 45, 5):
        text += f"{{'loss': 2.5, 'learning_rate': 0.0001, 'epoch': {step / 100}}}\n"
        if step % 10 == 0:
            text += f"[2024-03-15 13:21:{10 + step},100] [INFO] [logging.py:96:log_dist] "
            text += f"[Rank 0] step={step}, skipped=0, lr=[0.0001], mom=[(0.9, 0.98)]\n"
    steps = run_of_text(text).steps.set_index("step")
    assert steps["seconds"].dropna().to_dict() == {20: 1.0, 30: 1.0, 40: 1.0}
    assert steps["covers"][[20, 30, 40]].tolist() == [10.0] * 3


def test_lines_that_only_some_steps_have_stamp_none_where_others_stamp_all() -> None:
    """DeepSpeed tells a rate from the third step on, some time behind the step's own line."""
    text = ""
    for step in range(1, 6):
        at = f"[2024-03-15 13:21:{10 + 5 * step},%d] [INFO] "
        text += at % 100 + f"[logging.py:96:log_dist] [Rank 0] step={step}, skipped=0, lr=[0.001]"
        text += ", mom=[[0.9, 0.98]]\n"
        if step > 2:
            text += at % 900 + f"[timer.py:199:stop] epoch=0/micro_step={step}/global_step={step}, "
            text += "RunningAvgSamplesPerSec=2.5, CurrSamplesPerSec=2.5\n"
    assert run_of_text(text).steps["seconds"].dropna().to_list() == [5.0] * 4


def test_classes_that_no_timer_measures_are_unknown() -> None:
    step = only(run_of(metric("step_seconds", 1, 1.0), *timers("zero", 1, **ENGINE, step=0.1)))
    assert step[["wait", "data", "offload", "checkpoint"]].isna().all()


def test_without_timers_every_class_and_the_share_are_unknown() -> None:
    step = only(run_of(metric("step_seconds", 1, 1.0), metric("loss", 1, 2.0)))
    assert step[list(CLASSES)].isna().all()
    assert np.isnan(step["communication_share"])
    assert step["bound"] == "unknown"


def test_zero_3_hides_communication_in_forward_and_backward() -> None:
    rows = [config("zero_stage", 3), *timers("zero", 1, **ENGINE, step=0.1)]
    step = only(run_of(*rows))
    assert step[["compute", "communication"]].isna().all()
    assert np.isnan(step["communication_share"])
    assert step["bound"] == "unknown"
    assert step["other"] == pytest.approx(0.8)
    assert step["mixed"] == pytest.approx(0.6)  # step gathers as well, the reduction does not
    assert np.isnan(step["optimizer"])


def test_zero_3_hides_it_in_the_timers_of_frameworks_too() -> None:
    rows = [
        config("zero_stage", 3),
        *timers("megatron", 1, **dict[str, Any]({"forward-backward": 0.8})),
    ]
    step = only(run_of(*rows, metric("step_seconds", 1, 1.0)))
    assert step[["compute", "communication"]].isna().all()
    assert step["bound"] == "unknown"


def test_communication_timers_around_nothing_measure_nothing() -> None:
    line = timers("zero", 1, forward=0.5, backward=0.5, backward_allreduce=1e-5, step=0.1)
    step = only(run_of(*line))
    assert np.isnan(step["communication"])
    assert step[list(CLASSES)].sum() == pytest.approx(1.1)


def test_a_single_rank_has_nobody_to_talk_to() -> None:
    line = timers("zero", 1, forward=0.5, backward=0.5, step=0.1)
    step = only(run_of(config("world_size", 1), *line))
    assert (step["communication"], step["communication_share"]) == (0.0, 0.0)


def saving(seconds: float) -> dict[str, Any]:
    return {"kind": "phase", "name": "save", "step": 1, "seconds": seconds, "timers": "save"}


def test_a_checkpoint_that_does_not_fit_lies_between_steps() -> None:
    rows = [metric("step_seconds", 1, 1.0), *timers("zero", 1, **ENGINE, step=0.1)]
    outside = run_of(*rows, saving(8.0))
    assert only(outside)["checkpoint"] == 0.0
    assert only(outside)["compute"] == pytest.approx(0.5)
    assert 8.0 in outside.phases["seconds"].tolist()
    assert only(run_of(*rows, saving(0.15)))["checkpoint"] == pytest.approx(0.15)


def test_a_checkpoint_alone_does_not_split_its_step() -> None:
    step = only(run_of(metric("step_seconds", 1, 9.0), saving(8.0)))
    assert step[list(CLASSES)].isna().all()


def test_logged_collectives_split_what_zero_3_mixes() -> None:
    gather = {
        "kind": "comm", "name": "all_gather_into_tensor", "step": 1, "rank": 0,
        "bytes": 1024.0, "count": 1, "pattern": "deepspeed_comms.op",
    }  # fmt: skip
    rows = [config("zero_stage", 3), gather | {"seconds": 0.25}, gather | {"seconds": 0.15}]
    step = only(run_of(*rows, *timers("zero", 1, **ENGINE, step=0.1)))
    # the timer of the reduction holds no gathers: they are of forward and backward
    assert step["communication"] == pytest.approx(0.2 + 0.4)
    assert step["compute"] == pytest.approx(0.5 - 0.4)
    assert step["mixed"] == pytest.approx(0.1)  # calls do not tell what of step they are
    assert step[list(CLASSES)].sum() == pytest.approx(step["seconds"])


def test_timers_beyond_the_step_are_scaled_to_it_and_doubted() -> None:
    run = run_of(metric("step_seconds", 1, 0.4), *timers("zero", 1, **ENGINE, step=0.1))
    step = only(run)
    assert step[list(CLASSES)].sum() == pytest.approx(0.4)
    assert step["compute"] == pytest.approx(0.25)
    assert run.repairs["name"].tolist() == ["phases-exceed-step"]


def test_logged_calls_beside_the_timers_count_in_what_exceeds_the_step() -> None:
    call = {"kind": "comm", "name": "all_reduce", "step": 1, "rank": 0, "seconds": 0.3,
            "bytes": 1024.0, "count": 1, "pattern": "deepspeed_comms.op"}  # fmt: skip
    optimizer = timers("zero-optimizer", 1, optimizer_step=0.2)
    run = run_of(metric("step_seconds", 1, 0.4), call, *optimizer)
    assert only(run)[list(CLASSES)].sum() == pytest.approx(0.4)
    assert "phases-exceed-step" in run.repairs["name"].tolist()


def test_calls_of_ten_steps_before_one_mark_count_in_each_of_them_by_a_tenth() -> None:
    call = {"kind": "comm", "name": "all_reduce", "step": 10, "steps": 10, "rank": 0,
            "bytes": 1024.0, "count": 1, "seconds": 0.1,
            "pattern": "deepspeed_comms.op"}  # fmt: skip
    step = only(run_of(metric("step_seconds", 10, 0.4), *[call] * 10))
    assert step["communication"] == pytest.approx(0.1)
    assert step["communication_share"] == pytest.approx(0.25)


def test_a_pause_of_hours_by_the_clock_is_no_step_and_is_named() -> None:
    clocks = ["10:00:00", "10:00:02", "10:00:04", "20:00:04", "20:00:06", "20:00:08"]
    marks = [
        metric("loss", n, 2.5, at=pd.Timestamp(f"2024-03-15 {clock}"))
        for n, clock in enumerate(clocks, 1)
    ]
    run = run_of(*marks)
    seconds = run.steps["seconds"]
    assert seconds.dropna().tolist() == [2.0] * 4
    assert seconds.isna().tolist() == [True, False, False, True, False, False]
    assert run.repairs["name"].tolist() == ["pause"]
    assert run.repairs["line"].tolist() == [5]  # that of step 4; the first row is the setting


def test_steps_that_always_take_an_hour_are_no_pauses() -> None:
    clocks = ["10:00:00", "11:00:00", "12:00:00", "13:00:00"]
    marks = [
        metric("loss", n, 2.5, at=pd.Timestamp(f"2024-03-15 {clock}"))
        for n, clock in enumerate(clocks, 1)
    ]
    run = run_of(*marks)
    assert run.steps["seconds"].dropna().tolist() == [3600.0] * 3
    assert run.repairs.empty


def test_timers_within_rounding_of_the_step_raise_no_doubt() -> None:
    run = run_of(metric("step_seconds", 1, 0.79), *timers("zero", 1, **ENGINE, step=0.1))
    assert only(run)[list(CLASSES)].sum() == pytest.approx(0.79)
    assert len(run.repairs) == 0


def test_classes_are_the_mean_over_the_ranks() -> None:
    rows = [
        *timers("megatron", 1, rank=0, optimizer=1.0),
        *timers("megatron", 1, rank=1, optimizer=3.0),
    ]
    assert only(run_of(metric("step_seconds", 1, 4.0), *rows))["optimizer"] == 2.0


def test_a_pipeline_of_one_replica_reduces_nothing() -> None:
    rows = timers("pipeline", 10, steps=10, forward=2.0, pipe_recv_grad=5.0)
    step = only(run_of(config("data_parallel_size", 1), metric("step_seconds", 10, 1.0), *rows))
    assert step["communication"] == 0.0
    assert step["communication_share"] == pytest.approx(0.5)
    assert step["bound"] == "pipeline"


def test_a_pipeline_of_several_replicas_reduces_in_what_nobody_timed() -> None:
    rows = timers("pipeline", 10, steps=10, forward=2.0, pipe_recv_grad=5.0)
    step = only(run_of(config("data_parallel_size", 4), metric("step_seconds", 10, 1.0), *rows))
    assert step["communication"] == pytest.approx(0.3)
    assert step["other"] == 0.0


def test_a_pipeline_of_unknown_replicas_leaves_communication_unknown() -> None:
    rows = timers("pipeline", 10, steps=10, forward=2.0, pipe_recv_grad=5.0)
    step = only(run_of(metric("step_seconds", 10, 1.0), *rows))
    assert np.isnan(step["communication"])
    assert step["bound"] == "pipeline"


def test_a_frameworks_window_mean_wins_over_the_engines_last_loss() -> None:
    run = run_of(
        metric("loss", 10, 10.703, pattern="megatron.iteration"),
        metric("loss", 10, 10.315, pattern="deepspeed_pipeline.steps"),
    )
    assert only(run)["loss"] == 10.703
    assert (run.events["name"] == "loss").sum() == 2


def test_the_last_of_several_values_counts_and_the_lowest_rank() -> None:
    run = run_of(
        metric("loss", 1, 3.0, rank=0),
        metric("loss", 1, 2.0, rank=0),
        metric("loss", 1, 9.0, rank=1),
    )
    assert only(run)["loss"] == 2.0


def test_throughput_is_the_current_rate_not_the_running_mean() -> None:
    run = run_of(metric("samples_per_second_mean", 5, 28.0), metric("samples_per_second", 5, 33.0))
    assert only(run)["samples_per_second"] == 33.0
    assert np.isnan(only(run_of(metric("samples_per_second_mean", 5, 28.0)))["samples_per_second"])


@pytest.mark.parametrize(
    ("told", "rates"),
    [([1, 2], [16.0, 16.0, np.nan]), ([1], [16.0, 75.0, 75.0]), ([], [75.0, 75.0, 75.0])],
)
def test_rates_of_a_framework_and_of_its_engine_are_not_mixed(
    told: list[int], rates: list[float]
) -> None:
    """A log that ends within the framework's last line still has the engine's rate before it."""
    theirs = (metric("samples_per_second", step, 16.0, pattern="megatron.x") for step in told)
    engines = (
        metric("samples_per_second", step, 75.0, pattern="deepspeed.throughput")
        for step in (1, 2, 3)
    )
    found = run_of(*theirs, *engines).steps["samples_per_second"]
    assert found.to_numpy(float) == pytest.approx(rates, nan_ok=True)


def test_tokens_follow_from_what_is_known() -> None:
    gpu = run_of(config("world_size", 8), metric("tokens_per_second_gpu", 1, 100.0))
    assert only(gpu)["tokens_per_second"] == 800.0
    samples = run_of(config("seq_length", 2048), metric("samples_per_second", 1, 2.0))
    assert only(samples)["tokens_per_second"] == 4096.0


def test_skips_of_a_window_add_up() -> None:
    marks = [metric("skipped_window", step, count) for step, count in ((10, 2), (20, 0), (30, 1))]
    steps = run_of(*marks).steps
    assert steps["skipped"].tolist() == [2, 2, 3]
    assert steps["overflow"].tolist() == [True, False, True]


def test_windows_that_count_none_of_the_overflows_told_count_nothing() -> None:
    marks = [metric("skipped_window", step, 0) for step in (7, 8, 9)]
    steps = run_of(*marks, metric("overflow", 8, 1), metric("overflow", 9, 1)).steps
    assert steps["skipped"].isna().all()
    assert steps["overflow"].tolist() == [False, True, True]


def test_windows_without_a_skip_do_not_count_beside_the_counter_of_the_engine() -> None:
    marks = [metric("skipped_window", step, 0) for step in (199, 200, 201, 202)]
    steps = run_of(*marks, metric("skipped", 200, 4), metric("skipped", 202, 5)).steps
    assert steps["skipped"].tolist() == [pd.NA, 4, pd.NA, 5]
    assert steps["overflow"].fillna(False).tolist() == [False, False, False, True]
    assert pd.isna(steps["overflow"][0])


def test_overflows_are_where_the_count_rises() -> None:
    marks = [metric("skipped", step, count) for step, count in ((10, 3), (20, 3), (30, 5))]
    steps = run_of(*marks).steps
    assert pd.isna(steps["overflow"][0])
    assert steps["overflow"][1:].tolist() == [False, True]


def test_printed_overflows_say_which_step_it_was() -> None:
    rows = [metric("loss", step, 1.0) for step in (1, 2, 3)]
    rows += [metric("overflow", 2, 1.0), metric("skipped", 3, 1.0)]
    assert run_of(*rows).steps["overflow"].tolist() == [False, True, False]


def test_a_batch_size_is_that_of_its_engine_or_of_none() -> None:
    rates = [metric("samples_per_second", 1, 32.0, engine=engine) for engine in (0, 1)]
    sizes = (config("train_batch_size", 64), config("train_batch_size", 16))
    apart = run_of(sizes[0], sizes[1] | {"engine": 1}, *rates)
    assert apart.steps["seconds"].tolist() == [2.0, 0.5]
    assert run_of(*sizes, *rates).steps["seconds"].isna().all()  # which is whose, nobody says
    assert run_of(sizes[0], sizes[0], *rates).steps["seconds"].tolist() == [2.0, 2.0]
    assert run_of(*sizes, rates[0]).steps["seconds"].tolist() == [0.5]


def test_the_steps_of_each_launch_are_of_the_batch_that_it_says() -> None:
    rows: list[dict[str, Any]] = []
    for segment, batch in enumerate((64, 16)):
        launch = [config("train_batch_size", batch)]
        launch += [metric("samples_per_second", step, 32.0) for step in range(1, 6)]
        rows += [row | {"segment": segment} for row in launch]
    seconds = run_of(*rows).steps.groupby("segment")["seconds"].mean()
    assert seconds.tolist() == [2.0, 0.5]


def test_engines_and_segments_keep_their_own_steps() -> None:
    run = run_of(
        metric("loss", 1, 1.0), metric("loss", 1, 2.0, engine=1), metric("loss", 1, 3.0, segment=1)
    )
    assert run.steps[["segment", "engine", "loss"]].to_numpy().tolist() == [
        [0, 0, 1.0],
        [0, 1, 2.0],
        [1, 0, 3.0],
    ]


@pytest.mark.parametrize("odd", [float("inf"), float("nan"), 1e21, -1.0])
def test_a_count_that_is_none_does_no_harm(odd: float) -> None:
    run = run_of(metric("skipped", 1, odd), metric("loss", 1, float("nan")))
    assert pd.isna(only(run)["skipped"])


@pytest.mark.parametrize("odd", [float("inf"), float("-inf"), float("nan"), 0.0, -32.0])
def test_a_rate_that_cannot_be_is_unknown(odd: float) -> None:
    names = ("samples_per_second", "tokens_per_second", "tflops")
    run = run_of(config("train_batch_size", 64), *(metric(name, 1, odd) for name in names))
    assert only(run)[["seconds", *names]].isna().all()
    assert run.repairs["name"].tolist() == ([] if np.isnan(odd) else ["impossible-rates"])


@pytest.mark.parametrize("odd", [float("inf"), float("nan"), 0.0, -2.0, 1e300])
def test_a_step_that_cannot_take_so_long_is_unknown(odd: float) -> None:
    run = run_of(config("train_batch_size", 64), metric("step_seconds", 1, odd))
    step = only(run)
    assert step[["seconds", "whole_seconds", "samples_per_second"]].isna().all()
    assert len(run.repairs) == (0 if np.isnan(odd) else 1)


@pytest.mark.parametrize(
    ("shares", "word"),
    [
        ({"communication": 0.35, "compute": 0.6}, "communication"),
        ({"communication": 0.1, "wait": 0.25, "compute": 0.6}, "pipeline"),
        ({"communication": 0.1, "compute": 0.8}, "compute"),
        ({"communication": 0.1, "optimizer": 0.4, "compute": 0.5}, "optimizer"),
        ({"communication": 0.1, "data": 0.5, "compute": 0.4}, "data"),
        ({"communication": 0.1, "offload": 0.5, "compute": 0.4}, "offload"),
        ({"communication": 0.3, "compute": 0.1, "other": 0.6}, "unknown"),
        ({"compute": 0.6, "other": 0.4}, "unknown"),
        ({"compute": 0.9, "other": 0.1}, "unknown"),  # compute may hold communication
        ({"compute": 0.7, "wait": 0.2, "other": 0.1}, "compute"),  # a pipeline's does not
        ({"compute": 0.3, "wait": 0.4, "other": 0.3}, "pipeline"),
        ({"optimizer": 0.3, "other": 0.7}, "unknown"),
        ({"optimizer": 0.6, "other": 0.4}, "optimizer"),
        ({}, "unknown"),
    ],
)
def test_a_step_is_bound_by_its_largest_known_cost(shares: dict[str, float], word: str) -> None:
    table = pd.DataFrame([{name: shares.get(name, np.nan) for name in CLASSES}])
    assert bound_of(table, np.array([np.nan])).tolist() == [word]


def test_a_step_whose_compute_hides_communication_is_not_bound_by_compute() -> None:
    shares = [{"compute": 0.8, "communication": 0.1}, {"compute": 0.6, "communication": 0.35}]
    table = pd.DataFrame([{name: one.get(name, np.nan) for name in CLASSES} for one in shares])
    excess = np.array([np.nan, np.nan])
    assert bound_of(table, excess, hidden=True).tolist() == ["unknown", "communication"]


def test_the_line_of_a_step_is_not_one_that_tells_of_its_loss_scale_alone() -> None:
    stamp = "[2023-10-31 08:58:32,525] [INFO]"
    run = run_of_text(
        f"{stamp} [unfused_optimizer.py:290:_update_scale] Increasing dynamic loss scale from "
        "4096.0 to 8192.0\n",
        f"{stamp} [logging.py:96:log_dist] [Rank 0] step=14000, skipped=25, lr=[0.001], "
        "mom=[0.9]\n",
    )
    assert run.steps[["step", "line", "loss_scale"]].to_numpy().tolist() == [[14000, 2, 8192]]


def test_a_rank_that_works_longer_makes_it_a_stragglers_step() -> None:
    rows = [
        *timers("zero", 1, rank=0, forward=0.2, backward=0.6, backward_allreduce=0.6, step=0.1),
        *timers("zero", 1, rank=1, forward=0.2, backward=0.6, backward_allreduce=0.6, step=0.1),
        *timers("zero", 1, rank=2, forward=0.7, backward=0.1, backward_allreduce=0.1, step=0.1),
    ]
    step = only(run_of(metric("step_seconds", 1, 0.9), *rows))
    # mean communication 0.433 of 0.9; the slow rank computes 0.5 s longer than the median
    assert step["bound"] == "straggler"


_PARTS = st.tuples(*[st.floats(0, 10)] * 5)


@settings(max_examples=15)
@given(st.lists(st.tuples(_PARTS, st.floats(0.001, 20)), min_size=1, max_size=12))
def test_classes_always_add_up_to_the_step(told: list[tuple[tuple[float, ...], float]]) -> None:
    """Of one step, and of steps among others."""
    names = ("forward", "backward", "backward_inner", "backward_allreduce", "step")
    rows = []
    for step, (parts, seconds) in enumerate(told, 1):
        rows += timers("zero", step, **dict[str, Any](zip(names, parts, strict=True)))
        rows.append(metric("step_seconds", step, seconds))
    steps = run_of(*rows).steps
    known = steps[list(CLASSES)].notna().any(axis=1).tolist()
    sums = steps[list(CLASSES)].sum(axis=1).tolist()
    for is_known, total, (_, seconds) in zip(known, sums, told, strict=True):
        assert total == (pytest.approx(seconds) if is_known else 0)
    assert not (steps[list(CLASSES)] < 0).any(axis=None)


def stamped(step: int, second: float) -> dict[str, Any]:
    at = pd.Timestamp("2024-05-01", tz="UTC") + pd.Timedelta(seconds=second)
    return metric("lr", step, 0.1, at=at)


def paced(seconds: float, *, count: int = 12, more: tuple[dict[str, Any], ...] = ()) -> Run:
    """Steps of 0.8 s of timers, each line stamped `seconds` after the one before."""
    return timed_at([step * seconds for step in range(1, count + 1)], *more)


def timed_at(ends: Iterable[float], *more: dict[str, Any]) -> Run:
    """Steps of 0.8 s of timers, the line of each stamped with its end."""
    rows = [
        row
        for step, end in enumerate(ends, 1)
        for row in (*timers("zero", step, **ENGINE, step=0.1), stamped(step, end))
    ]
    return run_of(*rows, *more)


def test_time_between_the_steps_that_no_timer_holds_is_told_by_the_clock() -> None:
    steps = paced(4.0).steps
    assert (steps["seconds"] - 0.8).abs().max() < 1e-9
    told = whole_steps(steps)
    assert told["seconds"].to_list() == pytest.approx([4.0] * 12)
    assert told["other"].to_list() == pytest.approx([3.2] * 12)
    assert set(told["seconds_from"]) == {"clock"}


def test_time_stamps_that_agree_with_the_timers_change_nothing() -> None:
    assert paced(0.85).steps["whole_seconds"].isna().all()


def test_a_few_time_stamps_of_whole_seconds_prove_nothing() -> None:
    assert paced(1.0, count=5).steps["whole_seconds"].isna().all()


def test_two_engines_that_take_turns_leave_nothing_untimed() -> None:
    other = tuple({**row, "engine": 1} for row in timers("zero", 1, **ENGINE, step=0.1))
    assert paced(4.0, more=other).steps["whole_seconds"].isna().all()


def test_one_long_gap_belongs_to_no_average_step() -> None:
    run = timed_at(0.8 * step + 60 * (step > 10) for step in range(1, 21))
    assert run.steps["whole_seconds"].isna().all()


def test_stamps_that_are_fine_beside_a_step_time_each_one() -> None:
    """Every fifth step is followed by a stall of four seconds: no step takes the mean."""
    run = timed_at(0.82 * step + 4 * ((step - 1) // 5) for step in range(1, 31))
    steps = whole_steps(run.steps)
    stalled = steps["step"] % 5 == 1
    assert steps["step"].to_list() == list(range(2, 31))  # before the first is no line
    assert steps.loc[stalled, "seconds"].to_list() == pytest.approx([4.82] * 5)
    assert steps.loc[~stalled, "seconds"].to_list() == pytest.approx([0.82] * 24)
    assert not run.steps["smoothed"].any()
    seen = overview(run)
    assert [seen.median, seen.p95] == [pytest.approx(0.82), pytest.approx(4.82)]


@pytest.mark.parametrize(
    "ends",
    [
        pytest.param([float(round(1.3 * n)) for n in range(1, 61)], id="whole-seconds"),
        pytest.param([13.0 * (n // 10) + 0.01 * n for n in range(1, 61)], id="ten-at-once"),
    ],
)
def test_stamps_that_time_no_single_step_tell_their_mean_and_say_so(ends: list[float]) -> None:
    run = timed_at(ends)
    steps = run.steps
    assert steps["smoothed"].all()
    seen = overview(run)
    assert (seen.median, seen.p95, seen.spread) == (None, None, "")
    assert whole_steps(steps)["seconds"].mean() == pytest.approx(1.3, rel=0.05)


def test_a_clock_that_is_set_back_leaves_the_steps_behind_it_timed() -> None:
    steps = whole_steps(timed_at(1.2 * n - 3600 * (n > 10) for n in range(1, 31)).steps)
    assert steps["step"].to_list() == [*range(2, 11), *range(12, 31)]
    assert steps["seconds"].to_list() == pytest.approx([1.2] * 28)


def test_a_step_whose_mark_was_lost_lends_its_time_to_no_other() -> None:
    """Its timers then stand behind the step before, and their stamp is not the end of that."""
    rows = []
    for step in range(1, 31):
        mark = stamped(step, 1.2 * step)
        lost = step % 3 == 0
        rows += [] if lost else [mark]
        line = timers("zero", step - lost, **ENGINE, step=0.1)
        rows += [row | {"at": mark["at"]} for row in line]
    steps = whole_steps(run_of(*rows).steps)
    assert steps["seconds"].to_list() == pytest.approx([1.2] * 19)


def test_a_stretch_in_which_a_checkpoint_was_saved_does_not_count() -> None:
    rows = [
        row
        for step in range(1, 21)
        for row in (
            *timers("zero", step, **ENGINE, step=0.1),
            *([metric("checkpoint_begin", step, 0.0)] if step % 5 == 0 else []),
            stamped(step, 0.8 * step + 60 * (step // 5)),
        )
    ]
    assert run_of(*rows).steps["whole_seconds"].isna().all()


def said(seconds: float, wall: float, *, count: int = 12, every: int = 1) -> Run:
    """Lines that state a rate, each stamped `wall` seconds a step after the one before."""
    marks = [
        row
        for n in range(every, count + 1, every)
        for row in (metric("samples_per_second", n, 64 / seconds), stamped(n, n * wall))
    ]
    return run_of(config("train_batch_size", 64), *marks)


def test_a_rate_is_held_against_the_clock() -> None:
    """DeepSpeed states what forward to step can do: what lies between two steps is not in it."""
    steps = said(1.0, 5.0).steps
    assert set(steps["seconds_from"]) == {"throughput"}
    assert whole_steps(steps)["seconds"].to_list() == pytest.approx([5.0] * 12)
    assert set(whole_steps(steps)["seconds_from"]) == {"clock"}
    assert set(whole_steps(said(1.0, 1.04).steps)["seconds_from"]) == {"throughput"}


def test_a_rate_that_every_tenth_step_states_is_that_of_the_ten() -> None:
    whole = whole_steps(said(1.0, 5.0, count=100, every=10).steps)
    assert whole["step"].to_list() == list(range(20, 101, 10))  # before the first is no line
    assert whole["seconds"].to_list() == pytest.approx([5.0] * 9)


def test_steps_between_those_with_a_rate_that_are_quicker_by_the_clock_are_of_the_mean() -> None:
    """Garbage is collected every tenth step: five seconds are the time of these alone."""
    run = said(5.0, 1.4, count=100, every=10)
    assert overview(run).samples_per_second_of_steps == pytest.approx(64 / 1.4)
    repairs = run.repairs.set_index("name")
    assert repairs.loc["seldom-rates", "kind"] == "repair"
    assert "take 5.00 s in the mean; by the clock all" in str(repairs.loc["seldom-rates", "text"])
    whole = whole_steps(run.steps)
    assert whole["seconds"].to_list() == pytest.approx([1.4] * len(whole))
    assert set(whole["seconds_from"]) == {"clock"}
    assert len(whole) >= 8
    each = whole_steps(said(5.0, 1.4).steps)  # lines that wait in a buffer
    assert set(each["seconds"]) == {5.0}


def test_a_clock_that_has_no_room_for_the_rated_steps_tells_nothing() -> None:
    """Lines that a container's log stamped when it passed them on, eight thousand bytes at once."""
    run = said(1.17, 8e-6, count=150, every=5)
    assert set(whole_steps(run.steps)["seconds_from"]) == {"throughput"}
    assert overview(run).samples_per_second == pytest.approx(64 / 1.17)
    assert "seldom-rates" not in set(run.repairs["name"])


def test_time_that_a_framework_states_is_held_against_the_clock_too() -> None:
    marks = [
        row for n in range(1, 13) for row in (metric("step_seconds", n, 1.0), stamped(n, 5.0 * n))
    ]
    assert set(whole_steps(run_of(*marks).steps)["seconds"]) == {5.0}


def test_timers_of_counted_steps_are_held_against_the_clock_and_counted_records_are_not() -> None:
    lines = [
        row | {"at": pd.Timestamp("2024-05-01") + pd.Timedelta(seconds=4 * n)}
        for n in range(1, 13)
        for row in timers("zero", n, **ENGINE, step=0.1)
    ]
    rows = [config("zero_stage", 1), *lines]
    run = from_events(events(rows), grammar=grammar_with(), meta={"counted_steps": True})
    assert whole_steps(run.steps)["seconds"].to_list() == pytest.approx([4.0] * 12)
    records = [metric("loss", n, 2.0, steps=None) for n in range(1, 13)]
    run = from_events(
        events([*rows, *records]), grammar=grammar_with(), meta={"counted_steps": True}
    )
    assert run.steps["whole_seconds"].isna().all()


def test_a_first_step_that_is_counted_as_skipped_overflowed() -> None:
    rows = [metric("skipped", step, value) for step, value in ((1, 1.0), (2, 2.0), (3, 2.0))]
    assert run_of(*rows).steps["overflow"].tolist() == [True, True, False]
