"""Loops of vision and multimodal trainers, which time their turns and the waiting for data."""

from __future__ import annotations

import pytest

from tests.loaded import run_of_text

LOGGER = (
    "Epoch: [{epoch}]  [{turn:4d}/100]  eta: 0:10:00  lr: 0.000250  loss: 1.5000 (1.6250)  "
    "time: 0.5000  data: {data:.4f}  max mem: 2048\n"
)
MMENGINE = (
    "2024/03/04 10:{turn:02d}:00 - mmengine - INFO - Epoch(train)  [{epoch}][{turn}/40]  "
    "lr: 1.0000e-03  eta: 0:10:00  time: 6.0000  data_time: {data:.4f}  memory: 2048  loss: 1.5\n"
)


def test_turns_that_begin_anew_with_each_epoch_are_one_launch_and_are_counted_on() -> None:
    turns = [(epoch, turn) for epoch in (3, 4) for turn in (25, 50)]
    run = run_of_text(*(LOGGER.format(epoch=e, turn=t, data=0.125) for e, t in turns))
    assert run.steps["step"].to_list() == [325, 350, 425, 450]
    assert run.steps["segment"].unique().tolist() == [0]


def test_epochs_that_count_from_1_have_no_steps_before_the_first() -> None:
    turns = [(epoch, turn) for epoch in (1, 2) for turn in (20, 40)]
    run = run_of_text(*(MMENGINE.format(epoch=e, turn=t, data=0.25) for e, t in turns))
    assert run.steps["step"].to_list() == [20, 40, 60, 80]
    assert run.steps["data"].to_list() == [0.25] * 4
    assert run.steps["seconds"].to_list() == [6.0] * 4


def test_a_loop_that_says_how_long_it_waits_for_data_is_bound_by_it_from_a_tenth_on() -> None:
    text = "".join(LOGGER.format(epoch=0, turn=t, data=0.125) for t in range(20, 220, 20))
    assert run_of_text(text).findings[0].title == "25 % of a step is waiting for input data"


@pytest.mark.parametrize(
    ("data", "title"),
    [
        (0.005, "1.0 % of a step is waiting for data; nothing else is timed"),
        (0.0, "Hardly any of a step is waiting for data; nothing else is timed"),
    ],
)
def test_a_loop_that_times_waiting_for_data_alone_leaves_the_rest_of_a_step_unknown_at_no_price(
    data: float, title: str
) -> None:
    """Waiting that rounds to zero is none: no timer that failed to measure."""
    text = "".join(LOGGER.format(epoch=0, turn=t, data=data) for t in range(20, 220, 20))
    run = run_of_text(text)
    assert run.findings[0].title == title
    assert run.findings[0].seconds_per_step is None
    assert run.repairs.empty


MMCV = (
    "2023-03-04 10:11:12,001 - mmdet - INFO - Epoch [1][{turn}/7330]\tlr: 1.0e-02, eta: 4:44:04, "
    "time: 0.500, data_time: 0.031, memory: 6836, loss: 0.4606\n"
)
TIMM = (
    "Train: 0 [{turn:4d}/5004 (  2%)]  Loss: 6.94 (6.94)  Time: 0.500s, 512.00/s  "
    "(0.500s, 512.00/s)  LR: 1.000e-05  Data: 0.031 (0.031)\n"
)


def test_waiting_that_is_printed_as_0_with_three_decimals_may_be_up_to_half_of_the_last_one() -> (
    None
):
    line = MMCV.replace("time: 0.500, data_time: 0.031", "time: 0.0042, data_time: 0.000")
    text = "".join(line.format(turn=turn) for turn in range(50, 550, 50))
    title = run_of_text(text).findings[0].title
    assert title == "At most 12 % of a step is waiting for data; nothing else is timed"


@pytest.mark.parametrize(
    ("line", "covers"),
    [(MMCV, 50), (MMENGINE.replace("/40]", "/7330]"), 10), (LOGGER, 20), (TIMM, 1)],
    ids=["means since the line before", "means of 10", "means of 20", "the turn of the line alone"],
)
def test_a_line_s_times_stand_for_as_many_turns_as_they_are_means_of(
    line: str, covers: int
) -> None:
    turns = range(50, 300, 50)
    steps = run_of_text(*(line.format(epoch=1, turn=t, data=0.031) for t in turns)).steps
    assert len(steps) == 5
    assert steps["covers"].eq(covers).all()
    assert steps["data"].eq(0.031).all()


def test_a_loop_s_lines_of_an_evaluation_are_no_steps() -> None:
    text = LOGGER.format(epoch=0, turn=20, data=0.125)
    text += "Test:  [ 0/50]  eta: 0:00:05  loss: 2.0 (2.0)  time: 0.1008  data: 0.0042\n"
    text += "Test: Epoch: [0]  [ 20/50]  eta: 0:00:05  loss: 2.0 (2.0)  time: 9.0  data: 0.0042\n"
    text += LOGGER.format(epoch=0, turn=40, data=0.125)
    run = run_of_text(text)
    assert run.steps["step"].to_list() == [20, 40]
    assert run.steps["seconds"].to_list() == [0.5, 0.5]


@pytest.mark.parametrize(
    "line",
    [
        "Epoch: [{0}]  [{1}/100]  eta: 0:10:00  lr: 0.0002  loss: 1.5 (1.6)  time: 0.5  data: 0\n",
        "INFO Train: [{0}/9][{1}/100]\teta 0:10:00 lr 0.1\ttime 0.5 (0.6)\tloss 1.5 (1.6)\n",
        "Train: {0} [ {1}/100 (4%)]  Loss: 6.5 (6.7)  Time: 0.5s, 9/s (1s, 8/s)  LR: 1  Data: 0\n",
        "Epoch: [{0}][ {1}/100]\tTime  0.500 ( 0.500)\tData  0.062 ( 0.062)\tLoss 1.7e+00 (2.0)\n",
    ],
)
def test_the_first_turn_of_an_epoch_which_starts_the_loader_stands_for_no_others(line: str) -> None:
    """The first of all is a step, too, where a line tells of its own turn alone."""
    turns = [(epoch, turn) for epoch in (0, 1) for turn in (0, 50, 75)]
    run = run_of_text(*(line.format(*turn) for turn in turns))
    first = [] if "  eta" in line else [0]
    assert run.steps["step"].to_list() == [*first, 50, 75, 150, 175]
    assert run.steps["seconds"].to_list() == [0.5] * len(run.steps)
    assert run.events["line"].nunique() == len(run.steps)


def test_batches_of_an_epoch_of_unknown_length_are_records_of_the_rank_that_prints_them() -> None:
    text = "".join(
        f"2023-03-04 10:1{batch}:12,345 DEBUG TRAIN Batch {epoch}/{batch}00 loss {rank + 1}.5 "
        f"loss_att 10.2 loss_ctc 16.7 lr 0.0003 rank {rank}\n"
        for epoch in (0, 1)
        for batch in range(3)
        for rank in (1, 0)
    )
    run = run_of_text(text)
    assert run.steps["loss"].to_list() == [1.5] * 6
    assert run.steps["segment"].unique().tolist() == [0]


def test_an_iteration_that_is_no_optimizer_step_is_not_read_as_one() -> None:
    line = (
        "  eta: 0:10:00  iter: {0}  global_step: {1}  speed: 2.5 images/sec  loss: 5.2 (6.2)  "
        "batch_time: 1.5000 (1.6250)  data_time: 0.1250 (0.2500)  max mem: 8192\n"
    )
    assert run_of_text(line.format(40, 40)).steps["seconds"].to_list() == [1.5]
    assert run_of_text(line.format(40, 10)).steps.empty


def test_the_parts_of_a_batch_of_speech_divide_it_on_each_rank() -> None:
    text = "".join(
        f"train, rank: {rank}, epoch: 0/50, step: {step}/9, total step: {step}, (loss_avg_rank: "
        f"{rank}.5), (lr: 1e-04), {{'data_load': '0.100', 'forward_time': '0.{3 + rank}00', "
        "'backward_time': '0.500', 'optim_time': '0.100', "
        f"'total_time': '{1 + 0.1 * rank:.1f}'}}, GPU, memory: usage: 4.0 GB, peak: 8.0 GB, "
        "cache: 9.0 GB, cache_peak: 9.5 GB\n"
        for step in range(1, 5)
        for rank in (1, 0)
    )
    run = run_of_text(text)
    assert run.steps["seconds"].to_list() == pytest.approx([1.05] * 4)
    assert run.steps["loss"].to_list() == [0.5] * 4
    assert run.steps["optimizer"].to_list() == pytest.approx([0.1] * 4)
    assert run.steps["mixed"].to_list() == pytest.approx([0.85] * 4)


def test_an_optimizer_step_of_speech_is_not_divided_by_what_its_batches_take() -> None:
    text = "".join(
        f"(trainer:793) INFO: {epoch}epoch:train:{batch + 1}-{batch + 90}batch: iter_time=0.003, "
        "forward_time=0.055, loss=77.5, backward_time=0.032, optim_step_time=0.003, "
        "optim0_lr0=1.7e-06, train_time=0.512\n"
        for epoch in (1, 2)
        for batch in (0, 90, 180)
    )
    run = run_of_text(text)
    assert run.steps["seconds"].to_list() == [0.512] * 6
    assert run.phases.empty
    assert run.steps["segment"].unique().tolist() == [0]


def test_scalars_of_mmengine_are_read_and_what_an_evaluation_adds_to_them_is_no_step() -> None:
    line = '{{"lr": 0.001, "data_time": 0.25, "loss": 2.5, "time": 1.5, "epoch": 1, "step": {0}}}\n'
    text = line.format(150) + '{"mIoU": 0.8, "data_time": 0.1, "time": 3.0, "step": 1}\n'
    run = run_of_text(text, line.format(300))
    assert run.steps["step"].to_list() == [150, 300]
    assert run.steps["lr"].to_list() == [0.001, 0.001]
    assert run.steps["data"].to_list() == [0.25, 0.25]


def test_batches_of_the_examples_of_aws_are_timed_by_their_stamps() -> None:
    line = (
        "2024-03-04 10:{0:02d}:00 I [train.py:103] Batch {0} Loss: 2.50000, "
        "Speed: 1.25 samples/sec, lr: 0.000125\n"
    )
    run = run_of_text(*(line.format(batch) for batch in range(10, 16)))
    assert run.steps["step"].to_list() == list(range(10, 16))
    assert run.steps["seconds"].dropna().to_list() == [60.0] * 5
    assert run.steps["samples_per_second"].to_list() == [1.25] * 6


def test_a_step_of_nanochat_is_timed_by_its_own_line_and_compiling_is_of_no_step() -> None:
    line = (
        "step {:05d}/12000 (0.{}%) | loss: 8.5 | lrm: 1.00 | dt: {}.50ms | tok/sec: 262,144 | x\n"
    )
    run = run_of_text(
        *(line.format(step, step, ms) for step, ms in ((0, 60_000), (1, 250), (9, 750)))
    )
    assert run.steps["step"].to_list() == [1, 9]
    assert run.steps["seconds"].to_list() == pytest.approx([0.2505, 0.7505])
    assert run.steps["tokens_per_second"].to_list() == [262144, 262144]
    assert run.meta["framework"] == "nanochat"


def test_a_line_of_domino_times_its_iteration_and_asks_for_no_timers_that_it_lacks() -> None:
    line = "iteration: {} | loss: 11.250 | iteration time (ms): {}.5000476837158 \n"
    run = run_of_text(*(line.format(n, 1400 + n) for n in (10, 20, 30)))
    assert run.steps["step"].to_list() == [10, 20, 30]
    assert run.steps["seconds"].to_list() == pytest.approx([1.4105, 1.4205, 1.4305], rel=1e-5)
    assert run.steps["covers"].to_list() == [1, 1, 1]
    assert run.meta["framework"] == "domino"
    assert [advice.setting for advice in run.findings[0].advice] == ["dsprof attach"]


def test_the_rate_of_a_step_of_dpo_is_that_of_the_update_it_names() -> None:
    line = (
        "train stats after {} examples: {{'rewards_train/chosen': '-0.01', 'loss/train': '0.6875', "
        "'examples_per_second': '{}.5', 'grad_norm': '2.25', 'counters/examples': {}, "
        "'counters/updates': {}}}\n"
    )
    run = run_of_text(*(line.format(n * 32, 50 + n, n * 32, n) for n in (1, 4)))
    assert run.steps["step"].to_list() == [1, 4]
    assert run.steps["samples_per_second"].to_list() == [51.5, 54.5]
    assert run.steps["loss"].to_list() == [0.6875, 0.6875]


def test_a_loop_of_sagemaker_is_none_of_deepspeed_s_by_a_warning_that_both_print() -> None:
    warning = "8 pytorch allocator cache flushes since last step. this is detrimental"
    step = "2024-03-04 10:11:{0} I [train.py:103] Batch {0} Loss: 2.5, Speed: 1.25 samples/sec, "
    steps = [f"{step.format(turn)}lr: 0.000125\n" for turn in (40, 41)]
    own = run_of_text(*steps, f"{warning} at the same time which also has a performance hit\n")
    assert own.meta["framework"] == "sagemaker"
    assert own.memory["count"].to_list() == [8]
    assert "deepspeed" not in "".join(own.events["pattern"].dropna())
    alone = run_of_text(f"[WARNING] [stage3.py:2160:step] {warning}\n")
    assert alone.meta["framework"] == "deepspeed"


def test_the_loss_that_hellodeepspeed_prints_is_that_of_the_step_that_has_just_ended() -> None:
    step = (
        "[2026-01-02 03:04:0{},260] [INFO] [logging.py:96:log_dist] [Rank 0] step={}, skipped=0\n"
    )
    loss = "2026-01-02 03:04:0{}.261 | INFO     | __main__:log_dist:53 - [Rank 0] Loss: {}\n"
    told = [(1, 10, 10.75), (2, 20, 10.5), (3, 30, 10.25)]
    run = run_of_text(*(step.format(at, n) + loss.format(at, value) for at, n, value in told))
    assert run.steps["step"].to_list() == [10, 20, 30]
    assert run.steps["loss"].to_list() == [10.75, 10.5, 10.25]


def test_a_script_that_numbers_its_turns_tells_of_losses_and_of_no_optimizer_steps() -> None:
    run = run_of_text(*(f"step:{turn}, loss:{4 - turn / 100}\n" for turn in (0, 10, 20)))
    losses = run.events[run.events["name"] == "loss"]
    assert losses["value"].to_list() == [4.0, 3.9, 3.8]
    assert losses["step"].isna().all()


def test_torchtunes_log_numbers_optimizer_steps() -> None:
    run = run_of_text(
        *(
            f"Step {step} | loss:2.04 class_loss:2.2 lr:3e-06 tokens_per_second_per_gpu:149.5 "
            "peak_memory_active:8.5 peak_memory_alloc:8.0 peak_memory_reserved:16.0 \n"
            for step in (1, 2, 3)
        )
    )
    assert run.steps["step"].to_list() == [1, 2, 3]
    assert run.steps["loss"].to_list() == [2.04] * 3
    assert run.memory["bytes"].max() == 16 << 30
    assert run.meta["framework"] == "torchtune"


def test_prime_rls_steps_count_from_0_and_state_how_long_they_took() -> None:
    run = run_of_text(
        *(
            f"02:40:52 SUCCESS Step {step} | Time: {2.5 if step else 45.0}s | Loss: 12.3125 | "
            "Grad. Norm: 28.4812 | LR: 1.00e-06 | Throughput: 3324 tokens/s | MFU: 1.0% | Peak "
            "Mem.: 5.2/23.7 GiB (22.1%) | Max Vio: 0.9891\n"
            for step in range(5)
        )
    )
    assert run.steps["step"].to_list() == [0, 1, 2, 3, 4]
    assert run.findings[0].title.startswith("A step takes 2.50 s")
    assert run.meta["framework"] == "prime-rl"


def test_mmengines_environment_tells_the_ranks_and_pytorch() -> None:
    run = run_of_text(
        "System environment:\n    sys.platform: linux\n    PyTorch: 2.1.2+cu121\n",
        "Runtime environment:\n    Distributed training: True\n    GPU number: 16\n",
        *(
            f"11/29 09:12:45 - mmengine - INFO - Iter(train) [{step}/90]  lr: 1.0000e-03  "
            "eta: 0:00:01  time: 0.1105  data_time: 0.0469  loss: 2.3059\n"
            for step in (10, 20, 30)
        ),
    )
    assert run.meta["world_size"] == 16
    assert run.meta["versions"] == {"torch": "2.1.2+cu121"}


def test_the_first_line_of_a_later_epoch_of_open_clip_is_of_one_step_that_starts_the_loader() -> (
    None
):
    """It stands beside means of a hundred steps: no spike that costs a third of the time."""
    line = (
        "2024-03-01,10:{minute:02d}:00 | INFO | Train Epoch: {epoch} [ {samples}/256000 ({part}%)] "
        "Data (t): 0.010 Batch (t): {time:.3f}, 512.0/s, 64.0/s/gpu LR: 0.000100 "
        "Logit Scale: 14.2500 Loss: {loss:.4f} (5.5000)\n"
    )
    lines = [
        line.format(
            minute=20 * epoch + part // 10,
            epoch=epoch,
            samples=256 + 2560 * part,
            part=part,
            time=0.5 if part else 5.0,
            loss=8 - epoch - part / 100,
        )
        for epoch in (0, 1, 2)
        for part in range(0, 100, 10)
    ]
    run = run_of_text(*lines)
    assert len(run.steps) == 28
    assert "step-spikes" not in {found.rule for found in run.findings}


def test_means_at_the_beginning_of_an_epoch_are_of_none_of_the_epoch_before() -> None:
    """The last 34 of each epoch have no line."""
    line = MMCV.replace("[1]", "[{epoch}]").replace("/7330", "/184")
    turns = [(epoch, turn) for epoch in (1, 2, 3) for turn in (50, 100, 150)]
    steps = run_of_text(*(line.format(epoch=e, turn=t) for e, t in turns)).steps
    assert steps["step"].to_list() == [50, 100, 150, 234, 284, 334, 418, 468, 518]
    assert steps["covers"].eq(50).all()
