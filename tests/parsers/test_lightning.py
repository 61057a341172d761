"""Lines of Lightning, whatever strategy it trains with."""

from __future__ import annotations

import pytest

from tests.findings.plants import alone
from tests.loaded import run_of_text

_FEW = (
    "/opt/connectors/data_connector.py:424: The '{}_dataloader' does not have many workers which "
    "may be a bottleneck. Consider increasing the value of the `num_workers` argument` to "
    "`num_workers=15` in the `DataLoader` to improve performance.\n"
)
_BAR = "Epoch 0:  50%|#####     | 50/100 [05:00<05:00,  6.00s/it, v_num=3, train_loss=0.5]\n"
_RANKS = "Initializing distributed: GLOBAL_RANK: 0, MEMBER: 1/4\n"


def test_of_lightning_nobody_is_advised_to_set_what_is_deepspeeds_or_the_trainers() -> None:
    run = run_of_text(_RANKS + _FEW.format("train") + _BAR)
    found = alone(run, "unaccounted-time")
    assert [one.setting for one in found.advice] == ["DataLoader(num_workers=...)", "dsprof attach"]
    assert found.advice[0].to == "up to 15, as Lightning suggests"
    assert run.meta["framework"] == "lightning"
    assert run.meta["world_size"] == 4


def test_few_workers_of_a_validation_are_no_advice() -> None:
    found = alone(run_of_text(_RANKS + _FEW.format("val") + _BAR), "unaccounted-time")
    assert [one.setting for one in found.advice] == ["dsprof attach"]


@pytest.mark.parametrize(
    "told",
    [
        "initializing deepspeed distributed: GLOBAL_RANK: 0, MEMBER: 1/2\n",
        "Enabling DeepSpeed BF16. Model parameters and inputs will be cast to `bfloat16`.\n",
    ],
)
def test_deepspeed_under_lightning_is_asked_for_its_steps_and_timers(told: str) -> None:
    settings = [one.setting for one in alone(run_of_text(told + _BAR), "unaccounted-time").advice]
    assert settings == ["steps_per_print", "wall_clock_breakdown"]


def test_a_bar_without_an_end_says_how_far_it_came() -> None:
    bar = "Epoch 0: : 20it [11:16, 33.80s/it, v_num=0, train_loss=1.160]\n"
    found = alone(run_of_text(_RANKS + bar), "unaccounted-time")
    assert found.title.endswith("its progress bar stands at 20 after 11 min 16 s")


def test_a_dict_that_a_script_prints_is_deepspeeds_configuration() -> None:
    told = (
        "{'bf16': {'enabled': True}, 'zero_optimization': {'stage': 3, 'offload_optimizer': "
        "{'device': 'cpu'}}, 'gradient_accumulation_steps': 2, 'train_micro_batch_size_per_gpu': 1}"
    )
    run = run_of_text(f"(RayTrainWorker pid=17) DeepSpeed Configs:  {told}\n" + _BAR)
    assert run.meta["zero_stage"] == 3
    assert run.config["offload_optimizer"] == "cpu"
    assert run.meta["gradient_accumulation_steps"] == 2


def test_the_summary_of_the_model_shows_lightning_and_its_parameters() -> None:
    run = run_of_text("0         Non-trainable params\n79.1 M    Total params\n" + _BAR)
    assert run.meta["framework"] == "lightning"
    assert run.meta["parameters"] == 79_100_000
    assert "logging_steps" not in str(alone(run, "unaccounted-time"))


def test_a_trainer_that_is_built_on_lightning_is_named_itself() -> None:
    step = (
        "Training epoch 0, iteration 1/99 | lr: 3e-05 | global_step: 1 | reduced_train_loss: 1.25\n"
    )
    assert run_of_text(_RANKS * 5 + step).meta["framework"] == "nemo"


def test_bars_of_rwkv_count_the_steps_of_all_epochs() -> None:
    banner = "# RWKV-7 BF16 on 1x4 GPU, bsz 1x4x8=32, deepspeed_stage_2 with grad_cp\n"
    bars = (
        f"Epoch {epoch}:  10%|# | {n}/40 [{n // 3}:{20 * (n % 3):02d}<1:00:00, 20.0s/it, loss=2.5, "
        "v_num=, REAL it/s=0.05, Kt/s=1.5, lr=1e-5]\n"
        for epoch in range(3)
        for n in range(1, 41)
    )
    run = run_of_text(banner + _RANKS + "".join(bars))
    assert run.meta["framework"] == "lightning"
    assert run.meta["zero_stage"] == 2
    assert run.meta["micro_batch_size"] == 8
    assert run.meta["train_batch_size"] == 32
    timed = run.steps.dropna(subset="seconds")
    assert set(timed["seconds"]) == {20.0}
    assert (len(timed), timed["step"].max()) == (117, 120)
    assert alone(run, "unaccounted-time").title.startswith("A step takes 20.0 s")


def test_workers_are_not_advised_where_they_would_take_the_cpus_that_train() -> None:
    nothing = "dataloader.py:668: UserWarning: 'pin_memory' argument is set as true but no "
    nothing += "accelerator is found, then device pinned memory won't be used.\n"
    found = alone(run_of_text(nothing + _FEW.format("train") + _BAR), "unaccounted-time")
    assert [one.setting for one in found.advice] == ["dsprof attach"]
