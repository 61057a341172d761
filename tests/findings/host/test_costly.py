"""Settings of which PyTorch says itself that they cost time."""

from __future__ import annotations

import pytest

from dsprof.events import Severity
from tests.findings.plants import alone
from tests.loaded import run_of_text

_LOSSES = "".join(
    f"{{'loss': 2.{n}, 'learning_rate': 1e-05, 'epoch': 0.{n}}}\n" for n in range(1, 9)
)
_WARNINGS = {
    "One process drives several GPUs: nn.DataParallel": (
        "Was asked to gather along dimension 0, but all input tensors were scalars; will instead "
        "unsqueeze and return a vector."
    ),
    "DDP looks for unused parameters in each step, and finds none": (
        "[W reducer.cpp:1251] Warning: find_unused_parameters=True was specified in DDP "
        "constructor, but did not find any unused parameters in the forward pass."
    ),
    "Gradients lie otherwise in memory than DDP's buckets": (
        "UserWarning: Grad strides do not match bucket view strides. This may indicate grad was "
        "not created according to the gradient layout contract, or that the param's strides changed"
    ),
    "mmengine sleeps for two seconds whenever its data loader ends": (
        "03/04 10:11:12 - mmengine - WARNING - Reach the end of the dataloader, it will be "
        "restarted and continue to iterate. It is recommended to use"
    ),
    "A data loader has 12 workers, on CPUs for 8 at most": (
        "UserWarning: This DataLoader will create 12 worker processes in total. Our suggested max "
        "number of worker in current system is 8, which is smaller"
    ),
}


@pytest.mark.parametrize("title", _WARNINGS)
def test_a_warning_of_pytorchs_is_a_note_and_no_verdict(title: str) -> None:
    run = run_of_text(_WARNINGS[title] + "\n" + _LOSSES)
    found = alone(run, "costly-setting")
    assert found.title == title
    assert found.severity is Severity.INFO
    assert found.gain is None
    assert run.findings[0].rule != "costly-setting"


def test_where_no_rule_can_judge_a_note_stands_behind_that() -> None:
    """One timed step is a warm-up, of which nothing is said."""
    step = (
        "Train: 0 [   0/1251 (  0%)]  Loss: 6.97 (6.97)  Time: 1.500s, 170.00/s  "
        "(1.500s, 170.00/s)  LR: 1.000e-06  Data: 1.200 (1.200)\n"
    )
    found = run_of_text(list(_WARNINGS.values())[-1] + "\n" + step).findings
    assert [one.rule for one in found] == ["unaccounted-time", "costly-setting"]
    assert found[0].title.startswith("Too few steps to judge")


def test_a_model_in_ddp_is_not_deepspeeds() -> None:
    launched = (
        "[2022-07-26 22:43:03,683] [INFO] [runner.py:457:main] cmd = /usr/bin/python3 -u -m "
        "deepspeed.launcher.launch --master_addr=10.0.0.1 --master_port=29500 train.py\n"
    )
    warned = list(_WARNINGS.values())[1] + "\n"
    assert "wall_clock_breakdown" in str(run_of_text(launched + _LOSSES).findings)
    assert "wall_clock_breakdown" not in str(run_of_text(launched + warned + _LOSSES).findings)


def test_of_float32_nothing_is_said_where_a_job_computes_with_16_bits() -> None:
    warned = (
        "You are using a CUDA device ('NVIDIA A100') that has Tensor Cores. To properly utilize "
        "them, you should set `torch.set_float32_matmul_precision('medium' | 'high')`\n"
    )
    half = "Using bfloat16 Automatic Mixed Precision (AMP)\n"
    alone(run_of_text(warned + _LOSSES), "costly-setting")
    rules = [one.rule for one in run_of_text(half + warned + _LOSSES).findings]
    assert "costly-setting" not in rules


def test_where_mmengine_sleeps_at_the_end_of_a_loader_more_workers_are_not_advised() -> None:
    lines = [
        f"03/04 10:11:{step:02} - mmengine - INFO - Iter(train) [{step:2}/40]  lr: 1.0e-02  "
        f"eta: 0:00:09  time: 0.2{step:02}0  data_time: 0.1000  loss: 2.3{step:02}\n"
        for step in range(10, 50, 10)
    ]
    warning = next(said for title, said in _WARNINGS.items() if "sleeps" in title)
    found = alone(run_of_text(*lines, warning + "\n"), "data-bound")
    assert found.advice[0].to == "mmengine's InfiniteSampler"
    assert "num_workers" not in str(found.advice)
    assert "num_workers" in str(alone(run_of_text(*lines), "data-bound").advice)
