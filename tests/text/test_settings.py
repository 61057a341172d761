"""What is said of settings that differ: values, not dumps; what a job was, not where it ran."""

from __future__ import annotations

from rich.console import Group

from dsprof.logs.columns.measures import LONGEST_TEXT
from dsprof.text.settings import Settings, settings
from tests.text.said import rendered

LAUNCHED = (
    "/opt/venv/bin/python -u -m deepspeed.launcher.launch --world_info=eyJhIjogWzBdfQ== "
    "--master_port {port} {folder}/train.py --out runs/{day} --stage {stage}"
)


def said(differing: Settings) -> str:
    return rendered(Group(*settings(differing)), width=80)


def launched(folder: str, day: str, stage: int, port: int = 29500) -> str:
    return LAUNCHED.format(folder=folder, day=day, stage=stage, port=port)


def test_of_two_commands_the_options_that_differ_are_told() -> None:
    text = said({"launch_command": (launched("/a", "x", 2), launched("/a", "x", 3) + " --offload")})
    assert [line.split() for line in text.splitlines()[1:]] == [
        ["--offload", "not", "given", "→", "given"],
        ["--stage", "2", "→", "3"],
    ]


def test_commands_that_differ_in_where_and_when_they_ran_say_nothing() -> None:
    before = launched("/home/one", "2026-01-02_10-30", 2)
    after = launched("/home/two", "2026-01-03_08-15", 2, port=29501)
    assert settings({"launch_command": (before, after)}) == []


def test_another_script_is_told_by_its_name() -> None:
    before = launched("/a", "x", 2)
    after = before.replace("/a/train.py", "/b/tune.py")
    text = said({"launch_command": (before, after)})
    assert text.splitlines()[1:] == ["script  train.py → tune.py"]


def test_of_two_dumps_of_settings_those_are_told_that_differ() -> None:
    text = said({"timers": ("enabled=True synchronized=True", "enabled=True synchronized=False")})
    assert text.splitlines()[1:] == ["timers.synchronized  True → False"]


def test_a_setting_that_a_newer_version_added_is_no_difference() -> None:
    assert settings({"timers": ("enabled=True a=1", "enabled=True a=1 b=2")}) == []


def test_what_is_told_by_its_own_name_is_not_told_of_the_dump_again() -> None:
    text = said(
        {"zero_optimization.stage": (2, 3), "zero_config": ("stage=2 cpu=None", "stage=3 cpu=None")}
    )
    assert text.splitlines()[1:] == ["zero_optimization.stage  2 → 3"]


def test_the_end_of_a_dump_that_was_cut_is_no_difference() -> None:
    full = "a=1 b=" + "0" * LONGEST_TEXT
    assert settings({"dump": (full[:LONGEST_TEXT], "a=1 b=0")}) == []


def test_the_same_setting_under_several_names_is_told_once_by_the_key_to_write() -> None:
    text = said(
        {
            "launch_command": (launched("/a", "x", 1), launched("/a", "x", 2)),
            "zero_config": ("stage=1 cpu=None", "stage=2 cpu=None"),
            "zero_enabled": ("False", "True"),
            "zero_optimization.stage": (1, 2),
            "zero_stage": (1, 2),
        }
    )
    assert text.splitlines()[1:] == ["zero_optimization.stage  1 → 2"]


def test_a_setting_without_the_jobs_json_keeps_its_own_name() -> None:
    text = said(
        {"launch_command": (launched("/a", "x", 1), launched("/a", "x", 2)), "zero_stage": (1, 2)}
    )
    assert text.splitlines()[1:] == ["zero_stage  1 → 2"]
