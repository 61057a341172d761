"""How a run ended: who was first, and why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from dsprof.events import Severity
from dsprof.findings import Finding, ends, findings_of
from dsprof.findings.cures import cures
from dsprof.run import load
from tests.findings.plants import (
    WELL,
    Row,
    config,
    metric,
    one,
    problem,
    rules,
    run_of,
    silent,
    steps,
    why,
)
from tests.loaded import run_of_text

SLOW = {"forward": 0.3, "backward_inner": 0.2, "backward_allreduce": 0.5}
FAILED = "deepspeed.checkpoint_failed"  # a pattern that calls it critical
OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total "
    "capacity of 79.15 GiB of which 1.20 GiB is free."
)


def test_a_failure_comes_before_all_that_only_slows_the_run() -> None:
    run = run_of([*steps(40, SLOW), problem("oom", OOM, rank=3, host="w1", step=40)], world_size=4)
    assert rules(run)[:2] == ["oom", "communication-bound"]


def test_out_of_memory_names_rank_host_and_size() -> None:
    run = run_of([*steps(40, WELL), problem("oom", OOM, rank=3, host="w1", step=40)])
    found = one(run, "oom")
    assert found.severity is Severity.CRITICAL
    assert found.title == "Rank 3 on w1 ran out of GPU memory after step 40"
    assert "It asked for 2.00 GiB more on a GPU of 79.2 GiB" in found.summary
    assert found.ranks == (3,)
    assert "rank-died" not in rules(run)


def test_the_code_that_is_sshs_own_is_a_lost_connection() -> None:
    failed = {"host": "w2", "step": 40}
    run = run_of(
        [*steps(40, WELL), problem("exit", "ssh exited with exit code 255", value=255.0, **failed)]
    )
    found = one(run, "rank-died")
    assert found.title.startswith("Most likely the connection to w2 was lost after step 40: ssh")
    assert found.confidence == "medium"
    run = run_of(
        [*steps(40, WELL), problem("exit", "ssh exited with exit code 1", value=1.0, **failed)]
    )
    assert "exited with an error" in one(run, "rank-died").title


def test_out_of_memory_halves_the_micro_batch_it_knows() -> None:
    run = run_of([problem("oom", OOM, rank=3)], micro_batch_size=8, zero_stage=2)
    advice = {a.setting: (a.now, a.to) for a in one(run, "oom").advice}
    assert advice["train_micro_batch_size_per_gpu"] == ("8", "4")
    assert advice["zero_optimization.stage"] == ("2", "3")


def test_a_micro_batch_of_one_sample_cannot_be_smaller() -> None:
    run = run_of([problem("oom", OOM, rank=3)], micro_batch_size=1, zero_stage=3)
    assert [advice.setting for advice in one(run, "oom").advice] == [
        "activation checkpointing", "PYTORCH_CUDA_ALLOC_CONF"
    ]  # fmt: skip


def test_a_card_that_is_full_for_nccl_before_any_step_is_held_by_another_process() -> None:
    full = problem("oom", "Cuda failure 2 'out of memory'", host="w0")
    assert one(run_of([full], zero_stage=1), "oom").advice[0].setting == "nvidia-smi on that host"
    later = one(run_of([*steps(9, WELL), full], zero_stage=1), "oom").advice
    assert "zero_optimization.stage" in [advice.setting for advice in later]


def test_a_worker_that_ray_ended_is_not_looked_for_in_the_kernel_s_log() -> None:
    said = "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory."
    assert one(run_of([problem("host-oom", said)]), "oom").advice[0].setting.startswith("ray logs")


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("Out of memory: Killed process 4101 (python3)", "DataLoader(num_workers=...)"),
        ("Memory cgroup out of memory: Killed process 4101 (python3)", "docker --memory"),
        ("OOMKilled", "docker --memory"),
    ],
)
def test_where_the_kernel_names_its_victim_nobody_is_sent_to_ask_it(said: str, asked: str) -> None:
    found = one(run_of([problem("host-oom", said)]), "oom")
    assert found.advice[0].setting.startswith(asked)
    assert ("limit of its container" in found.summary) == (asked == "docker --memory")


def test_a_full_host_is_told_from_a_full_card() -> None:
    run = run_of([problem("host-oom", "DefaultCPUAllocator: can't allocate memory", rank=0)])
    assert "ran out of host memory" in one(run, "oom").title


def test_the_exception_that_was_first_is_named_and_its_victims_are_not() -> None:
    rows = [
        problem("exception", "RuntimeError: bad batch", rank=1, host="w0", step=7),
        problem("connection", "Connection closed by peer", rank=0, host="w0", step=7),
    ]
    found = one(run_of([*steps(10, WELL), *rows]), "rank-died")
    assert found.title.startswith("Rank 1 on w0 ended with an exception after step 7: RuntimeError")
    assert found.ranks == (1,)
    assert found.steps == (7, 7)


def test_signal_9_is_called_by_its_name_and_its_usual_cause() -> None:
    run = run_of([*steps(10, WELL), problem("exit", "exits with return code = -9", value=-9)])
    found = one(run, "rank-died")
    assert "was killed by SIGKILL" in found.title
    assert "out-of-memory killer" in found.summary


def test_a_taken_port_advises_another() -> None:
    found = one(run_of([problem("port-in-use", "EADDRINUSE", rank=0)]), "rank-died")
    assert found.advice[0].setting == "--master_port"


def watchdog(rank: int, last: int) -> list[Row]:
    """What a rank's watchdog says, as the parsers read it."""
    text = "OpType=ALLREDUCE, NumelIn=4096, NumelOut=4096, Timeout(ms)=600000"
    return [
        problem("watchdog", text, rank=rank, step=12, count=880),
        metric("last_enqueued_work", None, last, rank=rank),
    ]


def test_the_rank_that_started_fewest_collectives_is_the_one_that_did_not_come() -> None:
    rows = [*watchdog(0, 882), *watchdog(1, 880), *watchdog(2, 882)]
    found = one(run_of([*steps(12, WELL), *rows]), "hang")
    assert found.ranks == (1,)
    assert "in ALLREDUCE, call 880" in found.title
    assert "rank 1 did not arrive" in found.title


def test_equal_ranks_blame_nobody() -> None:
    found = one(run_of([*steps(12, WELL), *watchdog(0, 882), *watchdog(2, 882)]), "hang")
    assert found.ranks == ()
    assert "never arrived" in found.summary
    assert found.confidence == "medium"


@pytest.mark.parametrize(
    ("sequence", "ends", "named"), [(1, True, True), (2, True, False), (1, False, False)]
)
def test_the_only_rank_of_a_known_layout_that_reports_no_timeout_never_arrived(
    sequence: int, ends: bool, named: bool
) -> None:
    """Where the log goes on: one that is cut ends before the last of them reports."""
    rows = [row for rank in (0, 1, 3) for row in watchdog(rank, 882)]
    rows += [problem("exit", "exits with return code = -6", value=-6)] * ends
    run = run_of(
        [*steps(12, WELL), *rows],
        data_parallel_size=4,
        tensor_parallel_size=1,
        pipeline_parallel_size=1,
        sequence_parallel_size=sequence,
    )
    found = one(run, "hang")
    assert found.ranks == ((2,) if named else ())
    assert ("Rank 2 alone reports none" in found.summary) is named
    assert found.confidence == "medium"


_WATCHDOG = (
    "10.0.0.{rank}: [rank{rank}]:[E122 07:47:07.196 ProcessGroupNCCL.cpp:616] [Rank {rank}] "
    "Watchdog caught collective operation timeout: WorkNCCL(SeqNum={call}, OpType=ALLREDUCE, "
    "NumelIn=8, NumelOut=8, Timeout(ms)=1800000) ran for 1800003 milliseconds before timing out.\n"
    "10.0.0.{rank}: [rank{rank}]:[E122 07:47:07.197 ProcessGroupNCCL.cpp:1785] [PG ID 0 PG GUID "
    "0(default_pg) Rank {rank}] Exception (either an error or timeout) detected by watchdog at "
    "work: {call}, last enqueued NCCL work: {last}, last completed NCCL work: 70.\n"
)


def test_what_watchdogs_print_names_the_call_and_the_rank_that_did_not_come(tmp_path: Path) -> None:
    told = [(0, 77, 79), (1, 74, 74), (2, 77, 79)]
    text = "".join(_WATCHDOG.format(rank=rank, call=call, last=last) for rank, call, last in told)
    (tmp_path / "run.log").write_text(text, encoding="utf-8")
    found = findings_of(load(tmp_path / "run.log"))[0]
    assert found.title == "A collective timed out in ALLREDUCE, call 77: rank 1 did not arrive"
    assert found.ranks == (1,)


def test_the_call_that_timed_out_is_that_of_the_ranks_that_came(tmp_path: Path) -> None:
    told = [(0, 74, 74), (1, 77, 79), (2, 77, 79)]
    text = "".join(_WATCHDOG.format(rank=rank, call=call, last=last) for rank, call, last in told)
    (tmp_path / "run.log").write_text(text, encoding="utf-8")
    found = findings_of(load(tmp_path / "run.log"))[0]
    assert found.title == "A collective timed out in ALLREDUCE, call 77: rank 0 did not arrive"
    assert "It waits itself, in ALLREDUCE, call 74: it skipped a collective" in found.summary


def test_a_timeout_whose_collective_is_cut_off_is_told_by_its_number() -> None:
    """As a terminal of 156 columns left it."""
    cut = (
        "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=473096, OpType=_ALLGATHER\n"
    )
    found = findings_of(run_of_text(f"[rank4]:[E ProcessGroupNCCL.cpp:692] [Rank 4] {cut}"))[0]
    assert found.title == "A collective timed out in call 473,096"
    assert "OpType=" not in found.evidence[0].text


def test_numbers_of_two_process_groups_say_nothing_of_who_is_behind(tmp_path: Path) -> None:
    told = [(0, 77, 79), (1, 12, 12), (2, 77, 79)]
    lines = [_WATCHDOG.format(rank=rank, call=call, last=last) for rank, call, last in told]
    lines[1] = lines[1].replace("ID 0 PG GUID 0(default_pg)", "ID 3 PG GUID 17")
    (tmp_path / "run.log").write_text("".join(lines), encoding="utf-8")
    found = findings_of(load(tmp_path / "run.log"))[0]
    assert "did not arrive" not in found.title
    assert found.confidence == "medium"


def test_ranks_that_wait_in_different_collectives_blame_nobody() -> None:
    text = "OpType=ALLREDUCE, NumelIn={0}, NumelOut={0}, Timeout(ms)=600000"
    big, small = text.format(25427968), text.format(1)
    rows = [
        problem("watchdog", big, rank=0, count=1516),
        metric("last_enqueued_work", None, 1516),
        problem("watchdog", small, rank=1, count=1517),
    ]
    found = one(run_of(rows), "hang")
    assert "did not arrive" not in found.title
    assert "They wait in different ones" in found.summary
    assert found.ranks == ()


def test_one_rank_that_waits_is_told_as_one() -> None:
    assert one(run_of([*steps(12, WELL), *watchdog(2, 882)]), "hang").summary.startswith(
        "One rank reports a timeout."
    )


def test_a_checkpoint_that_could_not_be_written_is_what_ended_a_process() -> None:
    rows = [problem("checkpoint-failed", "Failed saving", rank=0), problem("exit", "1", value=1)]
    found = one(
        run_of([*steps(10, WELL), *(row | {"pattern": FAILED} for row in rows)]), "rank-died"
    )
    assert found.title == "Rank 0 could not write a checkpoint after step 10: Failed saving"
    assert found.advice[0].setting == "storage"


def test_a_survived_error_is_a_warning_and_no_verdict() -> None:
    wandb = problem("exception", "requests.exceptions.ConnectionError: retrying")
    for kind, text in (("exception", str(wandb["text"])), ("oom", OOM)):
        run = run_of([*steps(5, SLOW), problem(kind, text), *steps(59, SLOW)[15:]], world_size=4)
        found = one(run, "earlier-failure")
        assert found.severity is Severity.WARNING
        assert found.title == "An error was survived: training went on to step 59"
        assert rules(run)[0] == "communication-bound"
        assert rules(run)[-1] == "earlier-failure"
        assert not {"oom", "rank-died"} & set(rules(run))


def test_a_survived_error_alone_leaves_the_verdict_to_what_is_known() -> None:
    rows = [metric("loss", step, 1.0) for step in range(1, 60)]
    run = run_of([*rows[:5], problem("exception", "ConnectionError: retrying in 5 s"), *rows[5:]])
    assert rules(run)[0] != "earlier-failure"
    assert one(run, "earlier-failure").summary.startswith("Printed after step 5: ConnectionError")


def of_launch(segment: int, rows: list[Row]) -> list[Row]:
    return [row | {"segment": segment} for row in rows]


def test_a_launch_that_failed_before_one_that_did_not_is_no_verdict() -> None:
    run = run_of(
        [*steps(7, SLOW), problem("oom", OOM, rank=1), *of_launch(1, steps(20, SLOW))],
        world_size=4,
    )
    found = one(run, "earlier-failure")
    assert found.title == (
        "An earlier launch failed; the last one came to step 20 and shows no failure"
    )
    assert found.summary.startswith("Launch 1 of 2: Rank 1 ran out of GPU memory after step 7: ")
    assert "oom" not in rules(run)
    assert rules(run)[0] == "communication-bound"


def test_a_cause_behind_what_it_led_to_is_not_said_to_be_the_first_message() -> None:
    waited = (
        "[E ProcessGroupNCCL.cpp:474] [Rank 1] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=3, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=1800000) ran for "
        "1800790 milliseconds before timing out.\n"
    )
    raised = 'Traceback (most recent call last):\n  File "t.py", line 1, in f\nValueError: no\n'
    assert one(run_of_text(waited, raised), "rank-died").summary == (
        "It is the likeliest cause of the failure messages in the source, some before it."
    )
    assert one(run_of_text(raised, waited), "rank-died").summary == (
        "It was the first failure in the source; other messages come after it."
    )


def test_each_launch_has_its_own_failure_and_its_own_victims() -> None:
    failed = [problem("exception", "RuntimeError: x", rank=1), problem("exit", "1", value=1)]
    run = run_of([*failed, *of_launch(1, failed), *of_launch(2, failed)])
    assert one(run, "rank-died").summary == (
        "It was the first failure of the last of 3 launches; other messages come after it."
    )
    found = one(run, "earlier-failure")
    assert found.title == "2 earlier launches failed too"
    assert found.summary == (
        "Launches 1 and 2 of 3: Rank 1 ended with an exception: RuntimeError: x."
    )


def test_earlier_launches_that_failed_each_in_its_way_are_told_one_by_one() -> None:
    first, second = problem("oom", OOM, rank=1), problem("exception", "KeyError: x", rank=0)
    found = one(run_of([first, *of_launch(1, [second]), *of_launch(2, [first])]), "earlier-failure")
    assert found.summary.startswith("Launch 1 of 3: Rank 1 ran out of GPU memory")
    assert "Launch 2 of 3: Rank 0 ended with an exception: KeyError: x." in found.summary


@pytest.mark.parametrize(
    ("rule", "kind", "text"),
    [
        ("oom", "oom", OOM),
        ("rank-died", "exception", "ValueError: bad"),
        ("hang", "watchdog", "Watchdog caught collective operation timeout"),
        ("hang", "stuck", "watchdog got stuck"),
    ],
)
def test_a_failure_of_a_file_without_times_and_steps_may_be_of_any_launch(
    rule: str, kind: str, text: str
) -> None:
    launches = [*of_launch(0, steps(9, WELL)), *of_launch(1, steps(9, WELL))]
    told = [row | {"source": f"{row['segment']}.log"} for row in launches]

    def said(**more: Any) -> Finding:
        return one(run_of([*told, problem(kind, text, rank=1, segment=1, **more)]), rule)

    apart = said(source="errors.txt")
    assert apart.confidence == "low"
    assert "Nothing shows to which of 2 launches it belongs" in apart.summary
    for placed in (
        said(source="1.log"),
        said(source="errors.txt", at=pd.Timestamp(2024, 5, 6)),
        said(source="errors.txt", step=3),
        said(source="1_rank1.log"),
    ):
        assert placed.confidence != "low"
        assert "Nothing tells" not in placed.summary


def test_advice_is_on_the_settings_of_the_launch_that_failed() -> None:
    rows = [*steps(9, WELL), *of_launch(1, [config("zero_stage", 1), problem("oom", OOM, rank=0)])]
    run = run_of(rows, micro_batch_size=8, zero_stage=3)
    advice = {a.setting: (a.now, a.to) for a in one(run, "oom").advice}
    assert advice["train_micro_batch_size_per_gpu"] == ("", "smaller")
    assert advice["zero_optimization.stage"] == ("1", "2")


def test_a_variable_that_the_launcher_exports_is_known() -> None:
    command = "pdsh -w a,b export NCCL_DEBUG=INFO; export NCCL_IB_DISABLE=1;  cd /x; python"
    rows = [config("network", "Socket"), config("launch_command", command), *steps(10, WELL)]
    advice = {a.setting: a.now for a in one(run_of(rows, nodes=2), "network-fallback").advice}
    assert advice == {"NCCL_IB_DISABLE": "1", "NCCL_IB_HCA": ""}


def test_sockets_between_nodes_are_a_fallback() -> None:
    run = run_of([config("network", "Socket"), *steps(10, WELL)], nodes=2)
    found = one(run, "network-fallback")
    assert found.severity is Severity.CRITICAL
    assert found.evidence[0].text == "Using network Socket"


def test_sockets_on_one_node_are_no_finding() -> None:
    run = run_of([config("network", "Socket"), *steps(10, WELL)], nodes=1)
    assert silent(run, "network-fallback")


def test_infiniband_is_no_finding() -> None:
    assert silent(run_of([config("network", "IB"), *steps(10, WELL)], nodes=4), "network-fallback")


def test_sockets_of_an_unknown_number_of_nodes_are_not_judged() -> None:
    run = run_of([config("network", "Socket"), *steps(10, WELL)])
    assert "unknown" in (why(run, "network-fallback") or "")


@pytest.mark.parametrize("nodes", [[], [config("nodes", 1)]])
def test_a_missing_adapter_alone_is_no_proof_of_sockets_between_nodes(nodes: list[Row]) -> None:
    lost = problem("network-fallback", "NET/IB : No device found.", host="w0")
    run = run_of([*nodes, lost, config("network", "Socket"), *steps(10, WELL)])
    assert "network-fallback" not in rules(run)
    assert (why(run, "network-fallback") is None) is bool(nodes)
    assert one(run_of([lost, *steps(10, WELL)], nodes=2), "network-fallback")


def test_a_network_that_is_no_socket_is_used_whatever_was_looked_for_first() -> None:
    lost = problem("network-fallback", "NET/IB : No device found.", host="w0")
    run = run_of([lost, config("network", "AWS Libfabric"), *steps(10, WELL)], nodes=2)
    assert silent(run, "network-fallback")


def test_a_channel_over_sockets_is_proof_of_several_nodes(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    said = "w0:12:30 [0] NCCL INFO "
    log.write_text(
        f"{said}Using network Socket\n"
        f"{said}Channel 00/0 : 0[0] -> 1[1] via P2P/IPC\n"
        f"{said}Channel 00/0 : 0[0] -> 8[0] [send] via NET/Socket/0\n"
    )
    found = one(load(log), "network-fallback")
    assert [(proof.text, proof.line) for proof in found.evidence] == [
        ("Using network Socket", 1),
        ("a channel via NET/Socket/0", 3),
    ]


def test_a_run_of_which_nothing_is_known_yet_has_not_failed() -> None:
    run = run_of([])
    for rule in ("oom", "rank-died", "hang", "earlier-failure"):
        assert silent(run, rule)


def test_a_run_that_did_not_fail_has_no_failure() -> None:
    run = run_of(steps(40, WELL), world_size=4, zero_stage=1)
    assert findings_of(run)[0].rule == "healthy"
    for rule in ("oom", "rank-died", "hang"):
        assert silent(run, rule)


def test_a_card_that_is_full_for_nccl_is_named_and_so_is_what_was_asked_for() -> None:
    full = problem("oom", "Cuda failure 2 'out of memory'", value=1)
    refused = {"kind": "memory", "name": "refused", "bytes": 16, "value": 1}
    found = one(run_of([full, refused]), "oom")
    assert found.title == "A process ran out of GPU memory (GPU 1)"
    assert "It asked for 16 B more." in found.summary


def test_a_port_that_one_address_refuses_ends_nothing(tmp_path: Path) -> None:
    """c10d tries IPv6, then IPv4: only where it can listen nowhere is the port taken."""
    said = (
        "[W socket.cpp:426] [c10d] The server socket has failed to bind to [::]:29500 "
        "(errno: 98 - Address already in use).\n"
        "[W socket.cpp:601] [c10d] The client socket has failed to connect to [a]:29500 "
        "(errno: 110 - Connection timed out).\n"
    )
    ended = (
        "[E socket.cpp:462] [c10d] The server socket has failed to listen on any local "
        "network address.\n"
    )
    for text, found in ((said, ["unaccounted-time"]), (said + ended, ["rank-died"])):
        (tmp_path / "run.log").write_text(text, encoding="utf-8")
        assert rules(load(tmp_path / "run.log"))[:1] == found


ENDED = """[2026-11-21 05:49:21,956] [INFO] [launch.py:170:main] dist_world_size=2
[2026-11-21 05:50:00,000] [INFO] [logging.py:107:log_dist] [Rank 0] step=10, skipped=0, lr=[0.1], mom=[0]
[2026-11-21 05:50:10,000] [INFO] [logging.py:107:log_dist] [Rank 0] step=20, skipped=0, lr=[0.1], mom=[0]
Traceback (most recent call last):
  File "train.py", line 9, in upload
ConnectionError: no route to the hub
[2026-11-21 05:52:22,114] [INFO] [launch.py:351:main] Process 31114 exits successfully.
[2026-11-21 05:52:22,114] [INFO] [launch.py:351:main] Process 31115 exits successfully.
"""  # noqa: E501


def test_an_error_of_a_launch_that_ended_well_is_no_verdict(tmp_path: Path) -> None:
    (tmp_path / "run.log").write_text(ENDED, encoding="utf-8")
    found = findings_of(load(tmp_path / "run.log"))
    assert found[0].rule not in {"rank-died", "earlier-failure"}
    titles = [one.title for one in found]
    assert "The launch ended well; an error was printed on the way" in titles


@pytest.mark.parametrize(
    "other",
    [
        "",  # the log was cut before
        "[2026-11-21 05:52:22,114] [INFO] [launch.py:316:sigkill_handler] Killing subprocess 31115",
        "[2026-11-21 05:52:22,114] [ERROR] [launch.py:322] ['python'] exits with return code = 1",
    ],
)
def test_a_launch_of_which_one_process_ended_well_may_have_failed(
    tmp_path: Path, other: str
) -> None:
    text = "".join([*ENDED.splitlines(keepends=True)[:-1], other, "\n"])
    (tmp_path / "run.log").write_text(text, encoding="utf-8")
    assert findings_of(load(tmp_path / "run.log"))[0].rule == "rank-died"


WELL_ENDED = "".join(ENDED.splitlines(keepends=True)[i] for i in (0, 1, 2, 6, 7))
TRACEBACK = """Traceback (most recent call last):
  File "reader.py", line 12, in close
    self._close()
OSError: [Errno 9] Bad file descriptor
"""


@pytest.mark.parametrize("before", [WELL_ENDED, "".join(ENDED.splitlines(keepends=True)[:3])])
@pytest.mark.parametrize(
    "word",
    [
        "Exception ignored in: <function Reader.__del__ at 0x7f00>",
        "Exception ignored in atexit callback: <function close at 0x7f00>",
        "Error in atexit._run_exitfuncs:",
        "Exception in thread Thread-1 (upload):",
        "Task exception was never retrieved\nfuture: <Task finished name='Task-1' coro=<f()>>",
    ],
)
def test_an_exception_that_python_only_prints_ends_no_process(
    tmp_path: Path, before: str, word: str
) -> None:
    (tmp_path / "run.log").write_text(f"{before}{word}\n{TRACEBACK}", encoding="utf-8")
    run = load(tmp_path / "run.log")
    assert ends.first_failure(run) is None
    assert "rank-died" not in rules(run)


def test_an_exception_behind_one_that_python_only_printed_is_the_failure(tmp_path: Path) -> None:
    own = TRACEBACK.replace("OSError: [Errno 9] Bad file descriptor", "ValueError: no")
    text = f"Exception in thread Thread-1:\n{TRACEBACK}{own}"
    (tmp_path / "run.log").write_text(text, encoding="utf-8")
    found = one(load(tmp_path / "run.log"), "rank-died")
    assert found.title == "A process ended with an exception: ValueError: no"
    assert "the only failure" in found.summary


CHAINED = "\nDuring handling of the above exception, another exception occurred:\n\n"


@pytest.mark.parametrize(
    ("word", "ends_it"), [("Exception in thread Thread-1:\n", False), ("", True)]
)
def test_a_chain_of_exceptions_is_printed_or_fatal_as_its_first_one_is(
    tmp_path: Path, word: str, *, ends_it: bool
) -> None:
    text = word + CHAINED.join([TRACEBACK, TRACEBACK, TRACEBACK])
    (tmp_path / "run.log").write_text(text, encoding="utf-8")
    run = load(tmp_path / "run.log")
    assert len(run.problems) == 3
    assert ("rank-died" in rules(run)) is ends_it


CANCELLED = "slurmstepd: error: *** STEP 123.0 ON node7 CANCELLED AT 2026-11-21T07:00:00 ***\n"


def test_a_launch_that_had_ended_well_was_not_ended_by_what_comes_later(tmp_path: Path) -> None:
    (tmp_path / "run.log").write_text(WELL_ENDED + CANCELLED, encoding="utf-8")
    assert "rank-died" not in rules(load(tmp_path / "run.log"))


def test_a_launch_of_which_a_process_had_not_ended_yet_was_ended_by_the_scheduler(
    tmp_path: Path,
) -> None:
    text = "".join(WELL_ENDED.splitlines(keepends=True)[:-1]) + CANCELLED
    (tmp_path / "run.log").write_text(text, encoding="utf-8")
    assert "was ended by the scheduler" in one(load(tmp_path / "run.log"), "rank-died").title


@pytest.mark.parametrize(("stage", "advised"), [(0, False), (2, True)])
def test_less_offloading_is_advised_only_where_there_may_be_some(stage: int, advised: bool) -> None:
    run = run_of([problem("signal", "Signal 9 (SIGKILL)", value=9, rank=1)], zero_stage=stage)
    found = one(run, "rank-died")
    assert any("offload_optimizer" in advice.setting for advice in found.advice) is advised


def test_an_optimizer_that_is_not_offloaded_is_not_advised_to_be_offloaded_less() -> None:
    killed = problem("signal", "Signal 9 (SIGKILL)", value=9, rank=1)
    told = {"kind": "config", "name": "cpu_offload", "raw": "CPU Offload", "text": "False"}
    advised = one(run_of([killed, told], zero_stage=1), "rank-died").advice
    assert not any("offload" in advice.setting for advice in advised)


def test_a_recording_without_deepspeed_is_not_advised_to_offload_less() -> None:
    killed = problem("signal", "killed by SIGKILL", value=9, rank=1, source="rank00001.0.dsprof")
    assert not any("zero" in advice.setting for advice in one(run_of([killed]), "rank-died").advice)


def test_a_full_gpu_is_not_blamed_on_a_process_that_nothing_shows() -> None:
    full = problem("oom", "Cuda failure 2 'out of memory'", host="w0")
    first, second = one(run_of([full]), "oom").advice
    assert "by this process, or by another one" in first.why
    assert second.why.startswith("if two ranks share this GPU")


@pytest.mark.parametrize("kind", sorted(ends.ENDED))
def test_every_cure_says_why(kind: str) -> None:
    assert all(advice.why for advice in cures(kind, ""))


_IN_STEP = """[rank1]: Traceback (most recent call last):
[rank1]:   File "train.py", line 135, in main
[rank1]:     model_engine.{call}()
[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.44 GiB. GPU 1 has a total
"""


@pytest.mark.parametrize(("call", "inside"), [("step", True), ("backward", False)])
def test_memory_that_the_update_asks_for_is_not_sought_in_activations(
    tmp_path: Path, call: str, inside: bool
) -> None:
    (tmp_path / "run.log").write_text(_IN_STEP.format(call=call), encoding="utf-8")
    found = one(load(tmp_path / "run.log"), "oom")
    settings = [advice.setting for advice in found.advice]
    assert ("passes through step()" in found.summary) is inside
    assert ("zero_optimization.offload_optimizer.device" in settings) is inside
    assert ("activation checkpointing" in settings) is not inside


STUCK = (
    "[rank{0}]:[F ProcessGroupNCCL.cpp:1169] [PG 0 Rank {0}] ProcessGroupNCCL's watchdog got stuck "
    "for 600 seconds without making progress in monitoring enqueued collectives.\n"
)
TIMEOUT = (
    "[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, "
    "NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600004 milliseconds before timing out.\n"
)
GONE = "NET/IB : Got completion from peer 10.0.0.7<38536> with error 12, opcode 0, len 0\n"


def test_a_stuck_watchdog_is_no_collective_that_timed_out(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text(STUCK.format(0) + STUCK.format(1))
    found = one(load(log), "hang")
    assert found.title == "NCCL's watchdog of 2 ranks was stuck"
    assert found.confidence == "medium"
    assert found.ranks == (0, 1)


def test_a_timeout_is_told_once_however_often_its_watchdog_says_it(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    end = "[rank3]:[E901 05:20:03.6 ProcessGroupNCCL.cpp:1899] [PG ID 0 Rank 3] Process group "
    end += f"watchdog thread terminated with exception: {TIMEOUT}"
    log.write_text(end)
    assert one(load(log), "hang").title == "A collective timed out in ALLREDUCE, call 7"
    log.write_text(f"[rank3]:[E901 05:20:03.6 ProcessGroupNCCL.cpp:616] {TIMEOUT}{end}")
    run = load(log)
    assert run.problems["line"].tolist() == [1]


def test_the_link_that_ended_a_process_comes_before_the_exceptions_it_raised(
    tmp_path: Path,
) -> None:
    log = tmp_path / "run.log"
    log.write_text(
        "terminate called after throwing an instance of 'std::runtime_error'\n"
        "  what():  NCCL error: remote process exited or there was a network error\n"
        "Last error:\n" + GONE
    )
    found = one(load(log), "rank-died")
    assert found.title.startswith("A process lost its network link: NET/IB")
    assert "retries ran out" in found.summary
    assert silent(load(log), "network-fallback")


def test_a_queue_that_an_earlier_error_closed_is_not_called_a_broken_link(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    flushed = "NET/IB: Got completion from peer 10.0.0.7<41322> with status=5 opcode=0 len=0\n"
    log.write_text("w0:288:1307 [4] ib_plugin.c:1673 NCCL WARN " + flushed)
    found = one(load(log), "network-fallback")
    assert found.title == "NCCL reports a queue that an earlier error had closed"
    log.write_text(
        log.read_text() + "ncclRemoteError: A call failed possibly due to a network error"
    )
    died = one(load(log), "rank-died")
    assert died.title.startswith("A process lost its connection to a peer: ncclRemoteError")


def test_a_broken_link_that_ends_nobody_is_no_death_and_says_nothing_of_sockets(
    tmp_path: Path,
) -> None:
    log = tmp_path / "run.log"
    log.write_text("w0:288:1307 [0] transport/net_ib.cc:94 NCCL WARN " + GONE)
    run = load(log)
    found = one(run, "network-fallback")
    assert "rank-died" not in rules(run)
    assert "retries ran out" in found.summary
    assert "ockets" not in found.summary


def test_an_exception_without_its_reason_comes_behind_a_timeout(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text(
        "terminate called after throwing an instance of 'std::runtime_error'\n" + TIMEOUT
    )
    assert one(load(log), "hang").title.startswith("A collective timed out")


def test_a_timeout_behind_a_restart_is_another_one() -> None:
    """A job that hangs at the same collective after each restart."""
    rows = [
        problem("watchdog", "OpType=ALLREDUCE", rank=3, count=7),
        problem("restart", "1/3"),
        problem("watchdog", "OpType=ALLREDUCE", rank=3, count=7),
    ]
    assert run_of(rows).problems["kind"].tolist() == ["watchdog", "restart", "watchdog"]


def test_a_watchdog_that_was_stuck_reports_no_timeout(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text(TIMEOUT + STUCK.format(5))
    found = one(load(log), "hang")
    assert found.title.startswith("A collective timed out")
    assert found.summary.startswith("One rank reports a timeout.")


_NEW = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 9.25 GiB. GPU 3 has a total "
    "capacity of 79.25 GiB of which 7.00 GiB is free. Of the allocated memory 60.00 GiB is "
    "allocated by PyTorch, and {} is reserved by PyTorch but unallocated."
)
_OLD = (
    "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 23.50 GiB total "
    "capacity; 19.00 GiB already allocated; 1.00 GiB free; {} reserved in total by PyTorch)"
)


@pytest.mark.parametrize(
    ("text", "fragmented"),
    [
        (_NEW.format("10.25 GiB"), True),
        (_NEW.format("120.50 MiB"), False),
        (_OLD.format("22.00 GiB"), True),
        (_OLD.format("20.50 GiB"), False),
    ],
)
def test_memory_that_is_held_in_pieces_is_sought_there_first(text: str, fragmented: bool) -> None:
    found = one(run_of([*steps(3, WELL), problem("oom", text, rank=3)]), "oom")
    first = found.advice[0].setting == "PYTORCH_CUDA_ALLOC_CONF"
    assert (first, "memory is fragmented" in found.summary) == (fragmented, fragmented)


def test_memory_that_evaluation_asks_for_is_no_matter_of_the_batch_of_training(
    tmp_path: Path,
) -> None:
    log = tmp_path / "run.log"
    log.write_text(
        "Traceback (most recent call last):\n"
        '  File "/opt/venv/transformers/trainer.py", line 4100, in evaluation_loop\n'
        "    losses = self.prediction_step(model, inputs)\n"
        '  File "/opt/venv/model.py", line 9, in forward\n'
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    )
    found = one(load(log), "oom")
    assert [advice.setting for advice in found.advice] == [
        "per_device_eval_batch_size",
        "eval_accumulation_steps, prediction_loss_only",
    ]


@pytest.mark.parametrize(
    ("kind", "text", "said"),
    [
        (
            "network-error",
            "Connect to 10.0.0.7<36123> failed : Connection refused",
            "could not connect to a peer",
        ),
        (
            "rendezvous",
            "RendezvousConnectionError: The connection to the C10d store has failed.",
            "did not reach the launcher's store, or lost it",
        ),
    ],
)
def test_an_address_nobody_answers_at_is_no_link_that_was_lost(
    kind: str, text: str, said: str
) -> None:
    run = run_of([problem(kind, text, rank=0), problem("exit", "", value=1.0)])
    assert one(run, "rank-died").title == f"Rank 0 {said}: {text}"


def test_a_timeout_whose_line_is_cut_names_no_other_collective() -> None:
    told = "[rank%d]:[E816 00:34:01.%d ProcessGroupNCCL.cpp:629] [Rank %d] Watchdog caught "
    told += "collective operation timeout: WorkNCCL(SeqNum=37, OpType=_ALLGATHER_BA%s\n"
    whole = "SE, NumelIn=8, NumelOut=16, Timeout(ms)=600000) ran for 600004 milliseconds."
    lines = (told % (2, 1, 2, "[45/1919]"), told % (0, 2, 0, whole))
    found = one(run_of_text(*lines), "hang")
    assert found.title == "A collective timed out in _ALLGATHER_BASE, call 37"
    assert "different" not in found.summary


def test_calls_that_do_not_match_are_named_where_the_message_lacks_a_comma() -> None:
    text = (
        "RuntimeError: Detected mismatch between collectives on ranks. Rank 4 is running "
        "collective: CollectiveFingerPrint(SequenceNumber=101, OpType=ALLGATHER), but Rank 7 is "
        "running collective: CollectiveFingerPrint(SequenceNumber=0OpType=REDUCE)."
    )
    found = one(run_of([problem("desync", text, rank=4)]), "hang")
    assert "rank 4 called ALLGATHER, rank 7 called REDUCE. One rank skipped" in found.summary


def test_an_exception_of_the_thread_that_feeds_a_queue_ends_no_process() -> None:
    found = one(
        run_of_text(
            "Traceback (most recent call last):\n",
            '  File "/usr/lib/python3.11/multiprocessing/queues.py", line 239, in _feed\n',
            "    obj = _ForkingPickler.dumps(obj)\n",
            "OSError: handle is closed\n",
            "[2026-02-06 16:38:58,013] [ERROR] [launch.py:324:sigkill_handler] "
            "['python', 'train.py'] exits with return code = -9\n",
        ),
        "rank-died",
    )
    assert found.title.startswith("A process was killed by SIGKILL")


def test_a_script_that_stops_at_a_loss_that_is_none_ended_of_that() -> None:
    stops = problem("nan", "Loss is nan, stopping training", step=40)
    ended = problem("exit", "exitcode 1", value=1.0, step=40)
    found = one(run_of([*steps(40, WELL), stops, ended]), "rank-died")
    assert found.title.startswith("A process stopped because its loss is not a number after step")
    skipped = problem("nan", "loss is NaN", step=40)
    found = one(run_of([*steps(40, WELL), skipped, ended]), "rank-died")
    assert found.title.startswith("A process exited with an error")
    assert silent(run_of([*steps(40, WELL), skipped]), "rank-died")


def test_the_one_rank_that_waits_in_another_collective_is_told_by_its_number() -> None:
    text = "OpType=_ALLGATHER_BASE, NumelIn={}, NumelOut={}, Timeout(ms)=600000"
    rows = [
        problem("watchdog", text.format(size, 8 * size), rank=rank, count=150)
        for rank, size in ((2, 4096), (1, 4096), (3, 128))
    ]
    said = " Rank 3 alone waits in OpType=_ALLGATHER_BASE, NumelIn=128, NumelOut=1024."
    assert said in one(run_of(rows), "hang").summary
    assert "alone waits in" not in one(run_of(rows[1:]), "hang").summary


def test_what_a_worker_of_a_data_loader_raised_is_told_as_it_said() -> None:
    found = one(
        run_of_text(
            "[rank1]: Traceback (most recent call last):\n",
            '[rank1]:   File "/opt/torch/_utils.py", line 428, in reraise\n',
            "[rank1]:     raise self.exc_type(msg)\n",
            "[rank1]: IndexError: Caught IndexError in DataLoader worker process 2.\n",
            "[rank1]: Original Traceback (most recent call last):\n",
            '[rank1]:   File "/data/train/pages.py", line 122, in __getitem__\n',
            "[rank1]:     box = boxes[i]\n",
            "[rank1]: IndexError: list index out of range\n",
        ),
        "rank-died",
    )
    assert found.title == "Rank 1 ended with an exception: IndexError: list index out of range"
    assert found.advice == ()


def test_a_command_line_that_is_not_taken_is_told_and_not_the_code_that_follows() -> None:
    header = "[2026-11-23 22:41:55,673] [ERROR] [launch.py:325:sigkill_handler] "
    usage = "usage: train.py [-h] [--steps STEPS]\n"
    error = "train.py: error: unrecognized arguments: --setps 10\n"
    ended = "['python3', '-u', 'train.py', '--local_rank=1'] exits with return code = 2\n"
    found = one(run_of_text(2 * (usage + error) + header + ended), "rank-died")
    assert found.title == (
        "A process rejected its command line: error: unrecognized arguments: --setps 10"
    )
    assert found.evidence[0].line == 2
    assert found.advice[0].setting == "command line of the script"
