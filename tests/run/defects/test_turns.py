"""Turns that are no optimizer steps: they generate more than once, or are micro-batches."""

from __future__ import annotations

import pytest

from tests.loaded import run_of_text

TURNS = range(1, 7)


def losses(turn: int) -> str:
    return (
        f"Epoch: 0 | Step: {turn} | PPO Epoch: 1 | Actor Loss: 0.5 | Critic Loss: 0.25 "
        "| Unsupervised Loss: 0.0\n"
    )


def batch(seconds: float, train: float) -> str:
    others = seconds - train - 2.0
    return (
        f"|E2E latency={seconds:.2f}s |Gather latency=0.50s (10.00%) |Generate time=2.00s (40.00%) "
        f"|Training time={train:.2f}s (10.00%) |Others={others:.2f} (40.00%)"
        "|CurSamplesPerSec=8.00 |AvgSamplesPerSec=8.00\n"
    )


def test_the_batches_that_a_turn_generates_are_summed_and_the_last_turn_is_unknown() -> None:
    turns = [losses(n) + batch(5.0, 2.0) + batch(3.0, 0.0) for n in TURNS]
    run = run_of_text(*turns, losses(7), batch(5.0, 2.0))
    assert run.repairs["name"].to_list() == ["batches-of-a-turn"]
    assert run.steps["seconds"].dropna().to_list() == [8.0] * len(TURNS)
    assert run.steps["seconds"].isna().iloc[-1]
    assert run.steps["samples_per_second"].isna().all()
    of_turn = run.phases[run.phases["step"] == 3].set_index("name")["seconds"]
    assert of_turn.to_dict() == {"generate": 4.0, "train": 2.0, "others": 2.0, "gather": 1.0}


def test_turns_of_a_batch_each_are_left_as_they_are() -> None:
    run = run_of_text(*(losses(n) + batch(5.0, 2.0) for n in TURNS))
    assert run.repairs.empty
    assert run.steps["seconds"].eq(5.0).all()
    assert run.steps["samples_per_second"].eq(8.0).all()


@pytest.mark.parametrize("accumulation", [1, 4])
def test_a_loop_s_turn_is_a_micro_batch_of_which_an_optimizer_step_takes_several(
    accumulation: int,
) -> None:
    """64 samples in an optimizer step of 4 x 1.5 s, of which 1 s waits for data."""
    settings = (
        f"[INFO] [config.py:999:print]   gradient_accumulation_steps .. {accumulation}\n"
        "[INFO] [config.py:999:print]   train_batch_size ............. 64\n"
    )
    line = (
        "mmengine - INFO - Iter(train) [{0}/400]  lr: 1e-3  time: 1.5  data_time: 0.25  loss: 2\n"
    )
    run = run_of_text(settings, *(line.format(10 * turn) for turn in range(1, 5)))
    assert run.steps["step"].to_list() == ([10, 20, 30, 40] if accumulation == 1 else [3, 5, 8, 10])
    assert run.steps["seconds"].to_list() == [1.5 * accumulation] * 4
    assert run.steps["data"].to_list() == [0.25 * accumulation] * 4
    assert run.steps["samples_per_second"].to_list() == [64 / (1.5 * accumulation)] * 4
    assert run.repairs["name"].to_list() == ["turns-of-micro-batches"] * (accumulation > 1)


def test_turns_that_count_from_0_make_up_as_many_steps_as_those_that_count_from_1() -> None:
    settings = "[INFO] [config.py:999:print]   gradient_accumulation_steps .. 4\n"
    line = "Epoch: [0][{0:4d}/16]\tTime  0.500 ( 0.500)\tData  0.100 ( 0.100)\tLoss 1.0 (1.0)\n"
    run = run_of_text(settings, *(line.format(turn) for turn in range(16)))
    assert run.steps["step"].to_list() == [0, 1, 2, 3]
    assert run.steps["seconds"].to_list() == [2.0] * 4


def test_litgpt_s_micro_batches_of_no_step_yet_do_not_tell_how_many_a_step_has() -> None:
    line = "iter 0 step 0: loss 3.1250, iter time: 500.50ms (optimizer.step)\n"
    assert run_of_text(line).repairs["name"].to_list() == ["micro-batches-alone"]


def test_a_step_of_which_litgpt_prints_the_last_micro_batch_alone_has_no_time() -> None:
    """It accumulates over 16, and prints when a step ends."""
    line = "Epoch 1 | iter {} step {} | loss train: 2.500, val: n/a | iter time: 400.25 ms (step)\n"
    run = run_of_text(*(line.format(16 * step, step) for step in range(1, 7)))
    assert run.steps["step"].to_list() == list(range(1, 7))
    assert run.steps["seconds"].isna().all()
    assert run.repairs["name"].to_list() == ["last-micro-batch-alone"]
    assert run.findings[0].title == (
        "Where the time of a step goes is unknown: it times the last micro-batch of a step alone"
    )
    every = run_of_text(*(line.format(step, step) for step in range(1, 7)))
    assert every.steps["seconds"].to_list() == [0.40025] * 6


@pytest.mark.parametrize("forked", [False, True])
def test_an_iteration_of_nanogpt_that_holds_an_evaluation_has_no_time(forked: bool) -> None:
    """It evaluates before every fourth iteration, or behind it in a fork; 130 holds none of it."""
    told = [
        "step 0: train loss 9.5, val loss 9.6\niter 0: loss 9.5, time 26000.50ms, mfu -100.00%\n"
    ]
    for at in range(1, 17):
        held = at > 1 and at % 4 == forked
        line = f"iter {at}: loss 3.5, time {9000.5 if held else 250.5}ms, mfu 28.25%\n"
        done = f"step {at}: train loss 3.25, val loss 3.75\nsaving checkpoint to out\n"
        told += [line] if at % 4 else [line, done] if forked else [done, line]
    late = "step 124: train loss 3.25, val loss 3.75\niter 130: loss 3.5, time 251.00ms\n"
    run = run_of_text(*told, late)
    assert run.steps["step"].to_list() == [*range(1, 17), 130]
    assert run.steps["seconds"].dropna().unique().tolist() == [0.2505, 0.251]
    assert run.steps["seconds"].isna().sum() == (3 if forked else 4)
    assert run.repairs["name"].to_list() == ["turns-behind-evaluations"]


def test_an_evaluation_that_a_fork_of_nanogpt_does_not_number_is_in_the_next_time() -> None:
    line = "[2023-08-03 21:{:02}:14,422][trainer][INFO] - [RANK 0] {}\n"
    told = []
    for at in range(12):
        held = at % 5 == 0
        told += [line.format(at, "eval: train loss 3.5070, val loss 3.4650")] if held else []
        told += [line.format(at, f"iter {at}: loss 3.4653, time {68.11 if held else 24.73}s")]
    run = run_of_text(*told)
    assert run.steps["step"].to_list() == [*range(1, 12)]
    assert run.steps.loc[run.steps["seconds"].isna(), "step"].to_list() == [5, 10]
    assert run.steps["seconds"].dropna().unique().tolist() == [24.73]
    assert run.repairs["name"].to_list() == ["turns-behind-evaluations"]


def test_the_time_that_nanogpt_prints_is_of_one_iteration_however_rarely_it_prints() -> None:
    run = run_of_text(*(f"iter {at}: loss 3.5, time 250.50ms\n" for at in range(10, 60, 10)))
    assert run.steps["covers"].eq(1).all()
    assert run.repairs.empty


def test_a_turn_numbered_0_is_a_turn_and_not_what_is_printed_before_training() -> None:
    made = "[2024-03-15 13:21:52,800] [INFO] [logging.py:96:log_dist] [Rank 0] step=0, skipped=0\n"
    turns = [losses(n) + batch(5.0 + n, 2.0) for n in range(3)]
    run = run_of_text(made, *turns)
    assert run.steps[["segment", "step", "covers", "seconds"]].to_numpy().tolist() == [
        [0, 0, 1, 5.0],
        [0, 1, 1, 6.0],
        [0, 2, 1, 7.0],
    ]
    assert run.steps["warm_up"].tolist() == [True, False, False]
    assert run.repairs.empty


def image_turn(epoch: int, at: int, seconds: float) -> str:
    clock = f"Time {seconds:6.3f} ({seconds:6.3f})\tData  0.020 ( 0.020)\tLoss 7.0e+00 (7.0e+00)"
    return f"Epoch: [{epoch}][{at:4d}/40]\t{clock}\n"


def test_the_first_batch_of_a_loop_that_counts_from_0_is_the_warm_up_and_not_the_next_one() -> None:
    told = [image_turn(0, at, 6.25 if at == 0 else 0.25) for at in range(0, 40, 10)]
    run = run_of_text(*told, *(image_turn(1, at, 2.5 if at == 0 else 0.25) for at in (0, 10)))
    assert run.steps["step"].to_list() == [0, 10, 20, 30, 50]
    assert run.steps["seconds"].to_list() == [6.25, 0.25, 0.25, 0.25, 0.25]
    assert run.steps["warm_up"].to_list() == [True, False, False, False, False]
    assert run.repairs.empty


def test_a_job_that_fails_behind_batch_0_has_made_a_step() -> None:
    run = run_of_text(image_turn(0, 0, 6.25), "RuntimeError: CUDA error: out of memory\n")
    assert run.steps["step"].to_list() == [0]


def test_a_line_that_tells_of_its_batch_alone_covers_that_one() -> None:
    line = "INFO Train: [0/9][{}/99]\teta 0:10:52 lr 0.00075\ttime 0.5000 (0.5000)\tloss 1.5\n"
    steps = run_of_text(*(line.format(at) for at in range(0, 50, 10))).steps
    assert steps["step"].to_list() == [*range(0, 50, 10)]
    assert steps["covers"].eq(1).all()
