"""The terminal summary says what the run says, and nothing unsafe."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.cells import cell_len

import dsprof
from dsprof.findings.advice import more_micro_batches
from dsprof.live.drawn import recent_of
from dsprof.page.communication import comm_section
from dsprof.page.configuration import settings
from dsprof.page.ranks import rank_section
from dsprof.page.trust import doubt_section
from dsprof.recording import Unit, Writer
from dsprof.run import load
from dsprof.text.document import document
from dsprof.text.overview import overview, rate_of
from tests.findings.plants import WELL, metric, phase, problem, run_of, steps
from tests.findings.ranks.test_stragglers import ranks
from tests.loaded import run_of_text
from tests.recording.recorded import header, record, write_steps
from tests.text.said import (
    BAR,
    SEED,
    TRAINER,
    VARIED,
    Sample,
    dsprof_sample,
    rows_of,
    shown,
)


def test_the_first_words_are_the_verdict(sample_run: Sample) -> None:
    run = sample_run(SEED)
    first = " ".join(shown(run).partition("\n\n")[0].split())
    assert first == run.findings[0].title


def test_the_step_is_split_into_its_classes_largest_first(sample_run: Sample) -> None:
    text = shown(sample_run(SEED))
    table = text[text.index("Where a step goes") :].partition("\n\n")[0].splitlines()
    assert "5.75 s, mean of 3 windows of 10 steps (logged times)" in table[0]
    assert [" ".join(line.split()[:-2]) for line in table[1:4]] == [
        "wait for a peer 4.11 s 71 %",
        "compute 1.32 s 23 %",
        "communication 269 ms 4.7 %",
    ]


def test_losses_of_micro_batches_are_told_where_no_line_numbers_a_step(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    told = [(5, 0, 7.75), (5, 1, 9.5), (10, 0, 7.25), (10, 1, 9.25)]
    log.write_text(
        "".join(f"Epoch: 0, Step: {n}, Rank: {rank}, loss = {loss}\n" for n, rank, loss in told)
    )
    assert re.search(r"Loss +7\.750 → 7\.250 *\n", shown(load(log)))


def test_losses_that_several_ranks_print_of_one_micro_batch_are_no_course(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    line = "Training Epoch: 1/3, step {}/79 completed (loss: {}):   1%|#     | 1/79 [00:09<12:00]\n"
    told = [(0, 1.5), (0, 1.25), (0, 1.75), (1, 1.0), (1, 1.125)]
    log.write_text("".join(line.format(*one) for one in told))
    assert re.search(r"Loss +1\.500 → 1\.000 *\n", shown(load(log)))
    log.write_text(line.format(0, 1.5) + line.format(0, 1.25))
    assert re.search(r"Loss +1\.500 *\n", shown(load(log)))


def test_times_of_a_recording_are_recorded_not_logged(tmp_path: Path) -> None:
    record(tmp_path, last=30)
    text = shown(load(tmp_path))
    assert "(recorded times)" in text
    assert "logged times" not in text


def test_bars_are_as_long_as_their_shares(sample_run: Sample) -> None:
    text = shown(sample_run(SEED), blocks=False)
    bars = {line.split()[0]: line.count("#") for line in text.splitlines() if "#" in line}
    assert bars["wait"] == pytest.approx(0.714 * 20, abs=0.5)
    assert bars["compute"] == pytest.approx(0.230 * 20, abs=0.5)
    assert bars["data"] == 1  # little, but there


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
@pytest.mark.parametrize("name", VARIED)
def test_no_line_is_wider_than_the_terminal(sample_run: Sample, name: str, width: int) -> None:
    wide = [line for line in shown(sample_run(name), width).splitlines() if cell_len(line) > width]
    assert wide == []


def test_zero3_shows_its_reduction_as_communication(sample_run: Sample) -> None:
    text = shown(sample_run("zero3_0.19.8"))
    assert re.search(r"communication +≥\d.* ms +1\d % .* backward_allreduce", text)
    assert "≥ is at least" in text
    assert re.search(r"communication +>=\d.* ms", shown(sample_run("zero3_0.19.8"), blocks=False))


def test_the_first_cause_stands_before_what_follows_from_it(sample_run: Sample) -> None:
    text = shown(sample_run("killed_rank_0.19.8"))
    problems = text[text.index("\nProblems") :]
    assert problems.index("first cause") < problems.index("Killing subprocess")
    assert "killed_rank_0.19.8.log:229" in problems


def test_an_exception_that_ended_no_process_is_not_said_to_have_ended_one() -> None:
    thrown = """Traceback (most recent call last):
  File "/data/train/cache.py", line 105, in put
FileNotFoundError: [Errno 2] No such file or directory: 'table.tmp'
"""
    step = "[Rank 0] step={}, skipped=0, lr=[0.1], mom=[(0.9, 0.9)]\n"
    printed = f"Exception ignored in atexit callback: <function put at 0x7f00>\n{thrown}"
    for text, told in (
        (printed, "an exception that ended no process"),
        (thrown + "".join(map(step.format, range(1, 9))), "; training went on"),
        (thrown, "an exception or a fatal error ended a process"),
    ):
        problem = rows_of(shown(run_of_text(text)), "Problems")[1]
        assert told in problem


def test_a_log_without_a_step_says_what_to_ask_for(tmp_path: Path) -> None:
    lines = [line for line in (dsprof_sample(SEED)).read_text().splitlines() if "%comms" in line]
    (tmp_path / "percent.log").write_text("\n".join(lines))
    run = dsprof.load(tmp_path / "percent.log")
    run.findings.clear()
    text = shown(run)
    assert text.startswith("No verdict: the source tells of no optimizer step")
    assert '"wall_clock_breakdown": true' in text


def test_lines_that_were_not_understood_are_counted_and_shown(tmp_path: Path) -> None:
    log = tmp_path / "half.log"
    log.write_text(
        "step 1 gizmo_heat: 3.25 units\nstep 2 gizmo_heat: 4.5 units\n"
        + (dsprof_sample(SEED)).read_text()
    )
    text = shown(dsprof.load(log), 120)
    assert "2 ×" in text
    assert "step # gizmo_heat: #.# units" in text
    assert f"{log.name}:1" in text


HOSTILE = (
    "\x1b]0;owned\x07\x1b[2J\x1b[31mRuntimeError\x9b1m: \x1bPq\x1b\\ \u202egnihton\u202c \x07\x00"
    "[bold]not markup[/bold] <script>alert(1)</script> {{ 7*7 }}"
)


def test_what_a_log_says_cannot_steer_the_terminal(tmp_path: Path) -> None:
    log = tmp_path / "hostile.log"
    log.write_bytes(
        dsprof_sample("killed_rank_0.19.8").read_bytes()
        + f"[rank1]: {HOSTILE}\nRuntimeError: CUDA error: {HOSTILE}\n".encode()
        + f"{HOSTILE} gizmo: 3.25\n".encode() * 9
    )
    text = shown(dsprof.load(log), 200)
    assert "9 ×" in text  # the hostile line itself is shown
    assert [c for c in text if not c.isprintable() and c != "\n"] == []
    coloured = shown(dsprof.load(log), 200, colour=True)
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == text


def test_records_without_a_step_number_are_never_called_steps(tmp_path: Path) -> None:
    log = tmp_path / "hf.log"
    losses = ["1.5", "1.4", "nan", "nan"]
    text = "[2024-03-15 13:0%d:00,000] [INFO] {'loss': %s, 'learning_rate': 0.1, 'epoch': 0.%d}\n"
    log.write_text("".join(text % (n, loss, n) for n, loss in enumerate(losses)))
    run = load(log)
    told = document(run)
    assert told["meta"]["counted_steps"] is True
    assert (told["steps"]["rows"], told["steps"]["first"], told["steps"]["last"]) == (4, None, None)
    assert told["steps"]["seconds"] is None  # a minute a record is not a minute a step
    found = next(finding for finding in told["findings"] if finding["rule"] == "nan-loss")
    assert found["title"] == "The loss is not finite at record 3"
    assert found["steps"] is None
    said = shown(run, 400)
    assert "4 records, which steps they belong to is unknown" in said
    assert not re.search(r"\bsteps? \d", said)


@pytest.mark.parametrize("last", [float("nan"), 0.5])
def test_a_loss_that_is_no_number_any_more_is_not_said_to_be_the_last_that_was(
    last: float,
) -> None:
    rows = steps(12, {"forward": 1.0}, 1.0)
    losses = [*np.linspace(2.0, 1.0, 10), float("nan"), last]
    rows += [metric("loss", step, loss) for step, loss in enumerate(losses, 1)]
    run = run_of(rows)
    lost = "2.000 → 1.000 at step 10, not a number since"
    (said,) = [line for line in shown(run).splitlines() if line.startswith("  Loss")]
    assert said.strip().split(maxsplit=1)[1] == (lost if np.isnan(last) else "2.000 → 0.5000")
    assert (recent_of(run, []).figures.loss is None) == np.isnan(last)


def test_what_the_trainer_says_of_the_whole_training_is_shown(tmp_path: Path) -> None:
    (tmp_path / "run.log").write_text(TRAINER, encoding="utf-8")
    said = " ".join(shown(load(tmp_path / "run.log")).split())
    assert "training took 3 min 20 s, 32 samples/s, 0.500 steps/s" in said


def test_a_bar_tells_how_fast_its_loop_turns_where_nothing_else_does(tmp_path: Path) -> None:
    (tmp_path / "run.log").write_text(BAR, encoding="utf-8")
    said = " ".join(shown(load(tmp_path / "run.log")).split())
    assert "100 of 101 turns in 3 min 20 s, lately 2.00 s each" in said
    assert "whether a turn is an optimizer step is not stated" in said


@pytest.mark.parametrize("bar", ["|          | {}/? [00:26<00:00, ", ": {}it [00:26, "])
def test_a_bar_that_does_not_know_its_end_tells_how_far_it_came(tmp_path: Path, bar: str) -> None:
    log = tmp_path / "run.log"
    log.write_text(
        f"Epoch 0: {bar.format(42)} 1.61it/s, v_num=3, train_loss_step=1.80]\r"
        f"Epoch 0: {bar.format(43)} 2.00it/s, v_num=3, train_loss_step=1.75]\n"
    )
    said = " ".join(shown(load(log)).split())
    assert "Bar 43 turns in 26.0 s, lately 500 ms each, loss 1.75" in said
    assert "Trainer" not in said


def test_a_bar_that_is_full_states_its_overall_rate(tmp_path: Path) -> None:
    (tmp_path / "run.log").write_text("100%|████| 10/10 [01:56<00:00, 11.61s/it]\n", "utf-8")
    said = " ".join(shown(load(tmp_path / "run.log")).split())
    assert "10 of 10 turns in 116 s, 11.6 s each" in said


def test_a_full_bar_that_is_not_closed_states_the_rate_of_its_last_turns(tmp_path: Path) -> None:
    bar = "Train step of epoch 0: 100%|████| 250/250 [09:28<00:00, 20.21s/it, gpt_loss=0.686]\n"
    (tmp_path / "run.log").write_text(bar, encoding="utf-8")
    said = " ".join(shown(load(tmp_path / "run.log")).split())
    assert "250 of 250 turns in 9 min 28 s, lately 20.2 s each" in said
    bar = "100%|████| 773/773 [11:41:20<00:00, 50.90s/it]\n"  # 54.4 s in the mean
    (tmp_path / "run.log").write_text(bar, encoding="utf-8")
    said = " ".join(shown(load(tmp_path / "run.log")).split())
    assert "773 of 773 turns in 11 h 41 min, lately 50.9 s each" in said


@pytest.mark.parametrize(
    ("beside", "said"),
    [
        ("v_num=3, train_loss_step=1.75", ", loss 1.75;"),
        ("loss=9.125, v_num=7", ", loss 9.125;"),
        ("gpt_loss=0.5, loss_mean=0.75, lr=1e-5", ", loss 0.5;"),
        ("act_loss=-0.25, reward=0.5, return=0.25", ", loss -0.25, reward 0.5;"),
        ("val_loss=2.5", "each;"),
    ],
)
def test_what_a_loop_writes_beside_its_last_bar_is_told(
    tmp_path: Path, beside: str, said: str
) -> None:
    bars = [
        f"Epoch 0:  40%|████      | {n}/60 [00:{n}<00:15,  1.00it/s, {beside}]\n" for n in (23, 24)
    ]
    (tmp_path / "run.log").write_text("".join(bars), encoding="utf-8")
    run = load(tmp_path / "run.log")
    assert said in " ".join(shown(run).split())
    bar = document(run)["steps"]["bar"]
    assert bar["loss"] is None or f"loss {bar['loss']:.4g}" in said


def test_the_bar_of_a_script_that_is_read_twice_keeps_its_rate(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text("steps:  22%|██  | 805/3646 [18:10:12<64:07:33, 81.26s/it, avr_loss=0.0058]\n")
    said = " ".join(shown(load(log)).split())
    assert "805 of 3,646 turns in 18 h 10 min, lately 81.3 s each" in said


@pytest.mark.parametrize(
    "other",
    [
        "Evaluating: 100%|████| 2/2 [00:19<00:00,  9.58s/it]\n",
        "Validation DataLoader 0:  50%|████| 5/10 [00:10<00:10,  2.01s/it]\n",
        "100%|████| 170498071/170498071 [00:01<00:00, 93719021.09it/s]\n",
    ],
)
def test_a_bar_of_an_evaluation_or_of_bytes_is_none_of_the_training(
    tmp_path: Path, other: str
) -> None:
    log = tmp_path / "run.log"
    log.write_text("Training: 100%|████| 15/15 [07:57<00:00, 31.82s/it]\n" + other, "utf-8")
    assert "15 of 15 turns in 7 min 57 s, 31.8 s each" in " ".join(shown(load(log)).split())
    log.write_text("a line\n" * 9 + "WORLD INFO DICT: {'localhost': [0]}\n" + other, "utf-8")
    assert "turns" not in shown(load(log))


def test_of_a_bar_that_a_terminal_cut_all_but_the_last_number_is_read(tmp_path: Path) -> None:
    log, bar = tmp_path / "run.log", "12%|█▏  | 30/256 [01:20<04:38,  1.24s/it, act_loss=0.5, {}\n"
    log.write_text(bar.format("rm=0.633, ret=0.6"), "utf-8")
    said = " ".join(shown(load(log)).split())
    assert "30 of 256 turns in 80.0 s, lately 1.24 s each, loss 0.5, reward 0.633" in said
    log.write_text(bar.format("rm=0.63"), "utf-8")
    assert "lately 1.24 s each, loss 0.5;" in " ".join(shown(load(log)).split())


def test_the_rate_of_a_bars_first_turns_is_not_called_that_of_the_last(tmp_path: Path) -> None:
    """26 s, then 2: tqdm's mean of these is 11.94."""
    log = tmp_path / "run.log"
    log.write_text("  0%|   | 2/7473 [00:28<24:46:40, 11.94s/it]\n", "utf-8")
    said = " ".join(shown(load(log)).split())
    assert "2 of 7,473 turns in 28.0 s, 11.9 s each as it smooths them;" in said
    log.write_text("  0%|   | 20/7473 [00:62<24:46:40, 2.06s/it]\n", "utf-8")
    assert "lately 2.06 s each" in " ".join(shown(load(log)).split())


def test_a_bar_as_long_as_the_training_counts_its_steps(tmp_path: Path) -> None:
    banner = "***** Running training *****\n  Total optimization steps = 101\n"
    (tmp_path / "run.log").write_text(banner + BAR, encoding="utf-8")
    said = " ".join(shown(load(tmp_path / "run.log")).split())
    assert "100 of 101 optimizer steps in 3 min 20 s, lately 2.00 s each" in said
    assert "A progress bar counts its steps" in said
    assert "is not stated" not in said


def test_the_bar_of_an_evaluation_is_not_shown_as_that_of_the_run(tmp_path: Path) -> None:
    """A line keeps only what its last refresh says: here the training's bar is not among them."""
    banner = "***** Running training *****\n  Total optimization steps = 500\n"
    evaluation = "{'eval_loss': 2.25, 'eval_runtime': 200.0, 'epoch': 1.0}\n"
    (tmp_path / "run.log").write_text(banner + BAR + evaluation, encoding="utf-8")
    assert document(load(tmp_path / "run.log"))["steps"]["bar"] is None


def test_a_turn_takes_what_the_bar_says_and_not_what_came_before_the_first_one(
    tmp_path: Path,
) -> None:
    bar = "Iteration:   0%|          | 34/84829 [01:22<4:46:08,  5.00it/s]\n"
    (tmp_path / "run.log").write_text(bar, encoding="utf-8")
    said = " ".join(shown(load(tmp_path / "run.log")).split())
    assert "34 of 84,829 turns in 82.0 s, lately 200 ms each" in said


def test_a_skip_that_one_line_tells_of_is_told_without_a_counter(tmp_path: Path) -> None:
    said = (
        "[2023-02-28 20:08:24,338] [INFO] [stage_1_and_2.py:1769:step] [deepspeed] OVERFLOW! "
        "Rank 0 Skipping step. Attempted loss scale: 64.0, reducing to 32.0\n"
    )
    (tmp_path / "run.log").write_text(said, encoding="utf-8")
    facts = rows_of(shown(load(tmp_path / "run.log")), "Run")
    assert "Steps 1 skipped (overflow)" in [" ".join(fact.split()) for fact in facts]


def test_frameworks_and_layouts_are_written_as_people_write_them(tmp_path: Path) -> None:
    banner = "  Gradient Accumulation steps = 1\n"
    (tmp_path / "run.log").write_text(banner + TRAINER, encoding="utf-8")
    facts = rows_of(shown(load(tmp_path / "run.log")), "Run")
    assert " ".join(facts[1].split()) == "Job Hugging Face Trainer (by its log lines)"
    assert " ".join(facts[2].split()) == "Layout 1 micro-batch a step"


def test_a_task_that_srun_labels_is_no_host(tmp_path: Path) -> None:
    said = "Profile Summary at step 2:\n0: world size:        128\n"
    head = "-------------------------- DeepSpeed Flops Profiler --------------------------"
    (tmp_path / "run.log").write_text(f"0: {head}\n0: {said}", encoding="utf-8")
    run = load(tmp_path / "run.log")
    assert "hosts" not in run.meta
    assert "Layout 128 ranks" in " ".join(shown(run).split())
    assert "host" not in shown(run).partition("Layout")[2].partition("\n")[0]


_STEP_LINE = (
    "[2023-04-21 19:36:50,423] [INFO] [logging.py:96:log_dist] [Rank 0] step={step}, skipped=0, "
    "lr=[1e-05], mom=[(0.9, 0.95)]\n"
)


_CURRENT = (
    "[2023-04-21 19:36:50,424] [INFO] [timer.py:199:stop] epoch=0/micro_step=9/global_step={step}, "
    "RunningAvgSamplesPerSec=4.5, CurrSamplesPerSec=4.75, MemAllocated=31.36GB, "
    "MaxMemAllocated=36.97GB\n"
)
_SO_FAR = (
    "[2022-03-11 02:06:58,985] [INFO] [timer.py:189:stop] 0/{step}, SamplesPerSec=83.5, "
    "MemAllocated=0.26GB, MaxMemAllocated=9.02GB\n"
)


@pytest.mark.parametrize(
    ("line", "told"),
    [(_CURRENT, "4.75 samples/s"), (_SO_FAR, "83.5 samples/s since the start")],
)
def test_a_rate_is_told_where_no_step_can_be_timed(tmp_path: Path, line: str, told: str) -> None:
    text = "".join((_STEP_LINE + line).format(step=step) for step in (40, 50))
    (tmp_path / "run.log").write_text(text, encoding="utf-8")
    said = " ".join(shown(load(tmp_path / "run.log")).split())
    assert f"Speed {told}" in said


@pytest.mark.parametrize(
    ("name", "unit"),
    [("tokens_per_second_mean", "tokens/s"), ("tflops_mean", "TFLOP/s a GPU")],
)
def test_a_mean_rate_stands_for_the_current_one_where_the_source_states_no_other(
    name: str, unit: str
) -> None:
    means = [metric(name, step, value) for step, value in ((10, 1400.0), (20, 1500.0))]
    said = " ".join(shown(run_of(means)).split())
    assert f"Speed 1,500 {unit} since the start" in said
    current = metric(name.removesuffix("_mean"), 20, 1600.0)
    said = " ".join(shown(run_of([*means, current])).split())
    assert f"Speed 1,600 {unit}" in said
    assert "since the start" not in said


def test_the_rate_of_one_gpu_is_told_where_how_many_there_are_is_unknown() -> None:
    rates = [metric("tokens_per_second_gpu", step, 1000.0 + step) for step in (10, 20)]
    assert "Speed 1,015 tokens/s a GPU" in " ".join(shown(run_of(rates)).split())
    known = " ".join(shown(run_of(rates, world_size=2)).split())
    assert "Speed 2,030 tokens/s" in known
    assert "tokens/s a GPU" not in known


def test_a_log_of_zero_2_says_that_backward_holds_reduction_too() -> None:
    rows = steps(20, WELL)
    said = shown(run_of(rows, world_size=2, zero_stage=2))
    assert re.search(r"communication +≥100 ms", said)
    assert re.search(r"compute +≤850 ms +85 % ", said)
    assert "≥ is at least, ≤ at most: ZeRO-2 reduces inside backward_inner, too." in said
    plain = shown(run_of(rows, world_size=2, zero_stage=2), blocks=False)
    assert re.search(r"compute +<=850 ms", plain)
    assert ">= is at least, <= at most: ZeRO-2" in plain
    asked = '{"zero_optimization": {"stage": 1, "overlap_comm": true}}'
    overlapping = shown(run_of(rows, world_size=2, ds_config=asked))
    assert "≥ is at least, ≤ at most: ZeRO-1 reduces inside backward_inner, too." in overlapping
    bucket = run_of(rows, world_size=2, zero_stage=2, parameters=1e6, reduce_bucket_size=5e8)
    assert not re.search("[≥≤]", shown(bucket))


@pytest.mark.parametrize(
    ("shared", "exchanged"),
    [
        ({"tensor_parallel_size": 2}, "what tensor parallelism exchanges"),
        (
            {"tensor_parallel_size": 2, "sequence_parallel_size": 2},
            "what tensor and sequence parallelism exchange",
        ),
        ({"context_parallel_size": 4}, "what context parallelism exchanges"),
        ({"expert_parallel_size": 4}, "what expert parallelism exchanges"),
    ],
)
def test_computation_of_ranks_that_share_layers_is_at_most_what_its_timers_hold(
    shared: dict[str, Any], exchanged: str
) -> None:
    run = run_of(steps(20, WELL), world_size=8, zero_stage=1, **shared)
    said = shown(run)
    assert re.search(r"communication +≥100 ms", said)
    assert re.search(r"compute +≤850 ms +85 % ", said)
    note = f"≥ is at least, ≤ at most: forward and backward also hold {exchanged}."
    assert note in " ".join(said.split())
    assert set(run.steps["bound"]) == {"unknown"}


def test_summary_page_and_findings_say_the_same_of_the_late_rank() -> None:
    saving = [phase("save_checkpoint", step, 0.5) for step in range(1, 31)]
    run = run_of([*ranks(30, 2, 0.15), *saving])  # rank 0 writes for the others: it is not late
    late = next(one for one in run.findings if one.rule == "straggler-rank")
    assert late.ranks == (2,)
    said = " ".join(shown(run).split())
    assert "rank 2 is last in 100 % of 29 compared steps, 150 ms per step behind" in said
    assert "Rank 2 comes last in 100 % of 29 steps" in "".join(map(str, rank_section(run).said))
    assert run.judged[0].straggler is not None
    assert run.judged[0].straggler.delay == late.seconds_per_step


def test_a_rank_that_may_be_the_one_that_waits_is_called_late_nowhere() -> None:
    """Rank 1 loads for longer; nothing times the all-reduce in which rank 0 waits for it."""
    rows = [metric("step_seconds", step, 1.0) for step in range(1, 31)]
    for step in range(1, 31):
        rows += [phase("backward", step, 0.8, 0), phase("backward", step, 0.3, 1)]
    run = run_of(rows, world_size=2)
    assert not [one for one in run.findings if one.rule == "straggler-rank"]
    assert "is last in" not in shown(run)
    said = "".join(map(str, rank_section(run).said))
    assert "Which rank is late is not known: rank 0 is longest in backward" in said


def test_a_mean_of_the_few_steps_whose_whole_time_is_told_says_so() -> None:
    """40 steps have timers; the rate stands at each tenth, the first step at none."""
    told = " ".join(shown(load(dsprof_sample("straggler_0.19.8"))).split())
    assert "mean of 4 steps (throughput lines), those whose whole time is known" in told
    assert "mean of 4 printed steps, 10 to 40, those whose whole time is known)" in told
    assert "without the first step" not in told


def test_a_rank_that_is_last_more_often_and_early_in_the_mean_is_not_named() -> None:
    run = run_of(ranks(30, 2, 0.15))
    late = run.judged[0].straggler
    assert late is not None
    assert "is last in" in shown(run)
    vars(run.judged[0])["straggler"] = replace(late, delay=-0.0004)
    assert "is last in" not in shown(run)


def test_what_recording_cost_by_its_own_account_is_said(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, header())
    for step, seconds in enumerate([4e-3, 2e-4, 1e-4, 2e-4, 3e-4], 1):
        writer.metric(writer.name("overhead"), seconds, step, Unit.SECONDS)
    write_steps(writer, 1, 5)
    writer.close()
    said = " ".join(shown(load(tmp_path)).split())
    assert "Own cost 200 µs of a step (0.2 %) to record it, median by its own account" in said


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ([(59, 59), (59, 59)], "Calls saw 118 of 118 collectives, by PyTorch's own count"),
        (
            [(40, 42), (40, 42)],
            "Calls saw 80 of 84 collectives, by PyTorch's own count; C++ issues the others",
        ),
        (
            [(40, 41), (40, 41)],
            "Calls saw 80 of 82 collectives, by PyTorch's own count; the others were under way as",
        ),
        ([(40, 42), None], "Calls saw 40 of 42 collectives"),
        ([(40, 0), None], ""),  # nothing counted them
    ],
)
def test_how_many_collectives_a_recording_saw_is_said(
    tmp_path: Path, counts: list[tuple[int, int] | None], said: str
) -> None:
    """A rank that was killed told neither number."""
    for rank, told in enumerate(counts):
        writer = Writer.create(tmp_path, header(rank=rank))
        write_steps(writer, 1, 5)
        if told:
            writer.config("collectives_seen", told[0])
            writer.config("collectives_issued", told[1])
        writer.close()
    run = load(tmp_path)
    text = " ".join(shown(run).split())
    assert said in text
    lead = "".join(map(str, comm_section(run).lead))
    assert said.removeprefix("Calls ") in lead
    assert said or "own count" not in text + lead


def test_what_a_recording_counts_is_no_setting_of_the_job(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, header())
    write_steps(writer, 1, 5)
    writer.config("collectives_seen", 40)
    writer.config("collectives_issued", 42)
    writer.close()
    run = load(tmp_path)
    assert not [name for name in run.config if name.startswith("collectives")]
    assert not [one for one in settings(run) if one.key.startswith("collectives")]


@pytest.mark.parametrize(("samples", "shown_as"), [(None, "1 micro-batch a"), (48, "3 micro-batc")])
def test_micro_batches_that_a_script_counts_itself_are_not_those_of_the_settings(
    tmp_path: Path, samples: int | None, shown_as: str
) -> None:
    """As with DeepSpeed's set_gradient_accumulation_boundary: each step tells its samples."""
    told = {"gradient_accumulation_steps": 1, "train_batch_size": 16, "micro_batch_size": 8}
    writer = Writer.create(tmp_path, header(config=told))
    write_steps(writer, 1, 10)
    if samples:
        for step in range(1, 11):
            writer.metric(writer.name("global_batch_size"), samples, step)
    writer.close()
    run = load(tmp_path)
    assert shown_as in shown(run)
    advice = more_micro_batches(run.judged[0], "")
    if samples:
        assert (advice.setting, advice.now, advice.to) == ("micro-batches of a step", "3", "6")
    else:
        assert (advice.setting, advice.to) == ("gradient_accumulation_steps", "2")


def test_a_rate_that_leaves_out_loading_stands_beside_that_of_whole_steps(tmp_path: Path) -> None:
    """DeepSpeed's timer of throughput runs for the half of each step that is not loading."""
    mark = "[2024-05-01 10:00:{:02d},000] [INFO] "
    lines = [mark.format(0) + "[config.py:1000:print]   train_batch_size ............. 32"]
    for step in range(1, 26):
        at = mark.format(2 * step)
        lines += [
            at + f"[logging.py:96:log_dist] [Rank 0] step={step}, skipped=0, lr=[0.1], mom=[0.9]",
            at + f"[timer.py:260:stop] epoch=0/micro_step={step}/global_step={step}, "
            "RunningAvgSamplesPerSec=32.0, CurrSamplesPerSec=32.0",
            at + "[logging.py:96:log_dist] [Rank 0] time (ms) | fwd: 300.00 | bwd: 600.00 | "
            "bwd_inner: 500.00 | bwd_allreduce: 100.00 | step: 95.00",
        ]
    (tmp_path / "run.log").write_text("\n".join(lines) + "\n")
    run = load(tmp_path / "run.log")
    assert overview(run).samples_per_second == 32
    assert overview(run).samples_per_second_of_steps == pytest.approx(16)
    told = "Speed     16 samples/s, batch over step time; the 32 stated leave out part of a step"
    assert told in shown(run, 200)


@pytest.mark.parametrize(
    ("stated", "of_all", "why"),
    [
        (32.0, 32.0, "leave out part of a step"),
        (32.0, None, "leave out part of a step"),
        (32.0, 16.2, "are of single steps, quicker than most"),
        (8.0, 8.0, "are of single steps, slower than most"),
    ],
)
def test_why_rates_are_not_those_of_the_mean_step(
    stated: float, of_all: float | None, why: str
) -> None:
    said = rate_of(16.0, stated, of_all)
    assert said == f"16 samples/s, batch over step time; the {stated:.0f} stated {why}"


def test_of_files_of_two_jobs_the_summary_says_whose_it_is_and_how_to_see_the_other() -> None:
    one, other = dsprof_sample("zero1_accumulation_0.19.8"), dsprof_sample("zero3_0.19.8")
    text = " ".join(shown(load([one, other]), width=400).split())
    assert f"one of 2 jobs: zero_stage is 1 in one and 3 in another Read {one}" in text
    assert f"Others dsprof report {other}" in text
    assert text.count("one of 2 jobs") == 1
    assert "zero_stage is 1 in one and 3 in another" in text
    assert "Repaired or doubted" not in text or "other-jobs" not in text
    assert "of one job" not in shown(load(one))


def test_timers_alone_leave_the_bar_to_say_how_long_a_turn_took(tmp_path: Path) -> None:
    timers = (
        "[2024-05-06 12:00:0{n},000] [INFO] [logging.py:96:log_dist] [Rank 0] time (ms) | "
        "fwd: 100.00 | bwd: 200.00 | bwd_inner: 150.00 | bwd_allreduce: 50.00 | step: 20.00\n"
    )
    (tmp_path / "run.log").write_text("".join(timers.format(n=n) for n in range(4)) + BAR)
    text = " ".join(shown(load(tmp_path / "run.log")).split())
    assert "sums of timers" in text
    assert "Bar 100 of 101 turns in 3 min 20 s, lately 2.00 s each" in text


@pytest.mark.parametrize(("begins", "loss"), [(1, "2.500 → 1.250"), (2, "2.500 → 2.000")])
def test_of_several_launches_it_says_which_one_the_means_are_of(
    begins: int, loss: str, tmp_path: Path
) -> None:
    timers = "rank=0 time (ms) | forward: 2.00 | backward: 4.00 | step: 2.00"
    losses = ("2.5", "1.5", "1.25"), ("2.6", "2.0")
    lines = [
        f"steps: {step} loss: {value} iter time (s): 0.010 samples/sec: 100.0\n[INFO] {timers}\n"
        for first, launch in zip((1, begins), losses, strict=True)
        for step, value in enumerate(launch, first)
    ]
    (tmp_path / "run.log").write_text("".join(lines))
    text = " ".join(shown(load(tmp_path)).split())
    assert " of launch 1 of 2" in text
    assert f"Loss {loss}" in text


def test_a_launch_that_failed_before_its_first_step_is_counted_among_the_others() -> None:
    rows = [row | {"segment": 1} for row in steps(4, {})]
    rows += [row | {"segment": 2} for row in steps(3, {})]
    run = run_of([*rows, problem("exception", "boom") | {"segment": 0}])
    assert " of launch 2 of 3" in " ".join(shown(run).split())


def test_a_recording_that_ended_itself_is_told_in_words() -> None:
    text = shown(run_of([*steps(4, WELL), problem("recording-stopped", "the disk is full")]))
    assert "dsprof ended its recording of a rank, not the training" in " ".join(text.split())
    assert "recording-stopped" not in text


def test_a_table_of_means_says_so_where_the_verdict_is_about_one_rank() -> None:
    text = " ".join(shown(run_of(ranks(30, 2, 0.3))).split())
    assert "of those that wait for rank 2." in text
    assert "Mean of 4 ranks; the verdict's 30 % is " in text


def test_of_a_single_rank_nothing_is_said_to_be_a_mean_of_ranks(sample_run: Sample) -> None:
    assert not re.search(r"Mean of \d+ ranks", shown(sample_run(SEED)))


def test_what_was_repaired_is_called_the_same_in_the_terminal_and_on_the_page() -> None:
    run = load(dsprof_sample("comms_verbose_0.19.8"))
    table = next(
        one for one in doubt_section(run, []).tables if one.caption == "Repairs and doubts"
    )
    told = rows_of(shown(run), "Repaired or doubted")[1:]
    assert [line.split()[0] for line in told if not line.startswith("   ")] == [
        row[0].text for row in table.rows
    ]


def test_the_layout_tells_where_zero_keeps_what_and_what_wraps_the_model() -> None:
    zero = {"stage": 3, "offload_optimizer": {"device": "nvme"}, "zero_hpz_partition_size": 8}
    told = json.dumps({"zero_optimization": zero})
    run = run_of(steps(3, WELL), world_size=16, ds_config=told, zero_stage=3)
    said = " ".join(shown(run).split())
    assert "16 ranks, ZeRO 3 (optimizer on nvme, hpZ over 8 ranks)" in said
    run = run_of(steps(3, WELL), world_size=2, expert_parallel_size=2, wrapper="FSDP2")
    assert "2 ranks, expert parallel 2, FSDP2" in " ".join(shown(run).split())


def test_exceptions_of_different_classes_are_told_apart_among_the_problems() -> None:
    lines = (
        f"[rank{rank}]: Traceback (most recent call last):\n"
        f'[rank{rank}]:   File "/data/train.py", line 9, in <module>\n'
        f"[rank{rank}]: {error}: no such split\n"
        for rank, error in enumerate(["ValueError", "KeyError", "KeyError"])
    )
    said = " ".join(shown(run_of_text(*lines)).split())
    assert "ValueError: no such split" in said
    assert "KeyError: no such split and 1 more of the kind" in said
