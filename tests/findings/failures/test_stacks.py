"""Stacks that were printed of processes tell where each stood: of one that crashed, and of all that
hang.
"""

from __future__ import annotations

import pytest

from dsprof.findings import findings_of
from tests.findings.plants import alone
from tests.loaded import run_of_text

_PACKAGES = "/opt/venv/lib/python3.11/site-packages"
_C10D = f"{_PACKAGES}/torch/distributed/distributed_c10d.py"


def _step(number: int) -> str:
    return f"{{'loss': 2.5, 'learning_rate': 1e-05, 'epoch': 0.{number}, 'step': {number}}}\n"


def _thread(number: int, *frames: tuple[str, int, str], current: bool = False) -> list[str]:
    head = f"{'Current thread' if current else 'Thread'} 0x{number:016x} (most recent call first):"
    return [
        f"{head}\n",
        *(f'  File "{path}", line {line} in {function}\n' for path, line, function in frames),
        "\n",
    ]


def _helper(number: int) -> list[str]:
    python = "/usr/lib/python3.11/threading.py"
    return _thread(
        number,
        (f"{_PACKAGES}/tqdm/_monitor.py", 60, "run"),
        (python, 1045, "_bootstrap_inner"),
        (python, 1002, "_bootstrap"),
    )


def _in_call(number: int) -> list[str]:
    return _thread(
        number,
        (_C10D, 3252, "all_reduce"),
        (f"{_PACKAGES}/torch/distributed/c10d_logger.py", 83, "wrapper"),
        ("/data/train/main.py", 12, "average"),
        ("/data/train/main.py", 15, "<module>"),
    )


def _outside(number: int) -> list[str]:
    return _thread(
        number,
        ("/data/train/data.py", 14, "load_batch"),
        ("/data/train/main.py", 11, "<module>"),
    )


_LIMIT = "Timeout (0:05:00)!\n"


def test_of_a_time_limit_that_ran_out_it_is_said_where_each_process_stood() -> None:
    lines = [_LIMIT, *_helper(1), *_outside(2), _LIMIT, *_helper(3), *_in_call(4)]
    found = alone(run_of_text(*lines, _LIMIT, *_in_call(6)), "hang")
    assert found.title == (
        "A time limit of the script's own, 0:05:00, ran out: 1 process stood in load_batch "
        "(data.py:14); 2 processes in all_reduce, called in average (main.py:12)"
    )
    assert "look at those that stood elsewhere" in found.summary
    assert found.evidence[1].line == 7


def test_ranks_that_the_lines_name_are_named() -> None:
    lines = [f"[rank0]: {line}" for line in (_LIMIT, *_in_call(4))]
    lines += [f"[rank1]: {line}" for line in (_LIMIT, *_outside(2))]
    found = alone(run_of_text(*lines), "hang")
    assert "rank 1 stood in load_batch (data.py:14); rank 0 in all_reduce" in found.title
    assert found.ranks == (1,)


def test_processes_in_different_collectives_are_said_to_wait_for_each_other() -> None:
    gathers = [line.replace("in all_reduce", "in all_gather") for line in _in_call(2)]
    found = alone(run_of_text(_LIMIT, *_in_call(4), _LIMIT, *gathers), "hang")
    assert "They stood in different collectives, which wait for each other." in found.summary
    assert found.ranks == ()


def test_of_threads_that_only_help_nothing_is_said_of_where_training_stood() -> None:
    found = alone(run_of_text(_LIMIT, *_helper(1)), "hang")
    assert found.title.endswith("ran out")
    assert "Where the threads stood that train, it does not show." in found.summary
    helper = _SPIED.partition("Thread 4888")[0] + "Thread 5406" + _SPIED.partition("Thread 5406")[2]
    helper = helper.partition("Thread 8283")[0]
    assert "hang" not in [one.rule for one in findings_of(run_of_text(helper))]


def test_a_process_that_was_dumped_again_counts_once() -> None:
    found = alone(run_of_text(_LIMIT, *_in_call(4), _LIMIT, *_outside(4)), "hang")
    assert found.title.endswith("ran out: 1 process stood in load_batch (data.py:14)")


def test_a_time_limit_that_training_goes_on_behind_ended_nothing() -> None:
    early = [_step(1), _LIMIT, *_outside(2), _step(2), _step(3)]
    assert not [one for one in findings_of(run_of_text(*early)) if one.rule == "hang"]
    once_more = [*early, _step(4), _LIMIT, *_outside(2)]
    assert not [one for one in findings_of(run_of_text(*once_more)) if one.rule == "hang"]
    found = alone(run_of_text(*once_more, _LIMIT, *_outside(2)), "hang")
    assert "ran out after step 4" in found.title


@pytest.mark.parametrize("result", ["3 passed in 12.31s", "1 failed, 2 passed in 12.31s"])
@pytest.mark.parametrize("rule", ["", "=" * 24])
def test_a_time_limit_of_tests_that_are_over_ended_nothing(result: str, rule: str) -> None:
    stacks = [_LIMIT, *_outside(2), _LIMIT, *_in_call(4)]
    over = f"{rule} {result} {rule}".strip() + "\n"
    found = findings_of(run_of_text(*stacks, "PASSED\n", over))
    assert "hang" not in [one.rule for one in found]
    assert alone(run_of_text(over, *stacks), "hang").severity == "critical"


def test_an_exit_code_behind_it_is_how_that_process_ended() -> None:
    code = "[2026-03-04 09:12:33,073] [ERROR] [launch.py:325:sigkill_handler] ['python3', '-u', "
    ended = f"{code}'main.py'] exits with return code = 1\n"
    found = alone(run_of_text(_LIMIT, *_outside(2), ended), "hang")
    assert "ran out: 1 process stood in load_batch" in found.title


_SPIED = """\
Process 4888: /usr/bin/python3 -u train.py
Python v3.10.12 (/usr/bin/python3.10)

Thread 4888 (idle): "MainThread"
    _engine_run_backward (torch/autograd/graph.py:769)
    backward (deepspeed/runtime/engine.py:2020)
    <module> (train.py:586)
Thread 5406 (idle): "Thread-1"
    wait (threading.py:324)
    run (tqdm/_monitor.py:60)
    _bootstrap (threading.py:973)
Thread 8283 (idle)
Thread 8287 (active)
    partition_grads (deepspeed/runtime/zero/stage3.py:1500)
    decorate_context (torch/utils/_contextlib.py:116)
"""


def test_where_backward_waits_for_its_own_thread_that_one_says_where_it_is() -> None:
    found = alone(run_of_text(_SPIED), "hang")
    assert found.severity == "warning"
    assert found.title == (
        "Stacks were taken of a process: 1 process stood in partition_grads "
        "(deepspeed/runtime/zero/stage3.py:1500)"
    )
    called = _SPIED + "    all_gather (torch/distributed/distributed_c10d.py:27)\n"
    assert "1 process stood in all_gather, called in partition_grads" in (
        alone(run_of_text(called), "hang").title
    )


def test_who_waits_for_a_data_loader_is_told_so() -> None:
    thread = _thread(
        2,
        ("/usr/lib/python3.11/queue.py", 180, "get"),
        (f"{_PACKAGES}/torch/utils/data/dataloader.py", 1133, "_try_get_data"),
        ("/data/train/main.py", 40, "train"),
        ("/data/train/main.py", 90, "<module>"),
    )
    found = alone(run_of_text(_LIMIT, *thread), "hang")
    assert found.title.endswith("stood in train (main.py:40), waiting for its data loader")
    assert found.advice[0].setting == "DataLoader(timeout=...)"


def test_who_waits_for_the_lock_of_a_build_is_told_to_look_for_one_that_was_left() -> None:
    thread = _thread(
        2,
        (f"{_PACKAGES}/torch/utils/file_baton.py", 42, "wait"),
        (f"{_PACKAGES}/torch/utils/cpp_extension.py", 1522, "_jit_compile"),
        (f"{_PACKAGES}/deepspeed/ops/op_builder/builder.py", 480, "jit_load"),
        ("/data/train/main.py", 90, "<module>"),
    )
    found = alone(run_of_text(_LIMIT, *thread), "hang")
    assert found.title.endswith("builder.py:480), waiting for the lock of an extension's build")
    assert found.advice[0].setting == "lock in the folders of torch_extensions"


def test_who_waits_for_its_gpu_is_told_so() -> None:
    thread = _thread(
        2,
        (f"{_PACKAGES}/torch/cuda/__init__.py", 900, "synchronize"),
        ("/data/train/main.py", 40, "train"),
        ("/data/train/main.py", 90, "<module>"),
    )
    found = alone(run_of_text(_LIMIT, *thread), "hang")
    assert found.title.endswith("stood in train (main.py:40), waiting for its GPU")


def test_stacks_are_told_with_a_collective_that_timed_out() -> None:
    watchdog = (
        "[rank0]:[E ProcessGroupNCCL.cpp:607] [Rank 0] Watchdog caught collective operation "
        "timeout: WorkNCCL(SeqNum=88, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, "
        "Timeout(ms)=600000) ran for 600029 milliseconds before timing out.\n"
    )
    found = alone(run_of_text(_LIMIT, *_outside(2), watchdog), "hang")
    assert found.title.startswith("A collective timed out in ALLREDUCE")
    assert "By their stacks, 1 process stood in load_batch (data.py:14)." in found.summary


@pytest.mark.parametrize(
    "end",
    [
        "[2026-03-04 09:20:00,000] [INFO] [launch.py:351:main] Process 4101 exits successfully.\n",
        "{'train_runtime': 640.5, 'train_loss': 2.5, 'epoch': 1.0}\n",
    ],
)
def test_stacks_that_a_job_printed_which_ended_well_behind_them_show_no_hang(end: str) -> None:
    lines = [*map(_step, range(1, 9)), *_in_call(4)]
    assert alone(run_of_text(*lines), "hang")
    assert not [found for found in findings_of(run_of_text(*lines, end)) if found.rule == "hang"]


@pytest.mark.parametrize("limit", [[_LIMIT], []])
def test_of_a_job_that_its_scheduler_ended_it_is_said_where_it_had_stood(limit: list[str]) -> None:
    before, ended = [*map(_step, range(1, 9)), *limit, *_in_call(4)], "DUE TO TIME LIMIT ***\n"
    ended = f"slurmstepd: error: *** JOB 1234 ON n1 CANCELLED AT 2026-03-04T10:00:00 {ended}"
    found = alone(run_of_text(*before, ended), "rank-died")
    assert (
        "The job may have hung before: by their stacks, 1 process stood in all_reduce, called in "
        "average (main.py:12)." in found.summary
    )
    went_on = alone(run_of_text(*before, _step(9), _step(10), ended), "rank-died")
    assert "hung" not in went_on.summary


def test_of_a_crash_it_is_said_in_which_function_and_from_where_it_came_there() -> None:
    crash = ["Fatal Python error: Segmentation fault\n", "\n", *_helper(1)]
    inner = ("/usr/lib/python3.11/ctypes/__init__.py", 519, "string_at")
    current = _thread(2, inner, ("/data/train/main.py", 6, "step"), current=True)
    found = alone(run_of_text(*crash, *current), "rank-died")
    assert found.title.endswith("segmentation fault, in string_at (ctypes/__init__.py:519)")
    assert "It came there from step (main.py:6)." in found.summary
    elsewhere = _thread(3, ("/data/train/data.py", 7, "read"), current=True)
    found = alone(run_of_text(*crash, *current, crash[0], *elsewhere), "rank-died")
    assert found.title.endswith("segmentation fault")


def test_of_a_crash_that_prints_one_thread_alone_its_function_is_said() -> None:
    lines = ["Fatal Python error: Segmentation fault\n", "\n", "Stack (most recent call first):\n"]
    frame = '  File "/data/train/main.py", line 6 in step\n'
    found = alone(run_of_text(*lines, frame), "rank-died")
    assert found.title.endswith("segmentation fault, in step (main.py:6)")


def test_a_crash_that_says_nothing_can_be_made_to_speak() -> None:
    found = alone(run_of_text("Segmentation fault (core dumped)\n"), "rank-died")
    assert found.advice[-1].setting == "PYTHONFAULTHANDLER"
    spoken = ["Fatal Python error: Segmentation fault\n", "\n"]
    spoken += ["Thread 0x00007f57168aa700 (most recent call first):\n", "  <no Python frame>\n"]
    spoken += _thread(2, ("/usr/lib/python3.10/threading.py", 324, "wait"))
    assert alone(run_of_text(*spoken), "rank-died").advice == ()


@pytest.mark.parametrize("text", ["Thread 3 (idle) took 4 s\n", "Thread 0x12 started\n"])
def test_what_only_begins_like_a_thread_of_a_dump_is_none(text: str) -> None:
    assert not [one for one in findings_of(run_of_text(text)) if one.rule == "hang"]
