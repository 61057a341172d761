"""What the Trainer and what stands on it print."""

from __future__ import annotations

import pytest

from dsprof.findings.unknown.last_bar import bar
from dsprof.text.stated import training
from tests.findings.plants import one
from tests.loaded import run_of_text
from tests.logs.reading import rows

TABLE = (
    "***** train metrics *****\n",
    "  epoch                    =        2.0\n",
    "  train_loss               =     1.5000\n",
    "  train_runtime            = 1:10:00.25\n",
    "  train_samples_per_second =      6.500\n",
    "  train_steps_per_second   =      0.250\n",
)


def test_the_summary_is_read_where_only_its_table_is_left() -> None:
    told = training(run_of_text(*TABLE))
    assert told is not None
    assert (told.seconds, told.samples_per_second, told.steps_per_second) == (4200, 6.5, 0.25)


def test_ms_swift_under_megatron_is_no_trainer_and_is_given_no_keys_of_deepspeed() -> None:
    own = "{{'loss': 0.5, '{}': '{}/90', 'elapsed_time': '{}s', 'memory(GiB)': 40.25}}\n"
    megatron = run_of_text(*(own.format("iteration", step, step * 9) for step in (1, 2, 3)))
    trainer = run_of_text(*(own.format("global_step/max_steps", n, n * 9) for n in (1, 2, 3)))
    assert megatron.meta["framework"] == "megatron-swift"
    assert trainer.meta["framework"] == "huggingface"
    asked = [[advice.setting for advice in run.findings[0].advice] for run in (megatron, trainer)]
    assert ["wall_clock_breakdown" in settings for settings in asked] == [False, True]


def test_what_the_table_of_optimum_habana_says_of_memory_is_judged() -> None:
    memory = (
        "  max_memory_allocated (GB)   =       94.41\n",
        "  memory_allocated (GB)       =       76.74\n",
        "  total_memory_available (GB) =       94.62\n",
    )
    found = one(run_of_text(*TABLE[:2], *memory, *TABLE[2:]), "memory-pressure")
    assert found.title == "GPU memory is 99.7 % full"


def test_a_table_of_an_evaluation_is_no_summary_of_the_training() -> None:
    table = "".join(TABLE).replace("train", "eval").encode()
    assert not rows(table, name="train_runtime")


def test_a_step_that_a_dict_names_is_its_own() -> None:
    text = b"".join(b"{'loss': 1.5, 'epoch': 0.5, 'step': %d}\n" % n for n in (9600, 9700))
    assert [row["step"] for row in rows(text, name="loss")] == [9600, 9700]


def test_an_evaluation_without_a_loss_is_left_out_of_the_time_of_steps() -> None:
    drawn = "%3d%%|###  | %d/400 [%s<01:00,  1.00s/it]"
    dicts = [
        drawn % (25, 100, "01:40") + "{'loss': 1.5, 'epoch': 1.0}\n",
        "{'eval_accuracy': 0.5, 'eval_runtime': 20.0, 'epoch': 1.0}\n",
        drawn % (50, 200, "03:40") + "{'loss': 1.25, 'epoch': 2.0}\n",
    ]
    assert run_of_text(*dicts).steps["seconds"].dropna().tolist() == [1.0]


def test_a_bar_without_room_to_be_drawn_numbers_and_times_steps() -> None:
    """tqdm leaves out what it draws where it knows of no columns, as in Colab."""
    text = "".join(
        f" {n // 10}% {n}/2000 [{n // 10}:00<99:00:00,  6.00s/it]{{'loss': 1.5, 'epoch': 0.1}}\n"
        for n in (100, 200, 300)
    )
    steps = run_of_text(text).steps
    assert steps["step"].tolist() == [100, 200, 300]
    assert steps["seconds"].dropna().tolist() == [6.0, 6.0]


def test_what_peft_tells_names_no_trainer() -> None:
    told = "trainable params: 20,000 || all params: 8,000,000 || trainable%: 0.2500\n"
    assert "framework" not in run_of_text(told + "loss: 1.5\n").meta


def test_a_bar_says_nothing_of_late_turns_whose_rate_it_rounds_away() -> None:
    """Lightning's says turns a second, however slow: 128 s a turn are 0.01 of them."""
    told = bar(run_of_text("Epoch 0:   3%|#   | 8/260 [17:04<8:57:59,  0.01it/s, v_num=3]\n"))
    assert told is not None
    assert (told.position, told.seconds, told.lately) == (8, 1024, None)


def test_turns_of_ppo_are_numbered_by_the_bar_behind_them() -> None:
    """TRL's PPOTrainer logs a turn before its bar moves."""
    bar = "%3d%%|#   | %d/100 [00:%02d<09:00,  1.50s/it]\n"
    text = "".join(
        bar % (n, n, n)
        + f"{{'eps': 3, 'objective/kl': 0.25, 'loss/policy_avg': -0.5, 'epoch': {(n + 1) / 50}}}\n"
        for n in range(4)
    )
    told = rows((text + bar % (4, 4, 4)).encode(), name="loss")
    assert [row["step"] for row in told] == [1, 2, 3, 4]


def test_bars_of_kohyas_scripts_time_optimizer_steps() -> None:
    bar = "steps: %3d%%|#   | %d/1500 [%s<5:00:00, 10.00s/it, avr_loss=0.125]\r"
    head = "  total optimization steps / 学習ステップ数: 1500\n"
    told = run_of_text(head, *(bar % (n, 15 * n, f"{n}:00") for n in (2, 4, 6)), "\n").steps
    assert told["step"].tolist() == [60, 90]
    assert told["seconds"].tolist() == [4.0, 4.0]


def test_a_notebook_s_table_tells_losses_and_its_bar_the_time_of_training() -> None:
    run = run_of_text(
        " [80/80 02:02, Epoch 0/1]\n",
        "Step\tTraining Loss\n10\t2.500000\n20\t1.750000\nTrainOutput(global_step=80)\n",
    )
    assert run.steps["step"].tolist() == [10, 20]
    assert run.steps["loss"].tolist() == [2.5, 1.75]
    told = bar(run)
    assert told is not None
    assert (told.position, told.seconds, told.counts_steps) == (80, 122, True)


@pytest.mark.parametrize(
    ("bar", "seconds", "way"), [(True, 240.0, "bar"), (False, 200.25, "logged")]
)
def test_forwards_and_backwards_that_trl_times_stand_for_steps_that_no_bar_times(
    seconds: float, way: str, *, bar: bool
) -> None:
    text = "  Total optimization steps = 100\n"
    for step in range(1, 9):
        clock = f"{240 * step // 60}:{240 * step % 60:02}"
        text += f" {step}%|#   | {step}/100 [{clock}<6:00:00, 240.00s/it]\n" * bar
        text += f"{{'loss': 0.5, 'reward': {step / 8}, 'step_time': 200.25, 'epoch': {step}}}\n"
    steps = run_of_text(text).steps
    assert (steps["seconds"].dropna() == seconds).all()
    assert set(steps["seconds_from"].dropna()) == {way}
