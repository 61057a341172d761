"""What a failure's own message adds to the sentence about it."""

from __future__ import annotations

import pytest

from tests.findings.plants import one, problem, run_of, silent
from tests.loaded import run_of_text

TAKEN = (
    "torch.distributed.DistNetworkError: The server socket has failed to listen on any local "
    "network address. port: 29501, useIpv6: false, code: -98, name: EADDRINUSE"
)


def test_a_source_that_ends_within_a_traceback_does_not_tell_that_its_process_ended() -> None:
    frame = 'File "/data/train.py", line 7, in loss'
    found = one(run_of([problem("exception", f"its traceback breaks off at {frame}")]), "rank-died")
    assert found.title.endswith(f"met an exception: its traceback breaks off at {frame}")
    assert "whether it ended the process, is not told" in found.summary
    assert found.confidence == "medium"


def test_a_source_that_ends_with_a_bare_exception_does_not_tell_that_its_process_ended() -> None:
    found = one(run_of_text("{'loss': 2.5}\n", "ValueError: no rows"), "rank-died")
    assert "met an exception" in found.title
    assert found.title.endswith("ValueError: no rows")
    assert "or was caught, is not told" in found.summary
    assert found.confidence == "medium"


def test_a_bare_exception_at_the_end_is_no_cause_of_an_end_that_something_else_explains() -> None:
    code = "[2024-01-05 10:00:00,000] [ERROR] [launch.py:321:sigkill_handler] exits with -9\n"
    killed = "train.sh: line 3:  4242 Killed                  python train.py\n"
    assert "was killed by SIG" in one(run_of_text(killed, code, "OSError: no"), "rank-died").title


def test_a_taken_port_is_told_by_its_number_and_not_twice() -> None:
    found = one(run_of([problem("port-in-use", TAKEN)]), "rank-died")
    assert found.title.endswith("could not open the launcher's port: it is taken (port 29501)")
    assert found.evidence[0].text == TAKEN


def test_a_message_in_the_first_sentence_is_cut_behind_a_word_with_an_ellipsis() -> None:
    message = "RuntimeError: " + " ".join(["expected"] * 40)
    found = one(run_of([problem("exception", message)]), "rank-died")
    assert found.title.endswith(" expected expected…")


@pytest.mark.parametrize("word", ["Killed", "Segmentation fault", "Bus error"])
def test_what_a_shell_says_of_a_job_stands_behind_its_bar(word: str) -> None:
    bar = " 20%|##  | 100/500 [02:00<08:00,  1.20s/it]"
    assert "was killed by SIG" in one(run_of_text(bar, word, "\n"), "rank-died").title
    assert silent(run_of_text("{'loss': 2.5}\n", bar, f" {word} hopes\n"), "rank-died")


HUNG = "HW Exception by GPU node-6 (Agent handle: 0x55d0c0de40) reason :GPU Hang\n"
ABORTED = (
    "E1121 11:22:40.000000 12 torch/distributed/elastic/multiprocessing/api.py:869] failed "
    "(exitcode: -6) local_rank: 3 (pid: 4324) of binary: /opt/python\n"
)


def test_a_gpu_that_hung_is_what_its_process_was_aborted_for() -> None:
    found = one(run_of_text(HUNG, ABORTED), "rank-died")
    assert "HW Exception by GPU node-6" in found.title


RAYLET = (
    "(raylet) A worker died or was killed while executing a task by an unexpected system error. "
    "To troubleshoot the problem, check the logs for the dead worker. RayTask ID: ff12 Worker IP "
    "address: 10.0.0.7 Worker port: 10002 Worker PID: 4101 Worker exit type: SYSTEM_ERROR\n"
)
NAMED = 'Traceback (most recent call last):\n  File "t.py", line 1, in f\nValueError: no rows\n'


def test_what_ray_says_of_a_worker_that_is_gone_is_a_failure_with_a_place_to_look() -> None:
    found = one(run_of_text(RAYLET), "rank-died")
    assert "on 10.0.0.7" in found.title
    assert "worker-*.err" in found.advice[0].setting


@pytest.mark.parametrize("lines", [(RAYLET, NAMED), (NAMED, RAYLET)])
def test_an_exception_with_its_own_words_goes_before_what_ray_says(lines: tuple[str, ...]) -> None:
    assert "ValueError: no rows" in one(run_of_text(*lines), "rank-died").title


GONE = "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR\n"


def test_an_actor_that_ray_says_is_dead_is_a_failure_with_a_place_to_look() -> None:
    found = one(run_of_text(GONE), "rank-died")
    assert "worker-*.err" in found.advice[0].setting
    assert "ValueError: no rows" in one(run_of_text(GONE, NAMED), "rank-died").title
