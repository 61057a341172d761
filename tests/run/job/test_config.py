"""Which of several words about a setting counts."""

from __future__ import annotations

import pandas as pd
import pytest

from dsprof.run import from_events
from tests.loaded import run_of_text


def _arguments(batch: int, micro_batches: int, stage: int) -> str:
    return (
        f"Namespace(per_device_train_batch_size={batch}, "
        f"gradient_accumulation_steps={micro_batches}, zero_stage={stage}, seed=1)\n"
    )


_TRAINS, _EVALUATES = _arguments(4, 8, 2), _arguments(16, 1, 0)
_NAMES = ("micro_batch_size", "gradient_accumulation_steps", "zero_stage")
_STARTS = (
    "[2026-03-04 09:12:33,073] [INFO] [logging.py:96:log_dist] [Rank -1] DeepSpeed info: "
    "version=0.14.0, git-hash=unknown, git-branch=unknown\n"
)


_COMMAND = (
    "[2026-03-04 09:12:30,073] [INFO] [runner.py:607:main] cmd = /opt/venv/bin/python3 -u -m "
    "deepspeed.launcher.launch --master_port=29500 main.py --per_device_train_batch_size 4 "
    "--gradient_accumulation_steps 8 --zero_stage 2 --deepspeed\n"
)


_JSON = """[2026-03-04 09:12:34,073] [INFO] [config.py:1007:print_user_config]   json = {
    "gradient_accumulation_steps": 6,
    "train_micro_batch_size_per_gpu": "auto",
    "zero_optimization": {"stage": 3}
}
"""


def _steps(first: int, last: int) -> str:
    return "".join(
        f"{{'loss': 2.5, 'learning_rate': 1e-05, 'epoch': 0.{step}, 'step': {step}}}\n"
        for step in range(first, last + 1)
    )


def _engine(micro_batches: int) -> str:
    head = "[2026-03-04 09:12:34,073] [INFO] [config.py:1000:print]   "
    return (
        f"{head}train_micro_batch_size_per_gpu  2\n"
        f"{head}gradient_accumulation_steps .. {micro_batches}\n"
        f"{head}zero_optimization_stage ...... 3\n"
    )


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([_TRAINS, _steps(1, 4)], (4, 8, 2)),
        ([_TRAINS, _steps(1, 4), _EVALUATES], (4, 8, 2)),
        ([_TRAINS, _steps(1, 4), _EVALUATES, _steps(5, 8)], (4, 8, 2)),
        ([_TRAINS, _engine(5), _steps(1, 4), _EVALUATES], (2, 5, 3)),
        ([_TRAINS, _JSON, _steps(1, 4)], (4, 6, 3)),
        ([_engine(5), _TRAINS, _steps(1, 4)], (2, 5, 3)),
        ([_STARTS, _EVALUATES, _steps(1, 4), _TRAINS, _STARTS, _steps(1, 4)], (4, 8, 2)),
    ],
)
def test_arguments_count_less_than_the_engines_word_and_those_of_an_evaluation_not_at_all(
    lines: list[str], expected: tuple[int, int, int]
) -> None:
    config = run_of_text(*lines).config
    assert tuple(config[name] for name in _NAMES) == expected


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([_COMMAND, _steps(1, 4)], (4, 8, 2)),
        ([_COMMAND, _engine(5), _steps(1, 4)], (2, 5, 3)),
        ([_COMMAND, _JSON, _steps(1, 4)], (4, 6, 3)),
    ],
)
def test_what_the_launcher_s_command_tells_the_script_holds_until_the_engine_speaks(
    lines: list[str], expected: tuple[int, int, int]
) -> None:
    config = run_of_text(*lines).config
    assert tuple(config[name] for name in _NAMES) == expected


def test_settings_that_python_printed_are_read_as_json_is() -> None:
    zero = """{'stage': 2, 'comment': 'it\\'s "so"', 'offload_optimizer': None}"""
    rest = "'bf16': {'enabled': True}, 'steps_per_print': inf, 'gradient_accumulation_steps': 10"
    line = f"ds_config: {{'zero_optimization': {zero}, {rest}, 'train_batch_size': 'auto'}}\n"
    config = run_of_text(line, _steps(1, 4)).config
    assert config["zero_stage"] == 2
    assert config["dtype"] == "bf16"
    assert config["gradient_accumulation_steps"] == 10
    assert "train_batch_size" not in config
    inside = config["ds_config"]["zero_optimization"]
    assert inside == {"stage": 2, "comment": 'it\'s "so"', "offload_optimizer": None}
    assert config["ds_config"]["steps_per_print"] == "inf"


def test_what_accelerate_says_of_the_settings_holds_until_the_engine_prints_them() -> None:
    zero = "'zero_optimization': {'stage': 2}"
    printed = f"ds_config: {{'train_micro_batch_size_per_gpu': 'auto', {zero}}}\n"
    config = run_of_text("Num processes: 2\n", printed).config
    assert config["zero_stage"] == 2
    assert "micro_batch_size" not in config
    assert run_of_text(printed, _STARTS, _JSON).config["zero_stage"] == 3


@pytest.mark.parametrize("said", ["{'zero_optimization': {'stage': 3", "{'a': <object>}", "{'" * 9])
def test_settings_that_cannot_be_read_are_not_known(said: str) -> None:
    line = f"ds_config: {said}, 'zero_optimization': {{'stage': f(2)}}}}\n"
    assert "zero_stage" not in run_of_text(line, _steps(1, 4)).config


def test_what_accelerate_does_not_share_by_deepspeed_is_told_none_of_its_settings() -> None:
    imported = "[2024-11-23 13:17:04,905] [INFO] [real_accelerator.py:219:get_accelerator] "
    imported += "Setting ds_accelerator to cuda (auto detect)\n"
    kind = f"{imported}Distributed environment: DistributedType.{{}}  Backend: nccl\n"
    for name, advised in (("MULTI_GPU", False), ("DEEPSPEED", True)):
        run = run_of_text(kind.format(name), _steps(1, 4))
        settings = [advice.setting for one in run.findings for advice in one.advice]
        assert ("wall_clock_breakdown" in settings) is advised


def test_a_job_that_only_imports_deepspeed_is_not_said_to_be_trained_by_it() -> None:
    head = "[2024-11-23 13:17:04,905] [INFO] [real_accelerator.py:219:get_accelerator] "
    imported = f"{head}Setting ds_accelerator to cuda (auto detect)\n"
    run = run_of_text(imported, "Epoch [1/5], Step [100/600], Loss: 2.31\n")
    assert run.meta.get("framework") is None
    assert run.findings[0].advice[0].setting == "dsprof attach"


def test_settings_that_nothing_closes_are_looked_at_once() -> None:
    told = pd.DataFrame(
        {"kind": ["config"], "name": ["ds_config"], "text": ["{'" + "\\'" * 100_000]}
    )
    assert from_events(told).config["ds_config"] == {}


@pytest.mark.parametrize(("stage", "kept"), [(2, None), (3, "cpu")])
def test_a_stage_that_leaves_each_rank_all_parameters_offloads_none(
    stage: int, kept: str | None
) -> None:
    own = (
        "[2025-08-14 11:13:13,807] [INFO] [config.py:1004:print_user_config]   json = {\n"
        '    "zero_optimization": {\n'
        f'        "stage": {stage}, \n'
        '        "offload_param": {\n'
        '            "device": "cpu", \n'
        '            "pin_memory": true\n'
        "        }, \n"
        '        "offload_optimizer": {\n'
        '            "device": "cpu"\n'
        "        }\n"
        "    }\n"
        "}\n"
    )
    config = run_of_text(own, _steps(1, 4)).config
    assert config["offload_optimizer"] == "cpu"
    assert config.get("offload_param") == kept


@pytest.mark.parametrize(("key", "name"), [("", "optimizer"), ("_params", "param")])
def test_offloading_is_known_from_the_json_of_2020(key: str, name: str) -> None:
    own = (
        "[2021-12-14 07:21:48,894] [INFO] [config.py:1061:print]   json = {\n"
        '    "zero_optimization": {\n'
        '        "stage": 3, \n'
        f'        "cpu_offload{key}": {{}}\n'
        "    }\n"
        "}\n"
    )
    for told, known in (("true", "cpu"), ("false", None)):
        config = run_of_text(own.replace("{}", told), _steps(1, 4)).config
        assert config.get(f"offload_{name}") == known


def test_an_optimizer_of_zero_2_says_itself_that_it_is_offloaded() -> None:
    head = "[2024-03-20 16:16:02,355] [INFO] [stage_1_and_2.py:109:__init__] CPU Offload: "
    assert run_of_text(f"{head}True\n", _steps(1, 4)).config["offload_optimizer"] == "cpu"
    assert "offload_optimizer" not in run_of_text(f"{head}False\n", _steps(1, 4)).config
