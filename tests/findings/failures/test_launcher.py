"""Which rank was dead when DeepSpeed's launcher ended the others: its clock alone tells."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from dsprof.findings import Finding, findings_of
from dsprof.run import load

_HEAD = """[2026-11-21 05:49:21,956] [INFO] [launch.py:158:main] nnodes={nodes}, \
num_local_procs={ranks}, node_rank=0
[2026-11-21 05:49:21,956] [INFO] [launch.py:170:main] dist_world_size={world}
[2026-11-21 05:49:22,000] [INFO] [logging.py:107:log_dist] [Rank 0] step=10, skipped=0, \
lr=[0.1], mom=[0.9]
"""
_STAMP = "[2026-11-21 05:50:{:06.3f}] [{}] [launch.py:253:sigkill_handler] "


def ended(
    folder: Path, waits: Sequence[float], nodes: int = 1, world: int | None = None
) -> Finding:
    """The verdict on a log in which the launcher waits so long for each rank."""
    text = _HEAD.format(nodes=nodes, ranks=len(waits), world=world or len(waits))
    now = 10.0
    for rank, wait in enumerate(waits):
        text += _line(now, "INFO", f"Killing subprocess {700 + rank}")
        now += wait
    text += _line(now, "ERROR", "['python', '--local_rank=3'] exits with return code = -9")
    (folder / "run.log").write_text(text, encoding="utf-8")
    return findings_of(load(folder / "run.log"))[0]


def _line(now: float, level: str, said: str) -> str:
    return _STAMP.format(now, level).replace(".", ",", 1) + said + "\n"


@pytest.mark.parametrize("dead", [0, 1, 3])
def test_the_rank_that_is_not_waited_for_was_dead(tmp_path: Path, dead: int) -> None:
    waits = [0.024, 0.9, 0.3, 0.022]
    waits[dead] = 0.001
    found = ended(tmp_path, waits)
    assert found.rule == "rank-died"
    assert found.title.startswith(f"Rank {dead} was killed by SIGKILL after step 10")
    assert found.ranks == (dead,)
    assert found.confidence == "medium"
    assert f"but not for rank {dead}: it was already dead" in found.summary
    assert found.evidence[-1].text == f"Killing subprocess {700 + dead}"
    assert found.evidence[-1].line == 4 + dead


@pytest.mark.parametrize(
    "waits",
    [
        [0.001, 0.001, 0.9],  # two did not have to be waited for
        [0.001, 0.007, 0.9],  # one ended nearly at once
        [0.3, 0.9, 0.2],  # all were alive: the job was stopped
        [0.001],
    ],
)
def test_a_clock_that_leaves_doubt_names_nobody(tmp_path: Path, waits: list[float]) -> None:
    found = ended(tmp_path, waits)
    assert found.title.startswith("A process ")
    assert not found.ranks


def test_of_several_nodes_local_ranks_are_not_taken_for_ranks(tmp_path: Path) -> None:
    assert not ended(tmp_path, [0.001, 0.5], nodes=2, world=4).ranks


_TRACEBACK = """Traceback (most recent call last):
  File "train.py", line 5, in <module>
{}
"""
_TORCHRUN = """Root Cause (first observed failure):
[0]:
  time      : 2026-11-21_05:58:21
  host      : w1
  rank      : 3 (local_rank: 1)
  exitcode  : {} (pid: 3271)
  error_file: <N/A>
"""
_SRUN = "srun: error: w1: task 11: Exited with exit code 1\n"


def verdict(folder: Path, text: str) -> Finding:
    (folder / "run.log").write_text(text, encoding="utf-8")
    return findings_of(load(folder / "run.log"))[0]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ("ValueError: bad batch", "ended with an exception: ValueError: bad batch"),
        ("torch.OutOfMemoryError: CUDA out of memory. No more.", "ran out of GPU memory"),
    ],
)
def test_a_failure_without_a_name_is_that_of_the_rank_the_launcher_names(
    tmp_path: Path, error: str, said: str
) -> None:
    found = verdict(tmp_path, _TRACEBACK.format(error) + _TORCHRUN.format(1))
    assert found.title == f"Rank 3 on w1 {said}"
    assert found.ranks == (3,)
    assert "The launcher names rank 3" in found.summary
    assert [proof.line for proof in found.evidence] == [3, 9]


def test_a_failure_without_a_name_is_that_of_the_rank_that_aborts_the_job(tmp_path: Path) -> None:
    aborts = "MPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD\nwith errorcode 1.\n"
    found = verdict(tmp_path, _TRACEBACK.format("KeyError: 'labels'") + aborts)
    assert found.title == "Rank 3 ended with an exception: KeyError: 'labels'"


@pytest.mark.parametrize("code", [-7, 135])
def test_a_rank_that_a_bus_error_ended_is_the_one_that_found_dev_shm_full(
    tmp_path: Path, code: int
) -> None:
    full = "ERROR: Unexpected bus error encountered in worker. This might be caused by shm.\n"
    found = verdict(tmp_path, full + _TORCHRUN.format(code))
    assert found.title.startswith("Rank 3 on w1 lost a worker of its data loader")
    assert found.ranks == (3,)


_NPU = """Traceback (most recent call last):
  File "train.py", line 5, in <module>
RuntimeError: npuSynchronizeDevice:NPUStream.cpp:390 NPU function error: aclrtSynchronizeDevice, \
error code is 507046
[ERROR] 2026-11-21-05:58:21 (PID:71, Device:2, RankID:{}) ERR00100 PTA call acl api failed
"""


def test_an_exception_of_torch_npu_is_that_of_the_rank_in_its_second_line(tmp_path: Path) -> None:
    found = verdict(tmp_path, _NPU.format(10))
    assert found.title.startswith("Rank 10 ended with an exception: RuntimeError: npuSynch")
    assert found.ranks == (10,)
    assert "torch_npu names rank 10" in found.summary
    assert "did not end in time" in found.summary
    assert [proof.line for proof in found.evidence] == [3, 4]
    assert verdict(tmp_path, _NPU.format(-1)).ranks == ()


def test_of_exceptions_of_torch_npu_the_one_that_timed_out_waited_for_the_other(
    tmp_path: Path,
) -> None:
    found = verdict(tmp_path, _NPU.format(10) + _TRACEBACK.format("ValueError: bad batch"))
    assert found.title.endswith("ended with an exception: ValueError: bad batch")


def test_the_task_that_srun_names_is_no_rank(tmp_path: Path) -> None:
    found = verdict(tmp_path, _TRACEBACK.format("ValueError: bad batch") + _SRUN)
    assert found.title.startswith("Task 11 on w1 ended with an exception")
    assert not found.ranks


@pytest.mark.parametrize("others", ["tasks 2-7", "tasks 3,5", "task 3"])
def test_of_several_tasks_that_srun_names_none_is_the_one_that_failed(
    tmp_path: Path, others: str
) -> None:
    beside = f"srun: error: w0: {others}: Exited with exit code 1\n"
    raised = _TRACEBACK.format("ValueError: bad batch")
    for below in (beside + _SRUN, _SRUN + beside, beside):
        told = "Task 3 on w0" if (below, others) == (beside, "task 3") else "A process"
        found = verdict(tmp_path, raised + below)
        assert found.title.startswith(f"{told} ended with an exception")


def test_the_task_that_the_kernel_killed_is_the_one_that_srun_names(tmp_path: Path) -> None:
    killed = "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=7.0.\n"
    named = "srun: error: w{}: task {}: Out Of Memory\n"
    for label in ("", "0: "):  # of srun --label, whichever task of that node was killed
        found = verdict(tmp_path, label + killed + named.format(1, 11))
        assert found.title == "Task 11 on w1 ran out of host memory"
        assert found.evidence[-1].text == "task 11: Out Of Memory"
    found = verdict(tmp_path, killed + named.format(1, 11) + named.format(2, 20))
    assert found.title == "A process ran out of host memory"
    found = verdict(tmp_path, killed + named.format(1, "11-12").replace("task", "tasks"))
    assert found.title == "A process ran out of host memory"


@pytest.mark.parametrize(
    "below",
    [
        _TORCHRUN.format(-9),  # that one was killed, and raised nothing
        _TORCHRUN.format(1) * 2,  # of two nodes
        _TRACEBACK.format("KeyError: 'b'") + _TORCHRUN.format(1),  # whose is which
        _SRUN + _SRUN.replace("task 11", "task 12"),
        _SRUN.replace("task 11", "tasks 8-11"),
    ],
)
def test_a_failure_that_may_be_another_process_s_is_given_no_name(
    tmp_path: Path, below: str
) -> None:
    (tmp_path / "run.log").write_text(_TRACEBACK.format("ValueError: bad") + below)
    found = findings_of(load(tmp_path / "run.log"))
    assert not any("bad" in one.title and "on w1" in one.title for one in found)


_FULL = "[2026-11-21 15:32:44] {}:41:43 [1] alloc.h:228 NCCL WARN Cuda failure 2 'out of memory'\n"


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("localhost: " + _FULL.format("w7"), "w7"),
        ("10.0.0.7: " + _FULL.format("w7"), "10.0.0.7"),
        ("".join("localhost: " + _FULL.format(name) for name in ("w7", "w8")), "localhost"),
    ],
)
def test_a_host_that_a_launcher_calls_localhost_is_called_by_nccl_s_name(
    tmp_path: Path, text: str, host: str
) -> None:
    assert verdict(tmp_path, text).title == f"A process on {host} ran out of GPU memory (GPU 1)"
    run = load(tmp_path / "run.log")
    assert run.meta["hosts"] == [host]
    assert set(run.problems["host"]) == {host}
