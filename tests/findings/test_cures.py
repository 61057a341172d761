"""What an exception says is advised where it says what it wants."""

from __future__ import annotations

import pytest

from tests.findings.plants import one, problem, run_of


@pytest.mark.parametrize(
    ("text", "setting", "to"),
    [
        (
            "RuntimeError: it requires the environment variable CUDA_DEVICE_MAX_CONNECTIONS to 1",
            "CUDA_DEVICE_MAX_CONNECTIONS",
            "1",
        ),
        (
            "AssertionError: bwd_microstep timer has already been started",
            "wall_clock_breakdown",
            "false",
        ),
        (
            "FileNotFoundError: [Errno 2] No such file or directory: 'numactl'",
            "--bind_cores_to_rank",
            "left out, or numactl installed",
        ),
        ("OSError: [Errno 28] No space left on device", "storage", "space"),
        (
            "RuntimeError: DataLoader worker (pid 77) is killed by signal: Bus error.",
            "DataLoader(num_workers=...)",
            "fewer, or a larger /dev/shm (docker --shm-size)",
        ),
    ],
)
def test_an_exception_that_says_what_it_wants_is_advised(text: str, setting: str, to: str) -> None:
    found = one(run_of([problem("exception", text, rank=0)]), "rank-died")
    assert [(advice.setting, advice.to) for advice in found.advice] == [(setting, to)]


def test_any_other_exception_is_the_code_s_own() -> None:
    run = run_of([problem("exception", "KeyError: 'labels'", rank=0)])
    assert one(run, "rank-died").advice == ()


@pytest.mark.parametrize(
    ("reason", "setting"),
    [
        (" DUE TO TIME LIMIT", "time limit of the job"),
        (" DUE TO PREEMPTION", "checkpoints"),
        (" DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS", "sinfo -R"),
        ("", "sacct, or the scheduler's own log"),
    ],
)
def test_a_job_that_the_scheduler_ended_is_advised_on_its_reason(reason: str, setting: str) -> None:
    said = f"*** STEP 7.0 ON node7 CANCELLED AT 2026-03-25T18:00:12{reason} ***"
    found = one(run_of([problem("cancelled", said)]), "rank-died")
    assert [advice.setting for advice in found.advice] == [setting]
