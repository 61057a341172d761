"""Of everything that fails when a rank dies, the first cause is named, not its victims."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from dsprof.run import from_events, load
from tests.loaded import run_of_text
from tests.run.run_rows import events, grammar_with

START = pd.Timestamp("2024-01-01")


def problem(name: str, text: str = "", *, at: float | None = None, **more: Any) -> dict[str, Any]:
    when = {} if at is None else {"at": START + pd.Timedelta(seconds=at)}
    return {"kind": "problem", "name": name, "text": text} | when | more


def causes(*rows: dict[str, Any]) -> list[int]:
    """Which of `rows` are root causes."""
    found = from_events(events(rows), grammar=grammar_with()).problems
    return [int(line) - 1 for line in found.loc[found["root_cause"], "line"]]


def test_an_out_of_memory_beats_the_connections_it_breaks() -> None:
    assert causes(
        problem("connection", "Connection closed by peer"),
        problem("oom", "CUDA out of memory", rank=1),
        problem("killed-by-launcher"),
        problem("exit", value=1),
    ) == [1]


UNEQUAL = (
    "RuntimeError: DDP expects same model across all ranks, but Rank 1 has 5 params, while rank"
)


def test_an_exception_of_a_rank_whose_collective_had_timed_out_is_no_cause() -> None:
    waited = [problem("watchdog", "OpType=ALLGATHER", rank=rank, count=1) for rank in (0, 1)]
    assert causes(*waited, problem("exception", UNEQUAL, rank=1)) == [0]
    assert causes(*waited, problem("exception", UNEQUAL, rank=2)) == [2]
    assert causes(problem("exception", UNEQUAL, rank=1), *waited) == [0]


def test_a_number_of_parameters_that_never_arrived_is_no_difference_between_models() -> None:
    waited = problem("watchdog", "OpType=ALLGATHER", rank=3, count=1)
    assert causes(problem("exception", f"{UNEQUAL} 0 has inconsistent 0 params."), waited) == [1]
    assert causes(problem("exception", f"{UNEQUAL} 0 has inconsistent 7 params."), waited) == [0]


def test_a_traceback_behind_a_timeout_that_names_neither_rank_nor_error_is_no_cause() -> None:
    waited = problem("watchdog", "OpType=ALLGATHER", rank=2, count=1)
    cut = 'its traceback breaks off at File "train.py", line 9, in main'
    assert causes(waited, problem("exception", cut)) == [0]
    assert causes(waited, problem("exception", cut, rank=5)) == [1]
    waited_first = problem("watchdog", "OpType=ALLGATHER", rank=2, count=1, at=0.0)
    assert causes(waited_first, problem("exception", cut, rank=5, at=1.0)) == [0]
    assert causes(problem("exception", cut), waited) == [0]
    apart = problem("rendezvous", "The client socket has timed out after 60s")
    assert causes(apart, problem("exception", cut)) == [0]
    assert causes(apart, problem("exception", "KeyError: 'x'")) == [1]


def test_a_traceback_that_breaks_off_behind_a_broken_connection_is_no_cause_of_it() -> None:
    """It is most likely what its own rank raised there: what it was is not told."""
    cut = 'its traceback breaks off at File "train.py", line 9, in main'
    link = problem("network-error", "NET/OFI Request completed with error", rank=3)
    assert causes(link, problem("exception", cut, rank=2)) == [0]
    assert causes(link, problem("exception", "KeyError: 'x'", rank=2)) == [1]
    assert causes(problem("exception", cut, rank=2), link) == [0]


def test_a_traceback_that_breaks_off_behind_a_failed_build_of_its_rank_is_no_cause_of_it() -> None:
    cut = 'its traceback breaks off at File "train.py", line 9, in main'
    build = problem("build-failed", "ninja returned non-zero exit status 1", rank=1)
    assert causes(build, problem("exception", cut, rank=1)) == [0]
    assert causes(build, problem("exception", cut, rank=2)) == [1]


def test_who_only_tells_of_anothers_timeout_may_have_been_late_by_its_own_fault() -> None:
    dump = "Received a dump signal due to a collective timeout from  rank 13"
    waited = problem("watchdog", dump, rank=0)
    assert causes(waited, problem("exception", "ValueError: batch", rank=0)) == [1]


def test_who_only_tells_of_anothers_timeout_is_not_named_for_it() -> None:
    dump = "Received a dump signal due to a collective timeout from  rank 13"
    own = problem("watchdog", "OpType=ALLREDUCE, Timeout(ms)=600000", rank=13)
    relayed = problem("watchdog", dump, rank=0)
    rows = from_events(events([relayed, own]), grammar=grammar_with()).problems
    assert rows["rank"].tolist() == [13, 13]
    assert rows["root_cause"].tolist() == [False, True]
    alone = from_events(events([relayed]), grammar=grammar_with()).problems
    assert (alone["rank"].tolist(), alone["root_cause"].tolist()) == ([13], [True])


def test_the_earliest_of_several_faults_counts_even_if_printed_later() -> None:
    assert causes(
        problem("exception", "KeyError: 'b'", at=20.0),
        problem("exception", "KeyError: 'a'", at=3.0),
    ) == [1]


@pytest.mark.parametrize("status", ["error 5,", "status=5 "])
def test_a_completion_that_an_earlier_error_flushed_is_no_cause(status: str) -> None:
    flushed = problem("network-error", f"NET/IB: Got completion from peer w1<4> with {status}")
    failed = problem("network-error", "NET/IB: Got completion from peer w1<4> with status=12 ")
    assert causes(flushed) == []
    assert causes(flushed, failed) == [1]
    assert causes(flushed, problem("connection", "ncclRemoteError: A call failed")) == [1]


@pytest.mark.parametrize(
    "said",
    [
        "RuntimeError: [/src/gloo/transport/tcp/buffer.cc:78] Timed out waiting 8000ms for recv",
        "RuntimeError: Rank 1 failed to pass monitoredBarrier in 8000 ms",
    ],
)
def test_an_exception_of_waiting_is_of_the_rank_that_did_not_come(said: str) -> None:
    assert causes(problem("exception", said, rank=0), problem("absent", "it hangs", rank=1)) == [1]


def test_who_gave_up_is_no_victim_of_whom_it_left() -> None:
    """Gloo's pair of the two fails on both sides, and the other may tell it a moment before."""
    waited = (
        "RuntimeError: [/src/gloo/transport/tcp/buffer.cc:78] Timed out waiting 8000ms for recv"
    )
    closed = "RuntimeError: [/src/gloo/transport/tcp/pair.cc:553] Connection closed by peer [::1]:7"
    assert causes(
        problem("exception", closed, rank=0, at=10.0), problem("exception", waited, rank=1, at=10.1)
    ) == [1]


def test_who_aborted_because_another_did_not_come_is_no_cause() -> None:
    """As NCCL's watchdog makes a rank do that waited too long; its recording says nothing of it."""
    rows = [problem("signal", value=6.0, rank=0), problem("absent", rank=1)]
    assert causes(*rows) == [1]
    assert causes(rows[0] | {"value": 11.0}, rows[1]) == [0]


def test_an_exception_about_a_peer_is_a_victim() -> None:
    assert causes(
        problem("exception", "RuntimeError: [pair.cc:553] Connection closed by peer", rank=0),
        problem("exception", "ValueError: bad batch", rank=1),
    ) == [1]


@pytest.mark.parametrize(
    "said",
    [
        "NCCL error: unhandled system error",
        "Exception: ",
        "torch.distributed.elastic.rendezvous.api.RendezvousClosedError",
        "RuntimeError: [1] is setting up NCCL communicator and retreiving ncclUniqueId from [0]",
        "OSError: Caught OSError in DataLoader worker process 3.",
    ],
)
def test_an_exception_that_only_hands_on_the_end_of_another_is_no_cause(said: str) -> None:
    assert causes(
        problem("exception", said),
        problem("network-error", "NET/IB : Got completion from peer with error 12"),
        problem("exit", "exits with return code = -6", value=-6),
    ) == [1]


@pytest.mark.parametrize("printed", [True, False])
def test_torchruns_summary_tells_an_exception_only_if_its_process_did_not(*, printed: bool) -> None:
    """As where the ranks' own output goes elsewhere."""
    own = "Traceback (most recent call last):\nRuntimeError: no tokenizer\n" if printed else ""
    told = run_of_text(
        f"{own}Root Cause (first observed failure):\n[0]:\n  rank      : 1 (local_rank: 1)\n"
        "  exitcode  : 1 (pid: 9) \n  traceback : Traceback (most recent call last):\n"
        '    File "train.py", line 7, in main\n  RuntimeError: no tokenizer\n  \n'
        f"{'=' * 60}\n"
    ).problems
    told = told[told["kind"] == "exception"]
    assert told["root_cause"].tolist() == [True]
    assert told["rank"].tolist() == ([pd.NA] if printed else [1])
    assert told["line"].tolist() == [2 if printed else 7]


def test_the_rank_that_the_launcher_names_is_believed() -> None:
    assert causes(
        problem("exception", "ValueError: a", rank=0),
        problem("exception", "ValueError: b", rank=1),
        problem("root-cause", "exitcode 1", rank=1),
    ) == [1]


def test_a_fault_long_before_the_watchdog_is_the_cause() -> None:
    assert causes(
        problem("exception", "FileNotFoundError", at=0.0, host="b"),
        problem("watchdog", at=600.0, rank=3, count=880),
    ) == [0]


def test_the_rank_that_enqueued_least_is_the_one_waited_for() -> None:
    waited = [problem("watchdog", rank=r, count=n) for r, n in ((0, 9), (1, 7), (2, 9))]
    assert causes(*waited) == [1]


def test_of_watchdogs_in_the_same_collective_the_first_spoke_first() -> None:
    waited = [problem("watchdog", at=at, rank=r, count=9) for r, at in ((0, 3.0), (1, 1.0))]
    assert causes(*waited) == [1]


REAL = Path(__file__).parents[4] / "shared/corpus/50_trl2605_ip_prefix_tqdm_watchdog_2025.log"


@pytest.mark.skipif(not REAL.exists(), reason="the logs of others are not in the repository")
@pytest.mark.parametrize(("call", "waited_for"), [(100367, 3), (100369, 2)])
def test_of_real_watchdogs_the_one_in_the_earlier_call_is_the_cause(
    tmp_path: Path, call: int, waited_for: int
) -> None:
    """The real log is of one rank; a second one's watchdog speaks behind it."""
    text = REAL.read_text()
    said = next(line for line in text.splitlines() if "Watchdog caught" in line)
    other = said.replace("ank2", "ank3").replace("Rank 2", "Rank 3").replace("100368", str(call))
    log = tmp_path / "run.log"
    log.write_text("".join(line for line in text.splitlines(keepends=True) if "[PG " not in line))
    log.write_text(log.read_text() + other + "\n")
    found = load(log).problems
    assert found.loc[found["root_cause"], "rank"].tolist() == [waited_for]


def test_a_kill_signal_is_a_cause_and_sigterm_is_not() -> None:
    assert causes(problem("exit", value=-15), problem("exit", value=-9)) == [1]
    assert causes(problem("exit", value=-15), problem("killed-by-launcher")) == []


def test_each_restart_has_a_failure_of_its_own() -> None:
    assert causes(problem("oom"), problem("restart"), problem("exit", value=1)) == [0, 2]
    assert causes(problem("oom"), problem("oom", segment=1)) == [0, 1]


def test_warnings_alone_have_no_root_cause() -> None:
    assert causes(problem("network-fallback"), problem("prefetch-broken")) == []


def test_an_optimizer_that_pytorchs_took_the_place_of_is_no_cause_of_a_later_failure() -> None:
    assert causes(problem("optimizer-fallback"), problem("oom")) == [1]


@pytest.mark.parametrize(
    ("name", "severity"), [("oom", "critical"), ("network-fallback", "warning")]
)
def test_severity_follows_the_kind_unless_the_dialect_says(name: str, severity: str) -> None:
    row = problem(name, pattern="x.y")
    assert from_events(events([row]), grammar=grammar_with()).problems["severity"][0] == severity
    pattern = SimpleNamespace(id="x.y", severity="info", from_zero=False, window=0)
    own: Any = SimpleNamespace(timers={}, patterns=(pattern,))
    assert from_events(events([row]), grammar=own).problems["severity"][0] == "info"


def shown(step: int) -> dict[str, Any]:
    return {"kind": "metric", "name": "loss", "value": 1.0, "step": step}


def of(*rows: dict[str, Any]) -> pd.DataFrame:
    return from_events(events(rows), grammar=grammar_with()).problems


def test_an_error_that_two_more_steps_follow_was_survived() -> None:
    found = of(shown(5), problem("exception", "ConnectionError", step=6), shown(6), shown(7))
    assert found["survived"].tolist() == [True]
    assert found["severity"].tolist() == ["warning"]
    assert not found["root_cause"].any()


def test_one_late_line_of_another_rank_does_not_make_a_failure_survived() -> None:
    found = of(shown(5), problem("exception", "ValueError", rank=1), shown(6))
    assert found["root_cause"].tolist() == [True]
    assert not found["survived"].any()


def test_steps_of_the_next_launch_do_not_make_a_failure_survived() -> None:
    later = [shown(step) | {"segment": 1} for step in (1, 2, 3)]
    assert not of(shown(5), problem("oom", "out of memory"), *later)["survived"].any()


def test_of_two_errors_the_one_that_was_survived_is_not_the_cause() -> None:
    rows = [shown(1), problem("oom", "caught"), shown(2), shown(3), problem("exception", "bad")]
    assert causes(*rows, problem("exit", value=1)) == [4]


def test_steps_written_behind_the_only_error_of_a_failed_process_were_late() -> None:
    rows = [problem("exception", "ValueError", rank=1), *(shown(step) for step in range(1, 9))]
    assert causes(*rows, problem("exit", value=1)) == [0]
    assert causes(*rows, problem("exit", value=-9)) == [9]


@pytest.mark.parametrize("quote", ["'", '"', "`"])
def test_an_error_in_quotation_marks_is_a_note(quote: str) -> None:
    found = of(problem("oom", f"CUDA out of memory. Tried to allocate 2.00 GiB{quote} lower it"))
    assert found["severity"].tolist() == ["info"]
    assert not found["root_cause"].any()


@pytest.mark.parametrize(
    "text",
    ["Cuda failure 2 'out of memory'", "can't allocate memory", "no room for '/dev/shm/x'"],
)
def test_marks_that_belong_to_the_error_do_not_make_it_a_quotation(text: str) -> None:
    assert of(problem("oom", text))["root_cause"].tolist() == [True]


def test_a_model_that_is_not_saved_on_purpose_is_no_cause() -> None:
    own: Any = SimpleNamespace(
        timers={},
        patterns=(SimpleNamespace(id="x.y", severity="warning", from_zero=False, window=0),),
    )
    rows = [problem("checkpoint-failed", "Did not save", pattern="x.y"), problem("exit", value=1)]
    found = from_events(events(rows), grammar=own).problems
    assert found["root_cause"].tolist() == [False, True]


def test_a_rank_that_timed_out_before_it_exited_did_not_go_without_a_word() -> None:
    rows = (
        problem("watchdog", "Timed out waiting 8000ms", rank=0),
        problem("exit", "exitcode 1, local rank 0", value=1.0),
        problem("root-cause", "exitcode 1", rank=0, value=1.0),
    )
    assert causes(*rows) == [0]


@pytest.mark.parametrize("code", [-6, 1])
def test_a_process_that_ends_behind_a_timeout_was_ended_by_its_watchdog(code: float) -> None:
    waited = [problem("watchdog", rank=rank, count=9) for rank in (0, 1)]
    assert causes(*waited, problem("exit", "exitcode", value=code)) == [0]
    assert causes(*waited, problem("signal", "aborted", value=6.0)) == [0]


def test_a_process_that_was_killed_before_a_timeout_or_by_force_is_the_cause_of_it() -> None:
    waited = problem("watchdog", rank=0, count=9)
    assert causes(waited, problem("exit", "exitcode -9", value=-9.0)) == [1]
    assert causes(problem("exit", "exitcode -6", value=-6.0), waited) == [0]


def test_a_job_that_slurm_ends_without_a_reason_was_ended_by_the_task_that_failed() -> None:
    task = problem("exit", "task 5: exit code 1", value=1.0)
    cancelled = "*** STEP 7.0 ON node7 CANCELLED AT 2026-03-25T18:00:12{} ***"
    assert causes(task, problem("cancelled", cancelled.format(""))) == [0]
    assert causes(task, problem("cancelled", cancelled.format(" DUE TO TIME LIMIT"))) == [1]
    assert causes(problem("cancelled", cancelled.format("")), task) == [0]


def test_a_reason_that_the_scheduler_gives_later_counts_for_the_same_job_alone() -> None:
    asked = problem("cancelled", "*** STEP 71.0 ON w0 CANCELLED AT 2026-03-25T17:50:23 ***", at=0.0)
    ended = "*** JOB {} ON w0 CANCELLED AT 2026-03-25T18:00:46 DUE TO PREEMPTION ***"
    assert causes(asked, problem("cancelled", ended.format(71), at=623.0)) == [1]
    assert causes(asked, problem("cancelled", ended.format(712), at=623.0)) == [0]


def test_a_process_that_said_what_a_peer_did_to_it_is_no_silent_one() -> None:
    victim = problem("exception", "torch.distributed.DistBackendError: NCCL error in: x", rank=1)
    local = problem("exit", "exitcode 1, local rank 1, pid 9", value=1.0)
    other = problem("exit", "exitcode 1, local rank 3, pid 9", value=1.0)
    assert causes(victim, problem("exit", "exits with return code = 1", value=1.0)) == [0]
    assert causes(victim, local) == [0]
    assert causes(victim, other) == [1]


def test_an_exit_long_after_a_connection_that_was_mended_is_a_cause() -> None:
    steps = [{"kind": "metric", "name": "loss", "value": 1.0, "step": n} for n in (1, 2, 3)]
    rows = [problem("connection", "Connection reset"), *steps, problem("exit", "1", value=1.0)]
    assert causes(*rows) == [4]


@pytest.mark.parametrize(
    "text",
    [
        "torch.cuda.OutOfMemoryError: ', 'RuntimeError: CUDA error: '],",
        'torch.cuda.OutOfMemoryError: "]',
    ],
)
def test_an_error_of_which_only_the_name_is_listed_is_a_note(text: str) -> None:
    assert causes(problem("oom", text)) == []


def test_a_device_error_in_quotation_marks_is_a_note() -> None:
    text = "RuntimeError: CUDA error: device-side assert triggered"
    assert causes(problem("exception", text + "'")) == []
    assert causes(problem("exception", text)) == [0]


_REFUSED = "FileExistsError: [Errno 17] File exists: '/data/cache/S043'"


def test_an_exception_whose_traceback_the_source_lacks_is_the_cause_of_what_follows() -> None:
    run = run_of_text(
        f"{_REFUSED}\n",
        "srun: error: node7: task 3: Exited with exit code 1\n",
        "srun: error: node7: tasks 0-2: Terminated\n",
    )
    assert run.problems.loc[run.problems["root_cause"], "text"].tolist() == [_REFUSED]


def test_an_exception_is_told_once_with_its_traceback_and_never_where_a_line_quotes_it() -> None:
    head = "Traceback (most recent call last):\n"
    frames = f'{head}  File "train.py", line 3, in <module>\n    main()\n'
    assert run_of_text(frames, f"{_REFUSED}\n").problems["text"].tolist() == [_REFUSED]
    assert run_of_text(f"WARNING cache not made: {_REFUSED}\n").problems.empty


def test_the_driver_explains_what_cuda_returned_to_a_process_whose_gpu_failed() -> None:
    raised = problem("exception", "RuntimeError: CUDA error: unspecified launch failure", rank=3)
    assert causes(raised, problem("gpu-lost", "Xid (PCI:0000:3b:00): 79, GPU")) == [1]
    assert causes(problem("exception", "KeyError: 'a'"), problem("gpu-lost", "79")) == [0]


def test_what_a_gpu_stopped_of_a_process_is_told_better_by_its_exception() -> None:
    raised = problem("exception", "RuntimeError: CUDA error: an illegal memory access", rank=3)
    stopped = problem("gpu-fault", "Xid (PCI:0000:3b:00): 31, pid=4101", value=31)
    assert causes(stopped, raised) == [1]
    assert causes(stopped, problem("exit", "exits with return code = -6", value=-6)) == [0]
    assert causes(problem("watchdog", "OpType=ALLREDUCE", rank=1, count=7), stopped) == [1]


def test_an_endpoint_that_is_gone_tells_of_a_peer_and_not_of_the_cause() -> None:
    gone = problem("exception", "Transport endpoint is not connected")
    broken = problem("exception", "CUDA error: uncorrectable NVLink error detected", rank=3)
    assert causes(gone, broken) == [1]
    assert causes(gone) == [0]


def test_what_a_driver_only_notes_of_a_gpu_ends_nothing() -> None:
    run = run_of_text(
        "NVRM: Xid (PCI:0000:10:1c): 63, pid=1896, Row Remapper: New row marked for remapping\n",
        "NVRM: Xid (PCI:0000:10:1c): 45, pid=1896, name=python3, Ch 00000001\n",
        "NVRM: Xid (PCI:0018:01:00): 145, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2)\n",
    )
    assert list(run.problems["severity"].astype("str")) == ["info", "info", "info"]
    assert not run.problems["root_cause"].any()
    assert all(finding.rule != "rank-died" for finding in run.findings)
