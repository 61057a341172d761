"""Megatron without DeepSpeed is told its own options, never a key of DeepSpeed's JSON."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import dsprof.findings
from dsprof.events import Severity
from dsprof.findings import Advice, Finding
from dsprof.findings.finding import Evidence
from dsprof.findings.without_deepspeed import for_megatron, for_nemo, for_others, for_trainer
from tests.findings.plants import Row, one, problem, rules, run_of, steps
from tests.loaded import run_of_text

STAGE_0 = {"forward": 0.5, "pipe_recv_grad": 0.4, "pipe_send_output": 0.02}
MEGATRON = {"forward-compute": 0.2, "backward-compute": 0.3, "backward-recv": 0.4}


def megatron(rows: list[Row]) -> list[Row]:
    """As Megatron prints them: its timer lines look like DeepSpeed's."""
    timer = {"pattern": "deepspeed.timers", "timers": "megatron"}
    other = {"pattern": "megatron.iteration"}
    return [row | (timer if row["kind"] == "phase" else other) for row in rows]


def test_the_bubble_of_megatron_alone_is_told_with_its_options() -> None:
    found = one(run_of(megatron(steps(9, MEGATRON, 0.92))), "pipeline-bubble")
    assert [advice.setting for advice in found.advice] == [
        "micro-batches of a step (--micro-batch-size, --global-batch-size)",
        "--pipeline-model-parallel-size",
    ]


def test_what_is_reduced_once_a_step_is_spread_over_a_larger_batch_not_over_smaller_parts() -> None:
    phases = {"forward-compute": 0.2, "backward-compute": 0.3, "grads-all-reduce": 0.5}
    found = one(run_of(megatron(steps(9, phases))), "communication-bound")
    told = {advice.setting: advice for advice in found.advice}
    assert told["--global-batch-size"].to == "twice as large"
    assert "once per step" in told["--global-batch-size"].why
    assert "bubble" not in told["--global-batch-size"].why


def test_on_deepspeed_the_same_is_told_with_its_keys() -> None:
    found = one(run_of(steps(9, STAGE_0, 0.92)), "pipeline-bubble")
    assert found.advice[0].setting == "gradient_accumulation_steps"


def test_out_of_memory_names_the_options_that_spare_it() -> None:
    rows = [*steps(9, MEGATRON, 0.92), problem("oom", "CUDA out of memory", rank=0)]
    found = one(run_of(megatron(rows)), "oom")
    told = [advice.setting for advice in found.advice]
    assert told[0] == "--micro-batch-size"
    assert "--use-distributed-optimizer" in told
    assert not [setting for setting in told if "zero_optimization" in setting]


def settings() -> list[str]:
    """Every key of DeepSpeed's JSON that some rule advises."""
    code = "".join(
        path.read_text(encoding="utf-8")
        for path in Path(str(dsprof.findings.__file__)).parent.rglob("*.py")
        if path.name != "without_deepspeed.py"
    )
    keys = set(re.findall(r'"((?:zero_optimization|fp16|bf16|checkpoint)\.[a-z_.]+)"', code))
    plain = {
        "gradient_accumulation_steps", "gradient_clipping", "train_micro_batch_size_per_gpu",
    }  # fmt: skip
    return sorted(keys | plain)


def advising(setting: str) -> Finding:
    return Finding(
        "r",
        Severity.WARNING,
        "t",
        "s",
        evidence=(Evidence("", None, ""),),
        advice=(Advice(setting, "1", "2", "why"),),
        gain=(0.0, 1.0),
    )


@pytest.mark.parametrize("setting", settings())
def test_no_key_of_deepspeed_is_left_for_another_trainer(setting: str) -> None:
    said = for_others(advising(setting))
    assert setting not in [advice.setting for advice in said.advice]
    assert (said.gain is None) == (not said.advice)


def test_out_of_memory_of_verl_names_no_key_of_deepspeed() -> None:
    rows = [*steps(9, {"update_actor": 1.0}), problem("oom", "CUDA out of memory", rank=0)]
    turns = [row | {"pattern": "verl.step"} for row in rows]
    told = [advice.setting for advice in one(run_of(turns), "oom").advice]
    assert told == ["micro-batch", "activation checkpointing", "PYTORCH_CUDA_ALLOC_CONF"]


def test_micro_batches_of_plain_ddp_are_accumulated_in_its_own_terms() -> None:
    told = for_others(advising("gradient_accumulation_steps")).advice[0]
    assert (told.setting, told.now, told.to) == ("micro-batches of a step", "1", "2")
    assert "no_sync()" in told.why


@pytest.mark.parametrize("setting", settings())
def test_no_key_of_deepspeed_is_left(setting: str) -> None:
    said = for_megatron(advising(setting))
    assert all(advice.setting.startswith("--") for advice in said.advice)
    assert (said.gain is None) == (not said.advice)


@pytest.mark.parametrize(("seconds", "judged"), [(2.0, False), (4.0, True)])
def test_maxima_of_different_ranks_beyond_their_step_are_not_divided_into_shares(
    seconds: float, judged: bool
) -> None:
    """`(min, max) time across ranks`: who loads data for 1 s need not be who reduces for 1 s."""
    phases = {"forward-compute": 1.0, "backward-compute": 1.0, "grads-all-reduce": 0.9}
    rows = [
        row | {"pattern": "megatron.timers_minmax" if row["kind"] == "phase" else row["pattern"]}
        for row in megatron(steps(30, phases, seconds))
    ]
    found = rules(run_of(rows, world_size=16))
    assert ("communication-bound" in found) is judged
    assert ("untrustworthy-timers" in found) is not judged


@pytest.mark.parametrize("setting", settings())
def test_no_key_of_deepspeed_and_no_option_of_megatron_is_left_for_nemo(setting: str) -> None:
    said = for_nemo(advising(setting))
    told = [advice.setting for advice in said.advice]
    assert setting not in told
    assert not [one for one in told if one.startswith("--")]


def test_nemo_is_named_and_told_no_option_of_megatron() -> None:
    step = (
        "Training epoch 0, iteration {0}/99 | lr: 5e-06 | global_step: {0} | "
        "reduced_train_loss: 9.5 | train_step_timing in s: 27.5 | consumed_samples: 512\n"
    )
    run = run_of_text(*(step.format(n) for n in range(8, 12)))
    assert run.meta["framework"] == "nemo"
    found = one(run, "unaccounted-time")
    assert [advice.setting for advice in found.advice] == [
        "NsysCallback (NeMo 1: nsys_profile)", "dsprof attach",
    ]  # fmt: skip
    assert "Megatron" not in found.summary


def test_why_megatron_printed_no_step_is_told_with_its_option() -> None:
    setup = "    model-and-optimizer-setup {}: (1300.00, 1350.00)\n".format(22 * ".")
    found = one(run_of_text("(min, max) time across ranks (ms):\n", setup), "unaccounted-time")
    assert found.title.startswith("No line that is understood shows an optimizer step")
    assert "Megatron prints one line for every --log-interval steps" in found.summary
    assert "DeepSpeed" not in found.summary
    assert [(advice.setting, advice.to) for advice in found.advice] == [("--log-interval", "10")]


def test_parameters_that_megatron_works_out_are_the_model_s_and_its_theory_is_no_memory() -> None:
    run = run_of_text(
        "Number of parameters in transformer block in billions:  64.50\n",
        "Total number of parameters in billions: 64.75\n",
        "Theoretical memory footprints: weight and optimizer=35695.50 MB, total=122249.75 MB\n",
    )
    assert run.config["parameters"] == pytest.approx(64.75e9)
    assert set(run.events["kind"]) == {"config"}


@pytest.mark.parametrize(
    ("told", "now", "then"),
    [({}, "", "more than its 2 a rank"), ({"data_workers": 0}, "0", "2 to 4 a rank"),
     ({"data_workers": 4}, "4", "more, if the host has idle cores")],
)  # fmt: skip
def test_megatron_is_advised_its_own_option_of_workers_and_not_what_its_loaders_do_anyway(
    told: dict[str, Any], now: str, then: str
) -> None:
    phases = {"forward-compute": 0.2, "backward-compute": 0.3, "batch-generator": 0.1}
    found = one(run_of(megatron(steps(9, phases)), **told), "data-bound")
    assert [(one.setting, one.now, one.to) for one in found.advice[:1]] == [
        ("--num-workers", now, then)
    ]
    assert "DataLoader(pin_memory=...)" not in [one.setting for one in found.advice]


@pytest.mark.parametrize(
    ("setting", "alone", "told"),
    [("train_micro_batch_size_per_gpu", False, "per_device_train_batch_size"),
     ("DataLoader(num_workers=...)", True, "dataloader_num_workers"),
     ("save interval", False, "save_steps"),
     ("gradient_accumulation_steps", True, "gradient_accumulation_steps"),
     ("per_device_eval_batch_size", True, "per_device_eval_batch_size"),
     ("zero_optimization.overlap_comm", False, "zero_optimization.overlap_comm")],
)  # fmt: skip
def test_users_of_hugging_face_s_trainer_are_told_its_arguments(
    setting: str, alone: bool, told: str
) -> None:
    said = for_trainer(advising(setting), alone=alone)
    assert [advice.setting for advice in said.advice] == [told]


@pytest.mark.parametrize(
    ("key", "now", "told"),
    [
        ("gradient_clipping", "unset", ("gradient_clipping", "unset")),
        ("gradient_clipping", "5.0", ("max_grad_norm", "5.0")),
        ("bf16.enabled", "unset (false)", ("bf16", "")),
        ("zero_optimization.stage", "unset (0)", ("zero_optimization.stage", "unset (0)")),
    ],
)
def test_what_the_json_lacks_is_not_told_as_unset_of_an_argument(
    key: str, now: str, told: tuple[str, str]
) -> None:
    said = replace(advising(key), advice=(Advice(key, now, "1.0", "why"),))
    [advice] = for_trainer(said, alone=False).advice
    assert (advice.setting, advice.now) == told


@pytest.mark.parametrize("by", [for_megatron, for_others, partial(for_trainer, alone=True)])
def test_a_job_in_fp32_is_not_told_that_it_has_fp16(by: Callable[[Finding], Finding]) -> None:
    [advice] = by(advising("bf16.enabled")).advice
    assert "instead" not in advice.to


def test_without_deepspeed_the_trainer_is_told_no_key_of_its_json() -> None:
    assert for_trainer(advising("zero_optimization.overlap_comm"), alone=True).advice == ()


@pytest.mark.parametrize(
    ("told", "setting"),
    [({"trainer": "huggingface"}, "dataloader_num_workers"), ({}, "DataLoader(num_workers=...)")],
)
def test_slow_input_of_a_trainer_is_told_with_its_argument(
    told: dict[str, Any], setting: str
) -> None:
    run = run_of(steps(9, {"forward": 0.2, "backward": 0.2, "data": 0.4}), **told)
    assert one(run, "data-bound").advice[0].setting == setting


def test_megatron_before_its_second_version_has_but_one_size_of_a_batch() -> None:
    """As of DeepSpeed's issue 650; --global-batch-size came with 2.0."""
    found = dsprof.findings.findings_of(
        run_of_text(
            " iteration       50/  320000 | elapsed time per iteration (ms): 42460.5 | learning "
            "rate 1.500E-04 | lm loss 7.123456E+00 | loss scale 65536.0 |\n"
            "time (ms) | forward: 207.71 | backward: 3509.10 | optimizer: 38738.77 | "
            "batch generator: 4.65 | data loader: 0.18\n"
        )
    )[0]
    assert found.rule == "optimizer-bound"
    assert [advice[:3] for advice in found.advice] == [("--batch-size", "", "twice as large")]
    sharded = for_megatron(advising("zero_optimization.overlap_comm"), first=True)
    assert sharded.advice == ()
