"""Errors under Ray are of the process that Ray names, whoever prints them."""

from __future__ import annotations

import pytest

from dsprof.findings import findings_of
from tests.loaded import run_of_text

_RANK = (
    "(TorchTrainer pid=1138, ip=10.0.0.7) - (node_id=2b00, ip=10.0.0.9, pid=1341) world_rank=1, "
    "local_rank=0, node_rank=1\n"
)
_CREATION = "The actor died because of an error raised in its creation task"
_HEAD = ["Traceback (most recent call last):\n", '  File "driver.py", line 1, in fit\n']


def _task(error: str, pid: int, ip: str) -> str:
    return f"ray.exceptions.RayTaskError({error}): ray::Worker.run() (pid={pid}, ip={ip}, a=1)\n"


def test_an_error_that_the_driver_prints_is_of_the_innermost_task() -> None:
    lines = [*_HEAD, _task("ValueError", 1138, "10.0.0.7"), _HEAD[1]]
    lines += [_task("ValueError", 1341, "10.0.0.9"), _HEAD[1], "ValueError: no\n"]
    error = run_of_text(_RANK, *lines).problems.iloc[0]
    assert (error["rank"], error["host"], error["text"]) == (1, "10.0.0.9", "ValueError: no")
    unranked = run_of_text(*lines).problems.iloc[0]
    assert str(unranked["rank"]) == "<NA>"
    assert unranked["host"] == "10.0.0.9"


def test_an_error_behind_that_one_is_not_of_the_task() -> None:
    lines = [_RANK, *_HEAD, _task("ValueError", 1341, "10.0.0.9"), _HEAD[1], "ValueError: no\n"]
    second = run_of_text(*lines, *_HEAD, "KeyError: 'x'\n").problems.iloc[1]
    assert second["text"] == "KeyError: 'x'"
    assert str(second["rank"]) == "<NA>"


def test_an_actor_that_could_not_be_made_says_why_below() -> None:
    said = (
        f"ray.exceptions.ActorDiedError: {_CREATION}, "
        "ray::Worker.__init__() (pid=1341, ip=10.0.0.9, actor_id=d9, repr=<Worker>)\n"
    )
    error = run_of_text(_RANK, *_HEAD, said, _HEAD[1], "ValueError: no\n").problems.iloc[0]
    assert (error["rank"], error["text"]) == (1, "ValueError: no")


@pytest.mark.parametrize(
    "head",
    [
        "Unhandled error (suppress with 'RAY_IGNORE_UNHANDLED_ERRORS=1'): ",
        f"Exception raised in creation task: {_CREATION}, ",
    ],
)
def test_an_error_that_nobody_waited_for_is_read(head: str) -> None:
    said = (
        f"(Runner pid=7) {head}"
        "ray::Worker.run() (pid=1341, ip=10.0.0.9, actor_id=d9, repr=<Worker>)\n"
    )
    error = run_of_text(
        _RANK, said, f"(Runner pid=7) {_HEAD[1]}", "(Runner pid=7) ValueError: no\n"
    ).problems.iloc[0]
    assert (error["rank"], error["host"], error["text"]) == (1, "10.0.0.9", "ValueError: no")


def test_an_actor_whose_process_is_gone_is_named() -> None:
    run = run_of_text(
        _RANK,
        *_HEAD,
        "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n",
        "\tclass_name: RayTrainWorker\n",
        "\tpid: 1341\n",
        "\tip: 10.0.0.9\n",
        "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR\n",
    )
    assert set(run.problems["rank"]) == {1}
    assert findings_of(run)[0].title.startswith("Rank 1 on 10.0.0.9 ended without an exception")


def test_rays_own_process_names_who_is_gone() -> None:
    said = (
        "(raylet, ip=10.0.0.9) A worker died or was killed while executing a task by an unexpected "
        "system error. To troubleshoot the problem, check the logs for the dead worker. Worker IP "
        "address: 10.0.0.9 Worker port: 10110 Worker PID: 1341 Worker exit type: SYSTEM_ERROR\n"
    )
    assert run_of_text(_RANK, said).problems["rank"].iloc[0] == 1


def test_a_process_that_is_gone_ended_the_run_and_not_that_it_could_not_be_reached() -> None:
    run = run_of_text(
        *_HEAD,
        "ray.exceptions.ActorUnavailableError: The actor d5a1 is unavailable: The actor is "
        "temporarily unavailable: RpcError: RPC error: Socket closed rpc_code: 14.\n",
        "(raylet) A worker died or was killed while executing a task by an unexpected system "
        "error. Worker IP address: 10.0.0.9 Worker port: 10110 Worker PID: 1341 Worker exit type: "
        "SYSTEM_ERROR\n",
    )
    said = "A process ended without an exception: A worker died or was killed"
    assert findings_of(run)[0].title.startswith(said)


def test_an_actor_that_could_not_be_imported_fails_by_what_its_import_raised() -> None:
    run = run_of_text(
        "(raylet) A worker died or was killed while executing a task by an unexpected system "
        "error. Worker exit detail: Traceback (most recent call last):\n",
        '  File "/opt/ray/_private/function_manager.py", line 608, in temporary_actor_method\n',
        "    raise RuntimeError(\n",
        "RuntimeError: The actor with name WorkerDict failed to import on the worker. This may be "
        "because needed library dependencies are not installed in the worker environment:\n",
        "\n",
        "Traceback (most recent call last):\n",
        '  File "/opt/flash_attn/flash_attn_interface.py", line 15, in <module>\n',
        "    import flash_attn_2_cuda as flash_attn_gpu\n",
        "ImportError: /opt/flash_attn_2_cuda.so: undefined symbol: _ZNK3c1011Storage\n",
    )
    assert findings_of(run)[0].title.startswith("A process ended with an exception: ImportError")


@pytest.mark.parametrize(
    ("prefix", "rank", "host"),
    [("(Worker pid=1340, ip=10.0.0.7) ", "<NA>", "10.0.0.7"), ("[rank0]: ", "0", "nan")],
)
def test_what_another_process_raises_beside_is_not_of_the_one_that_is_gone(
    prefix: str, rank: str, host: str
) -> None:
    gone = (
        "(raylet) A worker died or was killed while executing a task by an unexpected system "
        "error. Worker IP address: 10.0.0.9 Worker port: 10110 Worker PID: 1341 Worker exit type: "
        "SYSTEM_ERROR\n"
    )
    lines = [f"{prefix}{line}" for line in (*_HEAD, "ValueError: no\n")]
    error = run_of_text(_RANK, *lines, gone).problems.iloc[0]
    assert error["text"] == "ValueError: no"
    assert (str(error["rank"]), str(error["host"])) == (rank, host)
