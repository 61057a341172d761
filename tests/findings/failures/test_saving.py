"""Collectives that time out behind a save are told with it."""

from __future__ import annotations

import pytest

from tests.findings.failures.test_hangs import WATCHDOG
from tests.findings.plants import alone
from tests.loaded import run_of_text

TOLD = "{'loss': 1.25, 'grad_norm': 0.5, 'learning_rate': 1e-05, 'epoch': 0.98}\n"
BAR = " 50%|#####     | {}/200 [10:00<10:00,  6.00s/it]\n"
SAVE = "Saving model checkpoint to out/checkpoint-100\n"
READY = (
    "[2024-08-12 10:00:00,000] [INFO] [torch_checkpoint_engine.py:33:commit] [Torch] Checkpoint "
    "global_step100 is ready now!\n"
)
TIMEOUT = (
    "[rank6]:[E812 10:30:00.000000000 ProcessGroupNCCL.cpp:632] [Rank 6] Watchdog caught "
    "collective operation timeout: WorkNCCL(SeqNum=880, OpType=ALLREDUCE, NumelIn=512, "
    "NumelOut=512, Timeout(ms)=1800000) ran for 1800499 milliseconds before timing out.\n"
)


@pytest.mark.parametrize(
    ("saved", "name"),
    [
        (SAVE, "out/checkpoint-100)"),
        (READY, "global_step100)"),
        ("2024-08-12 10:00:00,125 - root - INFO - Saving latest checkpoint of epoch 3\n", "latest"),
    ],
)
def test_a_timeout_behind_a_save_is_told_with_it(saved: str, name: str) -> None:
    found = alone(run_of_text(TOLD, BAR.format(100), saved, TIMEOUT), "hang")
    assert found.title.endswith(", behind a save")
    assert f"is a save ({name}" in found.summary
    assert [one.setting for one in found.advice][-2:] == [
        "save_checkpoint",
        "timeout of the process group",
    ]


@pytest.mark.parametrize("later", [BAR.format(101), TOLD + BAR.format(101)])
def test_training_that_went_on_behind_a_save_did_not_wait_for_it(later: str) -> None:
    found = alone(run_of_text(TOLD, BAR.format(100), SAVE, later, TIMEOUT), "hang")
    assert "save" not in found.title + found.summary
    assert found.advice[-1].setting == "branches that depend on data or rank"


def test_a_save_behind_the_timeout_has_no_part_in_it() -> None:
    found = alone(run_of_text(TOLD, BAR.format(100), TIMEOUT, SAVE), "hang")
    assert "save" not in found.title + found.summary


def test_a_save_of_hours_ago_has_no_part_in_a_timeout_though_no_step_is_printed_since() -> None:
    saved = "2024-08-12 0{}:55:00,125 - root - INFO - Saving latest checkpoint of epoch 3\n"
    long_ago = alone(run_of_text(saved.format(5), TIMEOUT), "hang")
    assert "save" not in long_ago.title + long_ago.summary
    assert alone(run_of_text(saved.format(9), TIMEOUT), "hang").title.endswith("behind a save")


def test_an_evaluation_behind_a_save_shows_that_training_went_on() -> None:
    evaluated = "{'eval_loss': 1.5, 'eval_runtime': 9.5, 'epoch': 1.0}\n"
    found = alone(run_of_text(SAVE, evaluated, TIMEOUT), "hang")
    assert "save" not in found.title + found.summary


def test_ranks_that_are_out_of_step_behind_a_save_may_have_saved_alone() -> None:
    calls = [
        WATCHDOG.format(rank=rank, call=77, last=77).replace("ALLREDUCE", called)
        for rank, called in ((0, "BROADCAST"), (1, "_ALLGATHER_BASE"))
    ]
    found = alone(run_of_text(TOLD, BAR.format(100), SAVE, *calls), "hang")
    assert found.title.endswith("rank 0 BROADCAST and rank 1 _ALLGATHER_BASE")
    assert "save while others do not" in found.summary
    assert found.advice[0].setting == "save_checkpoint"
