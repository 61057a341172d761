"""Programs that a shell did not find, where nothing ran or where its exit code says so."""

from __future__ import annotations

import pytest

from tests.findings.plants import alone, rules
from tests.loaded import run_of_text

MISSED = "run.sh: line 12: torchrun: command not found\n"
ENDED = "srun: error: node7: task 0: Exited with exit code {}\n"
STEP = "[2026-03-04 10:11:12,001] [INFO] [logging.py:128:log_dist] [Rank 0] step={}, skipped=0, "


def test_the_exit_code_of_a_shell_that_found_no_program_is_told_with_that_program() -> None:
    found = alone(run_of_text(MISSED, ENDED.format(127)), "rank-died")
    assert found.title == "A process on node7 exited with an error: task 0: exit code 127"
    assert found.summary.endswith("where it does not find a program: torchrun.")
    assert [evidence.line for evidence in found.evidence] == [2, 1]
    assert [advice.setting for advice in found.advice] == ["PATH on that host"]
    other = alone(run_of_text(ENDED.format(127)), "rank-died")
    assert other.summary.endswith("where it does not find a program.")


@pytest.mark.parametrize("code", [1, 126])
def test_another_exit_code_is_not_of_the_program(code: int) -> None:
    found = alone(run_of_text(MISSED, ENDED.format(code)), "rank-died")
    assert "does not find" not in found.summary
    assert not found.advice


def test_a_program_that_another_host_missed_is_not_told() -> None:
    lines = ("worker-1: bash: nvidia-smi: command not found\n",)
    ended = "pdsh@login: worker-2: ssh exited with exit code 127\n"
    assert "nvidia-smi" not in alone(run_of_text(*lines, ended), "rank-died").summary


def test_a_launcher_that_was_not_found_is_the_failure_where_nothing_ran() -> None:
    found = alone(run_of_text("worker-2: bash: torchrun: command not found\n"), "rank-died")
    assert found.title == "A shell did not find torchrun on worker-2"
    assert found.confidence == "medium"
    steps = [STEP.format(n) + "lr=[1e-05], mom=[(0.9, 0.95)]\n" for n in (10, 20)]
    assert "rank-died" not in rules(run_of_text(MISSED, *steps))
    assert "rank-died" not in rules(run_of_text("bash: nvidia-smi: command not found\n"))
