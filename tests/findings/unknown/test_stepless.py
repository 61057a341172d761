"""Sources without steps say what they state of speed, and how steps would be printed."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from dsprof.findings.unknown.last_bar import bar
from dsprof.run import load
from tests.findings.plants import alone, config, metric, phase, problem, rules, run_of, why
from tests.loaded import run_of_text

STEPLESS = ["steps_per_print", "wall_clock_breakdown"]


@pytest.mark.parametrize(
    ("version", "told"),
    [
        ("", ["dsprof attach", *STEPLESS]),
        ("0.18.2", STEPLESS),
        ("2.1", STEPLESS),  # what 0.1 called itself, which had no log_level yet
        ("0.19.3", ["steps_per_print", "log_level", "wall_clock_breakdown"]),
    ],
)
def test_a_source_without_steps_says_what_would_print_them_in_its_version(
    version: str, told: list[str]
) -> None:
    run = run_of([metric("elapsed", None, 1.0)], deepspeed_version=version)
    found = alone(run, "unaccounted-time")
    assert "an optimizer step" in found.title
    assert [advice.setting for advice in found.advice] == told


def test_timers_and_a_rate_without_steps_are_told_and_not_asked_for() -> None:
    timer = phase("forward", 1, 0.25) | {"step": None, "timers": None}
    rate = metric("samples_per_second_mean", None, 4365.0)
    found = alone(run_of([timer, rate]), "unaccounted-time")
    assert "4,365 samples/s" in found.summary
    assert "timer lines" in found.summary
    assert "wall_clock_breakdown" not in [advice.setting for advice in found.advice]


def test_what_a_micro_batch_takes_is_told_where_no_line_ends_a_step(tmp_path: Path) -> None:
    line = (
        "time (ms) | forward_microstep: 200.00 | backward_microstep: 330.10 | "
        "backward_inner_microstep: 330.00 | backward_allreduce_microstep: 0.05 | "
        "step_microstep: 0.05\n"
    )
    log = tmp_path / "run.log"
    log.write_text(line * 5)
    found = alone(load([log]), "unaccounted-time")
    assert found.title == (
        "A micro-batch takes 530 ms, its longest part backward_inner 330 ms; no line shows where a "
        "step ends"
    )
    assert "One takes 530 ms (mean of 5), most of it backward_inner 330 ms" in found.summary


def test_a_bar_as_long_as_the_training_shows_optimizer_steps() -> None:
    run = run_of_text(
        "  Total optimization steps = 1,230\n",
        "100%|##########| 1230/1230 [2:08:35<00:00,  6.27s/it]\n",
    )
    assert alone(run, "unaccounted-time").title == (
        "Nothing but a progress bar shows optimizer steps: it stands at 1,230 of 1,230 after 2 h "
        "09 min"
    )


def test_hugging_faces_trainer_drives_no_engine_of_a_pipeline() -> None:
    stages = (
        "[2024-09-08 23:02:59,384] [INFO] [engine.py:165:__init__] RANK={} STAGE={} LAYERS=4 [0, 4)"
        " STAGE_PARAMS=60000 (0.060M) TOTAL_PARAMS=120000 (0.120M) UNIQUE_PARAMS=120000 (0.120M)\n"
    )
    bar = "100%|##########| 4800/4800 [00:10<00:00, 480.26it/s]\n"
    bare, staged = run_of_text(bar), run_of_text(*(stages.format(n, n) for n in (0, 1)), bar)
    settings = [
        [a.setting for a in alone(run, "unaccounted-time").advice] for run in (bare, staged)
    ]
    assert ["logging_steps" in some for some in settings] == [True, False]


def test_how_far_the_last_bar_came_is_told_where_nothing_else_shows_a_turn() -> None:
    bar = "Train step of epoch 0:  12%|##   | 30/250 [01:08<08:18,  2.27s/it, gpt_loss=0.686]\n"
    assert alone(run_of_text(bar), "unaccounted-time").title == (
        "No line that is understood shows an optimizer step: its progress bar stands at 30 of 250 "
        "after 68.0 s"
    )


_HEADER = "[2024-06-18 15:30:15,652] [INFO] [logging.py:96:log_dist] [Rank 0] "
SETUP = (
    "Time to load fused_adam op: 24.628817796707153 seconds\n"
    f"{_HEADER}DeepSpeed Basic Optimizer = FusedAdam\n"
    f"{_HEADER}Creating torch.bfloat16 ZeRO stage 2 optimizer\n"
)


@pytest.mark.parametrize(
    ("behind", "nothing_else"),
    [
        ("", True),
        ("Some weights were not used.\n", True),
        ("turn\n" * 30, False),
        ("my loss = 2.5 at turn 7\n", False),
        (f"{_HEADER}step=10, skipped=0, lr=[1e-05], mom=[[0.9, 0.999]]\n", False),
    ],
)
def test_where_nothing_but_the_set_up_is_printed_the_job_may_hang_in_it(
    tmp_path: Path, behind: str, nothing_else: bool
) -> None:
    (tmp_path / "run.log").write_text(SETUP + behind, encoding="utf-8")
    found = alone(load(tmp_path / "run.log"), "unaccounted-time")
    said = "This source shows the job's set-up alone: training had not begun"
    assert found.title.startswith(said) is nothing_else
    assert ("py-spy dump --pid" in [one.setting for one in found.advice]) is nothing_else


def test_a_training_whose_bar_has_not_moved_may_hang_and_its_stacks_are_asked_for() -> None:
    run = run_of_text(
        "Parameter Offload: Total persistent parameters: 11800576 in 417 params\n",
        "  0%|                                   | 0/6 [00:00<?, ?it/s]\n",
    )
    found = alone(run, "unaccounted-time")
    assert found.title.endswith("an optimizer step: its progress bar stands at 0 of 6")
    assert found.summary.startswith("Not one turn of its progress bar had ended")
    assert found.advice[0].setting == "py-spy dump --pid"


def test_a_training_that_is_over_does_not_hang_however_far_its_bar_was_drawn() -> None:
    over = "{'train_runtime': 922.0, 'train_steps_per_second': 1.913, 'epoch': 3.0}\n"
    run = run_of_text("  0%|          | 0/1764 [00:00<?, ?it/s]\n" + over)
    found = alone(run, "unaccounted-time")
    assert found.title.startswith("A step took 523 ms in the mean of the whole training")
    assert "py-spy dump --pid" not in [advice.setting for advice in found.advice]


def test_a_bar_that_counts_little_of_the_training_is_that_of_an_evaluation() -> None:
    log = (
        "{'eval_loss': 0.05, 'eval_runtime': 28.1, 'epoch': 3.0}\n"
        "100%%|██████████| 88/88 [00:27<00:00,  3.12it/s]\n"
        "{'train_runtime': %s, 'train_steps_per_second': 0.168, 'epoch': 3.0}\n"
    )
    assert bar(run_of_text(log % "10530.0")) is None
    short = bar(run_of_text(log % "40.0"))
    assert short is not None
    assert short.total == 88


@pytest.mark.parametrize(
    ("bar", "tells"),
    [
        ("9/100 [00:40<06:44,  4.44s/it]", True),
        ("10500/80000 [00:01<00:07, 9610.00it/s]", False),  # of samples
    ],
)
def test_a_progress_bar_is_said_to_tell_of_speed(bar: str, *, tells: bool) -> None:
    found = alone(
        run_of_text(f"WORLD INFO DICT: {{'localhost': [0]}}\n  9%|#   | {bar}\n"),
        "unaccounted-time",
    )
    assert ("nothing can be said about speed" not in found.title) is tells
    assert ("A progress bar moves" in found.summary) is tells


def test_a_training_of_the_trainer_that_prints_no_record_is_told_by_its_mean_step() -> None:
    banner = "  Total optimization steps = 100\n"
    bar = "100%|██████████| 100/100 [45:33<00:00, 27.33s/it]\n"
    end = "{'train_runtime': 2733.2875, 'train_samples_per_second': 0.585, "
    end += "'train_steps_per_second': 0.037, 'train_loss': 0.51, 'epoch': 1.0}\n"
    found = alone(run_of_text(banner, bar, end), "unaccounted-time")
    assert found.title == "A step took 27.3 s in the mean of the whole training; none is printed"
    evaluated = "{'eval_loss': 0.5, 'eval_runtime': 164.75, 'epoch': 0.5}\n"
    with_it = alone(run_of_text(banner, evaluated, bar, end), "unaccounted-time")
    assert "of the whole training, with its evaluations and saves; none" in with_it.title
    assert found.advice[0].setting == "logging_steps"
    assert "0.585 samples/s. The Trainer prints a record every logging_steps" in found.summary
    for took, rate in (("0.0", "5.0"), ("0.0001", "inf")):  # of one that resumed behind its end
        untold = end.replace("2733.2875", took).replace("0.037", rate)
        assert "mean of the whole training" not in run_of_text(untold).findings[0].title
    engine = "[2024-03-04 10:11:12,345] [INFO] [logging.py:96:log_dist] [Rank 0] DeepSpeed Final "
    beside = alone(run_of_text(f"{engine}Optimizer = AdamW\n", bar, end), "unaccounted-time")
    assert [advice.setting for advice in beside.advice] == ["logging_steps", "wall_clock_breakdown"]


@pytest.mark.parametrize(
    ("first", "settings"),
    [
        ("{'eval_loss': 0.25, 'eval_runtime': 17.0, 'epoch': 0.16}", ["logging_steps"]),
        ("loading the data", ["logging_steps", "steps_per_print"]),
    ],
    ids=["trainer", "anybody"],
)
def test_of_bars_beside_a_line_of_deepspeed_the_trainers_own_setting_is_told_first(
    first: str, settings: list[str]
) -> None:
    bar = "  5%|██        | 36/675 [05:01<1:58:38, 11.14s/it]"
    line = "Invalidate trace cache @ step 2: expected module 1, but got module 332\n"
    found = alone(run_of_text(f"{first}\n", bar, line), "unaccounted-time")
    told = [one.setting for one in found.advice if one.setting.endswith(("_steps", "_print"))]
    assert told == settings


def test_where_nothing_shows_deepspeed_its_settings_are_advised_on_that_condition() -> None:
    found = alone(run_of_text("step 1 loss: 6.284\nstep 2 loss: 6.130\n"), "unaccounted-time")
    told = {one.setting: one.to for one in found.advice}
    assert {told[name].partition(", ")[2] for name in STEPLESS} == {"if DeepSpeed trains it"}


@pytest.mark.parametrize(
    ("runtime", "rate", "took"),
    [
        (273.0148, 0.007, "2 min 17 s"),  # two steps: no other number is rounded to that rate
        (9000.0, 0.007, None),  # 59 to 67 of them
        (9000.0, 0.5, "2.00 s"),
        (100.0, 0.0, None),
    ],
)
def test_a_mean_step_is_as_exact_as_the_rate_that_tells_it(
    runtime: float, rate: float, took: str | None
) -> None:
    rows = [
        metric("train_runtime", None, None, seconds=runtime),
        metric("train_steps_per_second", None, rate),
    ]
    title = alone(run_of(rows), "unaccounted-time").title
    assert title.startswith(f"A step took {took} in the mean" if took else "No line that")


def test_percentages_of_steps_that_nobody_prints_are_told() -> None:
    timer = phase("forward", 1, 0.25) | {"step": None, "timers": None}
    shares = [
        metric(f"{name}_percent", None, value)
        for name, value in [("communication", 71.5), ("communication", 85.4), ("forward", 3.25)]
    ]
    found = alone(run_of([timer, *shares]), "unaccounted-time")
    assert "percentages, which overlap: communication 85 %, forward 3.2 %." in found.summary
    assert (
        found.title == "85 % of a step is communication by the log's own count; no step is printed"
    )
    few = alone(run_of([timer, metric("communication_percent", None, 3.0)]), "unaccounted-time")
    assert few.title.endswith("only what is stated can be said about speed")


def test_what_the_flops_profiler_reports_is_told_where_no_step_is_printed() -> None:
    rows = [
        metric(f"profiled_{name}_seconds", None, None, seconds=seconds)
        for name, seconds in [("backward", 0.108), ("iteration", 0.185), ("forward", 0.0767)]
    ]
    found = alone(run_of(rows), "unaccounted-time")
    assert "only what is stated" in found.title
    assert "of one profiled step: forward 76.7 ms, backward 108 ms, in all 185 ms." in found.summary
    rated = alone(run_of([*rows, metric("profiled_samples_per_second", None, 433.0)]), found.rule)
    assert "in all 185 ms (433 samples/s)." in rated.summary


@pytest.mark.parametrize(
    ("update", "title"),
    [
        (25.4, "98 % of the one step that was profiled is the optimizer: 25.4 s of 26.0 s"),
        (0.4, "No line that is understood shows an optimizer step: only what is"),
    ],
)
def test_a_profiled_step_that_is_mostly_its_update_is_named_and_timers_are_on(
    update: float, title: str
) -> None:
    parts = [("forward", 0.15), ("backward", 0.45), ("step", update), ("iteration", update + 0.6)]
    rows = [metric(f"profiled_{name}_seconds", None, None, seconds=s) for name, s in parts]
    found = alone(run_of(rows), "unaccounted-time")
    assert found.title.startswith(title)
    assert found.confidence == ("low" if update > 1 else "high")
    assert "wall_clock_breakdown" not in [advice.setting for advice in found.advice]
    assert "timers need" not in found.summary


@pytest.mark.parametrize(("apart", "asked"), [(10, False), (100, True)])
def test_steps_per_print_is_not_advised_where_throughput_shows_it_is_so(
    apart: int, asked: bool
) -> None:
    line = {"pattern": "deepspeed.throughput_01"}
    rows = [metric("micro_step", None, apart * turn) | line for turn in range(1, 6)]
    found = alone(run_of(rows, deepspeed_version="0.6.1"), "unaccounted-time")
    assert f"printed every {apart} micro-steps" in found.summary
    assert ("steps_per_print" in [advice.setting for advice in found.advice]) is asked


def test_a_run_that_failed_before_its_first_step_is_not_asked_for_timers() -> None:
    run = run_of([problem("exception", "ValueError: no", rank=0)])
    assert rules(run) == ["rank-died"]
    assert "how the run failed" in (why(run, "unaccounted-time") or "")


@pytest.mark.parametrize(
    ("setting", "value", "said"),
    [
        ("deepspeed_version", "0.9.5", "of this version prints every tenth step unless"),
        ("deepspeed_version", "0.16.0", "0.15.2 and later prints steps only with"),
        ("steps_per_print", 2000, "DeepSpeed prints a step every 2,000 (steps_per_print)"),
        ("ds_config", '{"steps_per_print": Infinity}', "prints no step (steps_per_print: inf)"),
    ],
)
def test_why_no_step_is_printed_is_told_by_setting_and_version(
    setting: str, value: float | str, said: str
) -> None:
    found = alone(
        run_of([metric("elapsed", None, 1.0), config(setting, value)]), "unaccounted-time"
    )
    assert said in found.summary


@pytest.mark.parametrize(
    ("year", "said"),
    [
        (2022, "DeepSpeed of that time prints every tenth step unless"),
        (2025, "Nothing read in it shows DeepSpeed, which prints every tenth step unless"),
    ],
)
def test_a_log_is_of_no_version_that_is_newer_than_its_date(year: int, said: str) -> None:
    at = pd.Timestamp(year=year, month=5, day=1)
    run = run_of([metric("elapsed", None, 1.0, at=at)])
    assert said in alone(run, "unaccounted-time").summary


def test_losses_of_micro_batches_are_no_throughput_lines(tmp_path: Path) -> None:
    losses = "".join(f"Epoch: 0, Step: {n}, Rank: 0, loss = 7.5\n" for n in (5, 10, 15))
    log = tmp_path / "run.log"
    log.write_text(
        "[2023-12-11 16:39:34,450] [INFO] [logging.py:96:log_dist] [Rank 0] Overflow detected. "
        f"Skipping step. Attempted loss scale: 65536, reducing to 32768.0\n{losses}"
    )
    found = alone(load(log), "unaccounted-time")
    assert "Throughput is printed" not in found.summary
    assert [advice.setting for advice in found.advice] == STEPLESS


def test_the_best_of_an_autotuner_is_told_where_an_experiment_ran() -> None:
    best = metric("autotuned_best", None, 87.25) | {"count": 13, "text": "z1_gas1_tmbspg3"}
    found = alone(run_of([best]), "unaccounted-time")
    assert "13 experiments is z1_gas1_tmbspg3: 87.2 by its metric" in found.summary
    assert "autotuner" not in alone(run_of([best | {"value": 0.0}]), "unaccounted-time").summary


def test_how_long_a_turn_of_a_script_s_own_loop_took_is_told_by_its_time_stamps() -> None:
    lines = [
        f"[2026-03-04 10:0{at // 60}:{at % 60:02}] [Rank {rank}] Step {turn} | Loss 2.5\n"
        for turn, at in [(10, 0), (20, 20), (30, 40), (10, 300), (20, 320)]  # of two epochs
        for rank in (0, 1)
    ]
    title = alone(run_of_text(*lines), "unaccounted-time").title
    assert title.startswith("A turn of the loop took 2.00 s in the mean of 30;")
    short = alone(run_of_text(*lines[:2]), "unaccounted-time").title
    assert (
        short
        == "No line that is understood shows an optimizer step: nothing can be said about speed"
    )


def test_a_line_of_verls_turn_that_breaks_off_is_not_said_to_be_switched_off() -> None:
    found = alone(
        run_of_text(
            "Training Progress:   0%|          | 0/1 [02:34<?, ?it/s]\n",
            "(TaskRunner pid=42) step:1 - actor/entropy_loss:1.318 - actor/kl_loss:0.001 - ac",
        ),
        "unaccounted-time",
    )
    assert found.title == "The line of turn 1 breaks off before it tells how long the turn took"
    assert [advice.setting for advice in found.advice] == []
    assert "ended" not in found.summary
    whole = run_of_text(*(f"step:{n} - actor/entropy:0.5 - actor/pg_loss:0.25\n" for n in (1, 2)))
    assert "breaks off" not in alone(whole, "unaccounted-time").title


def test_a_bar_of_verls_turns_is_told_with_what_would_print_them() -> None:
    verl = "(TaskRunner pid=4242) "
    found = alone(
        run_of_text(
            f"{verl}Size of train dataloader: 1500, Size of val dataloader: 1\n",
            f"{verl}Total training steps: 3000\n",
            f"{verl}Training Progress:   1%|          | 33/3000 [36:51<55:13:00, 67.00s/it]\n",
        ),
        "unaccounted-time",
    )
    assert found.title.endswith("shows optimizer steps: it stands at 33 of 3,000 after 36 min 51 s")
    assert [advice.setting for advice in found.advice] == ["trainer.logger"]


def test_what_passes_between_turns_is_told_beside_them() -> None:
    clock, lines = 0, []
    for turn in range(1, 41):
        clock += 2 + 58 * (turn % 10 == 1)  # evaluated behind every tenth
        at = f"2026-03-04 10:{clock // 60:02}:{clock % 60:02},000"
        lines.append(f"{at} - train - INFO - Step {turn} loss: 2.5\n")
    found = alone(run_of_text(*lines), "unaccounted-time")
    said = "3 times 58.0 s each more passed between two of its lines, 69 % of the time"
    assert found.title == f"A turn of the loop took 2.00 s in the mean of 39; {said}"
    assert "became slower" not in found.summary


def test_lines_that_were_held_back_and_stamped_at_once_tell_no_pace_between_them() -> None:
    at = [f"{minute:02}:00" for minute in [0] * 10 + [20] * 10 + [40]]
    lines = [f"[2026-03-04 10:{one}] Step {n} | Loss 2.5\n" for n, one in enumerate(at, 1)]
    title = alone(run_of_text(*lines), "unaccounted-time").title
    assert title.startswith("A turn of the loop took 2 min 00 s in the mean of 20; whether")


def test_turns_of_minimind_are_told_by_their_time_stamps_whoever_else_prints_them() -> None:
    lines = [
        f"{stamp}Epoch:[1/20]({turn}/41000) loss:2.{turn} lr:0.000199 epoch_Time:45.0min:\n"
        for turn, at in [(100, 0), (200, 14), (300, 28)]
        for stamp in (f"2026-03-04 10:00:{at:02},500 __main__ INFO ", "")  # and without a stamp
    ]
    title = alone(run_of_text(*lines), "unaccounted-time").title
    assert title.startswith("A turn of the loop took 140 ms in the mean of 200;")


def test_how_long_a_batch_of_icefall_took_is_told_without_its_validations(tmp_path: Path) -> None:
    losses = "loss[loss=0.5, over 9000.00 frames. ], tot_loss[loss=0.75, over 2000.00 frames. ]"
    lines = [
        f"2024-05-06 10:{at // 60:02}:{at % 60:02},000 INFO [train.py:1034] ({rank}/2) Epoch 1, "
        f"batch {turn}, {losses}, batch size: 30, lr: 2.50e-02, grad_scale: 0.125\n"
        for turn, at in [(50, 0), (100, 75), (150, 150), (200, 800), (250, 875)]
        for rank in (0, 1)
    ]
    lines[6:6] = [
        f"2024-05-06 10:12:13,456 INFO [train.py:1066] ({rank}/2) Epoch 1, validation: loss=0.5, "
        "over 900000.00 frames. \n"
        for rank in (0, 1)
    ]
    log = tmp_path / "log"
    log.write_text("".join(lines))
    run = load(log)
    found = alone(run, "unaccounted-time")
    assert found.title.startswith("A turn of the loop took 1.50 s in the mean of 150; where that")
    assert "whether it is an optimizer step is not stated" in found.summary
    assert "Nor does this log say" not in found.summary
    assert "wall_clock_breakdown" not in str(found)
    assert run.meta["framework"] == "icefall"
    assert run.meta["world_size"] == 2


def test_recipes_of_icefall_that_number_all_batches_tell_steps() -> None:
    lines = [
        f"2025-05-06 10:{n:02}:12,345 INFO [train_zipvoice.py:731] Epoch 1, batch {50 * n - 1}, "
        f"global_batch_idx: {50 * n}, batch size: 24, loss[loss=0.5, over 18000.00 frames. ], "
        "tot_loss[loss=0.75, over 700000.75 frames. ], cur_lr: 1.00e-04, grad_scale: 65536.0\n"
        for n in range(1, 8)
    ]
    run = run_of_text(*lines)
    assert run.steps["step"].to_list() == [50 * n for n in range(1, 8)]
    assert run.findings[0].title.startswith("A step takes 1.20 s")


def test_how_long_a_batch_of_cosyvoice_took_is_told_by_its_time_stamps(tmp_path: Path) -> None:
    lines = [
        f"2025-04-08 10:10:{at:02},500 DEBUG TRAIN Batch 0/{turn} loss 1.25 acc 0.25 lr 0.0002 "
        "grad_norm 1.5 rank 0\n"
        for turn, at in [(100, 0), (200, 20), (300, 40)]
    ]
    log = tmp_path / "log"
    log.write_text("".join(lines))
    found = alone(load(log), "unaccounted-time")
    assert found.title.startswith("A turn of the loop took 200 ms in the mean of 200;")


def test_how_long_a_micro_step_took_is_told_by_the_stamps_of_lines_of_throughput() -> None:
    stamps = [1250 * n for n in range(1, 9)] + [12000, 14000, 16000]
    lines = [
        f"10.0.3.7: [2022-08-03 06:38:{at // 1000:02},{at % 1000:03}] [INFO] [timer.py:191:stop] "
        f"0/{10 * n}, SamplesPerSec=4365.0, MemAllocated=10.8GB, MaxMemAllocated=10.8GB\n"
        for n, at in enumerate(stamps, 1)
    ]
    found = alone(run_of_text(*lines), "unaccounted-time")
    assert found.title.startswith("A micro-step took 148 ms in the mean of 100;")
    assert "slower: 125 ms each in the first quarter of them, 200 ms in the last." in found.summary
    steady = alone(run_of_text(*lines[:8]), "unaccounted-time")
    assert "slower" not in steady.summary


def test_what_passed_where_lines_were_cut_out_of_a_log_is_no_part_of_a_micro_step() -> None:
    lines = [
        f"[2022-08-03 {at},000] [INFO] [timer.py:191:stop] 0/{turn}, SamplesPerSec=4.25\n"
        for turn, at in [
            (10, "06:38:00"), (20, "06:38:05"), (30, "06:38:10"), (230, "06:39:50"),
            (1000, "09:00:00"), (1010, "09:00:05"),
        ]
    ]  # fmt: skip
    title = alone(run_of_text(*lines), "unaccounted-time").title
    assert title.startswith("A micro-step took 500 ms in the mean of 230;")


def test_a_save_is_no_part_of_a_micro_step_that_time_stamps_tell() -> None:
    lines = [
        f"[2022-08-03 06:38:{at:02},000] [INFO] [timer.py:191:stop] 0/{turn}, SamplesPerSec=4.25\n"
        for turn, at in [(10, 0), (20, 5), (30, 10), (40, 45), (50, 50)]
    ]
    lines.insert(
        3,
        "[2022-08-03 06:38:40,000] [INFO] [engine.py:3100:_save_zero_checkpoint] zero checkpoint "
        "saved out/global_step30/zero_pp_rank_0_mp_rank_00_optim_states.pt\n",
    )
    title = alone(run_of_text(*lines), "unaccounted-time").title
    assert title.startswith("A micro-step took 500 ms in the mean of 30;")


def test_what_is_told_to_become_slower_is_what_the_title_counts() -> None:
    """Lines of a loop with one stamp tell nothing: those of throughput tell both."""
    loop = [
        "[2022-08-03 06:38:01] Step 10 | Loss 2.5\n",
        "[2022-08-03 06:38:01] Step 20 | Loss 2.5\n",
    ]
    stamps = [1250 * n for n in range(1, 9)] + [12000, 14000, 16000]
    lines = [
        f"[2022-08-03 06:38:{at // 1000:02},{at % 1000:03}] [INFO] [timer.py:191:stop] "
        f"0/{10 * n}, SamplesPerSec=4365.0, MemAllocated=10.8GB, MaxMemAllocated=10.8GB\n"
        for n, at in enumerate(stamps, 1)
    ]
    found = alone(run_of_text(*loop, *lines), "unaccounted-time")
    assert found.title.startswith("A micro-step took 148 ms in the mean of 100;")
    assert "It became slower: 125 ms each" in found.summary


@pytest.mark.parametrize(
    ("behind", "waits"), [("", True), ("Time to load cpu_adam op: 2.5 seconds", False)]
)
def test_a_set_up_that_ends_where_an_extension_is_loaded_may_wait_for_a_lock(
    tmp_path: Path, behind: str, *, waits: bool
) -> None:
    told = "Using /home/u/.cache/torch_extensions/py39_cu117 as PyTorch extensions root...\n"
    (tmp_path / "run.log").write_text(told + told + behind, encoding="utf-8")
    found = alone(load(tmp_path / "run.log"), "unaccounted-time")
    advised = [advice.setting for advice in found.advice]
    assert ("lock in the folders of torch_extensions" in advised) is waits
    assert "set-up alone" in found.title


def test_a_bar_beside_lines_of_a_scripts_own_loop_is_not_the_trainers() -> None:
    title = "Training Epoch: 1/3, step 9/10 completed (loss: 1.5): "
    bar = "100%|####| 10/10 [05:00<00:00, 30.00s/it]\n"
    found = alone(run_of_text(title + bar), "unaccounted-time")
    assert "logging_steps" not in [one.setting for one in found.advice]


def test_a_source_whose_metrics_are_not_understood_is_not_said_to_show_no_steps(
    tmp_path: Path,
) -> None:
    head = "[2023-01-11 13:28:56,977] [INFO] [comm.py:654:init_distributed] Initializing "
    lines = [
        f"[2023-01-11 13:28:{at}][acme][INFO] - [0] [{at}/99] epoch=1.0 step={at} dt=0.3665 "
        "batch_acc=0.1094 running_loss=0.0012\n"
        for at in range(20, 26)
    ]
    log = tmp_path / "run.log"
    log.write_text(f"{head}TorchBackend in DeepSpeed with backend nccl\n" + "".join(lines))
    (tmp_path / "second.log").write_text(log.read_text())
    several = alone(load([log, tmp_path / "second.log"]), "unaccounted-time").advice[0]
    assert several.setting == "dsprof parsers --unknown PATH"
    found = alone(load(log), "unaccounted-time")
    assert found.title.startswith("No line that is understood shows an optimizer step")
    assert found.summary.startswith("6 of 6 lines that look like metrics are not understood.")
    assert found.advice[0].setting == f"dsprof parsers --unknown {log}"


def test_while_a_log_is_watched_nobody_counts_the_lines_that_are_not_understood() -> None:
    rows = [metric("eval_loss", None, 1.5)]
    told = [alone(run_of(rows, meta), "unaccounted-time").title for meta in ({}, {"watched": True})]
    assert told[0].startswith("No line that is understood shows an optimizer step")
    assert told[1].startswith("No line that is understood shows an optimizer step")


def test_a_rate_that_is_too_rough_for_one_number_tells_between_which_times_a_step_took() -> None:
    end = "{'train_runtime': 6217.8269, 'train_samples_per_second': 0.837, "
    end += "'train_steps_per_second': 0.053, 'train_loss': 1.02, 'epoch': 3.0}\n"
    found = alone(run_of_text(end), "unaccounted-time")
    assert found.title.startswith("A step took about 18.7 s to 19.0 s in the mean of the whole")
