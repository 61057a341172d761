"""What looks like a failure and ended no training."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsprof.run import load
from tests.loaded import run_of_text

STEP = (
    "Training epoch 0, iteration {0}/99 | global_step: {0} | reduced_train_loss: 9.5 | "
    "train_step_timing in s: 27.5\n"
)
OVER = "`Trainer.fit` stopped: `max_steps=30` reached.\n"
LIMIT = (
    "slurmstepd: error: *** STEP 7.2 ON node7 CANCELLED AT 2026-03-25T18:00:12 DUE TO TIME "
    "LIMIT ***\n"
)


@pytest.mark.parametrize(
    ("lines", "ended"),
    [
        ([STEP.format(29), OVER, LIMIT], False),
        ([STEP.format(29), LIMIT], True),
        ([STEP.format(29), OVER, STEP.format(30), LIMIT], True),
        ([STEP.format(29), LIMIT, OVER], True),
    ],
    ids=["over", "not-over", "trains-again", "over-behind-it"],
)
def test_a_time_limit_behind_a_training_that_was_over_ended_no_training(
    lines: list[str], *, ended: bool
) -> None:
    run = run_of_text(*lines)
    assert ("rank-died" in {one.rule for one in run.findings}) is ended
    assert bool(run.problems["severity"].eq("info").all()) is not ended


def test_a_job_that_hangs_behind_its_training_is_not_advised_a_longer_limit() -> None:
    run = run_of_text(
        " iteration       50/      50 | consumed samples:        25600 | elapsed time per "
        "iteration (ms): 9969.4 | learning rate: 4.500000E-06 | global batch size:   512 |\n",
        "[after training is done] datetime: 2026-03-25 17:52:12 \n",
        LIMIT,
    )
    found = next(one for one in run.findings if one.rule == "hang")
    assert found.title.startswith("Training was over after step 50, but the job was not: its sched")
    assert found.title.endswith("ended it 8 min 00 s later")
    assert all(one.rule != "rank-died" for one in run.findings)
    assert all("time limit" not in advice.setting for advice in found.advice)


def test_a_job_whose_nodes_others_needed_behind_its_training_did_not_hang() -> None:
    for reason, hung in (("TIME LIMIT", True), ("PREEMPTION", False), ("NODE FAILURE", False)):
        run = run_of_text(STEP.format(29), OVER, LIMIT.replace("TIME LIMIT", reason))
        assert ("hang" in {one.rule for one in run.findings}) is hung
        assert "rank-died" not in {one.rule for one in run.findings}


def test_the_word_of_a_scheduler_in_another_file_is_compared_by_time(tmp_path: Path) -> None:
    over = "[after training is done] datetime: {} \n"
    (tmp_path / "job.err").write_text(LIMIT)
    for time, ended in (("2026-03-25 17:52:12", False), ("2026-03-25 18:52:12", True)):
        (tmp_path / "job.out").write_text(STEP.format(29) + over.format(time))
        found = {one.rule for one in load([tmp_path / "job.out", tmp_path / "job.err"]).findings}
        assert ("rank-died" in found, "hang" in found) == (ended, not ended)


BUILD = "nvcc fatal   : Failed to preprocess host compiler properties.\n"
FALLBACK = (
    "[2026-03-04 09:12:33,073] [WARNING] [engine.py:1690:_configure_basic_optimizer] FusedAdam "
    "CUDA build failed (fused_adam.so: cannot open shared object file), falling back to "
    "torch.optim.AdamW\n"
)
OOM = "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.44 GiB.\n"


@pytest.mark.parametrize(
    ("lines", "cause"),
    [
        ([BUILD, FALLBACK, OOM], "oom"),
        ([BUILD, OOM], "build-failed"),
        ([FALLBACK, BUILD], "build-failed"),
        (["RuntimeError: Error building extension 'cpu_adam'\n", FALLBACK], "build-failed"),
    ],
    ids=["replaced", "alone", "behind-it", "of-another"],
)
def test_a_build_in_whose_place_pytorchs_optimizer_came_ended_nothing(
    lines: list[str], cause: str
) -> None:
    found = run_of_text(*lines).problems
    assert list(found.loc[found["root_cause"], "kind"]) == [cause]


WAITS = (
    "  Warning  FailedScheduling  2m  default-scheduler  0/3 nodes are available: 3 Insufficient "
    "nvidia.com/gpu.\n"
)
FOUND = "  Normal  Scheduled  73s  default-scheduler  Successfully assigned ml/trainer-0 to node7\n"


@pytest.mark.parametrize(("lines", "severity"), [((WAITS, FOUND), "info"), ((WAITS,), "critical")])
def test_a_pod_that_found_a_node_after_it_had_waited_did_not_fail(
    lines: tuple[str, ...], severity: str
) -> None:
    assert [*run_of_text(*lines).problems["severity"]] == [severity]
