"""Collectives that timed out name the rank that did not come, where lines show it."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter_ns

import pytest

from dsprof.findings import findings_of
from dsprof.recording import Writer
from dsprof.run import load
from tests.findings.plants import WELL, Row, alone, metric, problem, run_of, steps
from tests.loaded import run_of_text
from tests.recording.recorded import CLASSES, MS, header
from tests.run.ends.test_unclosed import LATER, ended, inside, process
from tests.run.ends.test_unclosed import run_of as recorded

WATCHDOG = (
    "10.0.0.{rank}: [rank{rank}]:[E122 07:47:07.196 ProcessGroupNCCL.cpp:616] [Rank {rank}] "
    "Watchdog caught collective operation timeout: WorkNCCL(SeqNum={call}, OpType=ALLREDUCE, "
    "NumelIn=8, NumelOut=8, Timeout(ms)=1800000) ran for 1800003 milliseconds before timing out.\n"
    "10.0.0.{rank}: [rank{rank}]:[E122 07:47:07.197 ProcessGroupNCCL.cpp:1785] [PG ID 0 PG GUID "
    "0(default_pg) Rank {rank}] Exception (either an error or timeout) detected by watchdog at "
    "work: {call}, last enqueued NCCL work: {last}, last completed NCCL work: 70.\n"
)


def watchdog(rank: int, last: int) -> list[Row]:
    """What a rank's watchdog says, as the parsers read it."""
    text = "OpType=ALLREDUCE, NumelIn=4096, NumelOut=4096, Timeout(ms)=600000"
    return [
        problem("watchdog", text, rank=rank, step=12, count=880),
        metric("last_enqueued_work", None, last, rank=rank),
    ]


def test_the_code_that_made_the_call_is_named_with_its_ranks() -> None:
    at = [("train.py:692", 0), ("train.py:692", 2), ("loop.py:7", 1)]
    rows = [
        metric("called_from", None, None, text=f"main ({where})", rank=rank) for where, rank in at
    ]
    found = alone(run_of([*steps(12, WELL), *watchdog(0, 880), *watchdog(1, 880), *rows]), "hang")
    told = (
        "The call was made by ranks 0 and 2 in main (train.py:692); by rank 1 in main (loop.py:7)."
    )
    assert told in found.summary
    assert found.advice[0].setting == "torchfrtrace"  # the recorder was on


def test_a_rank_that_only_tells_of_anothers_timeout_did_not_wait_itself() -> None:
    text = "Received a dump signal due to a collective timeout from  rank 13"
    found = alone(run_of([*steps(12, WELL), problem("watchdog", text, rank=0, step=12)]), "hang")
    assert found.summary.startswith("Rank 13 reports a timeout.")


def test_a_timeout_of_ascend_is_not_told_to_use_the_recorder_of_nccl() -> None:
    text = "WorkHCCL(SeqNum=196, OpType=ALLREDUCE, Timeout(ms)=3600000"
    rows = [problem("watchdog", text, rank=1, step=12, count=196)]
    found = alone(run_of([*steps(12, WELL), *rows]), "hang")
    assert "in ALLREDUCE, call 196" in found.title
    assert found.advice[0].setting == "HCCL_EXEC_TIMEOUT"


@pytest.mark.parametrize(
    ("accelerator", "setting"),
    [("cpu", "py-spy dump --pid"), ("cuda", "TORCH_NCCL_TRACE_BUFFER_SIZE")],
)
def test_a_recorder_of_nccl_is_not_advised_where_gloo_makes_the_collectives(
    accelerator: str, setting: str
) -> None:
    rows = [*steps(12, WELL), *watchdog(0, 882), *watchdog(1, 880)]
    assert alone(run_of(rows, accelerator=accelerator), "hang").advice[0].setting == setting


GLOO = "[gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 8000ms for recv operation"


@pytest.mark.parametrize(("begun", "said"), [(False, "step 3"), (True, "data in step 4")])
def test_what_a_rank_recorded_last_that_did_not_come_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, said: str, *, begun: bool
) -> None:
    for least in ("WAITED", "STEPS", "BEFORE"):  # the recording began only now
        monkeypatch.setattr(f"dsprof.run.ends.missed.{least}", 0)
    start = perf_counter_ns() - 10_000 * MS
    writers = [Writer.create(tmp_path, header(rank)) for rank in range(2)]
    for rank, writer in enumerate(writers):
        data, forward = writer.name("data", 0, "data"), writer.name("forward", 0, "compute")
        for step in range(1, 5):
            at = start + step * 100 * MS
            if step < 4 or rank == 0 or begun:
                writer.span(data, at, at + 10 * MS, step)
            if step < 4:
                writer.span(forward, at + 10 * MS, at + 100 * MS, step)
                writer.step(step, at, at + 100 * MS, CLASSES)
        writer.flush()
    writers[0].problem("exception", f"RuntimeError: {GLOO}")
    writers[0].close()
    found = alone(load(tmp_path), "hang")
    assert found.ranks == (1,)
    assert f"The last that rank 1 recorded is the end of {said}, 9." in found.summary


def test_what_a_rank_recorded_last_may_be_of_another_engine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for least in ("WAITED", "STEPS", "BEFORE"):  # the recording began only now
        monkeypatch.setattr(f"dsprof.run.ends.missed.{least}", 0)
    start = perf_counter_ns() - 10_000 * MS
    writers = [Writer.create(tmp_path, header(rank)) for rank in range(2)]
    for rank, writer in enumerate(writers):
        forward = writer.name("forward", 0, "compute")
        for turn in range(6):
            engine, step = turn % 2, turn // 2 + 1 + 10 * (turn % 2)
            at = start + turn * 100 * MS
            writer.span(forward, at, at + 10 * MS, step, engine=engine)
            if turn < 5 or rank == 0:
                writer.step(step, at, at + 100 * MS, CLASSES, engine=engine)
        writer.flush()
    writers[0].problem("exception", f"RuntimeError: {GLOO}")
    writers[0].close()
    said = "The last that rank 1 recorded is the end of forward in step 13 of engine 1, 9."
    assert said in alone(load(tmp_path), "hang").summary


def test_what_a_rank_recorded_last_on_a_gpu_that_did_not_come_to_all_of_it_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for least in ("WAITED", "STEPS", "BEFORE"):  # the recording began only now
        monkeypatch.setattr(f"dsprof.run.ends.missed.{least}", 0)
    start = perf_counter_ns() - 10_000 * MS
    writers = [
        Writer.create(tmp_path, header(rank, config={"phases_on": "gpu"})) for rank in range(2)
    ]
    for rank, writer in enumerate(writers):
        forward = writer.name("forward", 0, "compute")
        for step in range(1, 5):
            at = start + step * 100 * MS
            gpu_ns, gpu_begin_ns = (9 * MS, at) if step < 4 else (-1, 0)
            writer.span(forward, at, at + 10 * MS, step, -1, gpu_ns, gpu_begin_ns=gpu_begin_ns)
            if step < 4 or rank == 0:
                writer.step(step, at, at + 100 * MS, CLASSES)
        writer.flush()
    writers[0].problem("exception", f"RuntimeError: {GLOO}")
    writers[0].close()
    said = "The last that rank 1 recorded is the end of step 3, 9."
    assert said in alone(load(tmp_path), "hang").summary


def test_a_first_call_that_never_ends_sends_to_the_ways_between_the_ranks(tmp_path: Path) -> None:
    launched = (
        "[2026-01-22 07:00:00,000] [INFO] [launch.py:152:main] nnodes=1, num_local_procs=2, "
        "node_rank=0\n[2026-01-22 07:00:00,000] [INFO] [launch.py:164:main] dist_world_size=2\n"
    )
    said = "".join(WATCHDOG.format(rank=rank, call=1, last=547) for rank in (0, 1))
    (tmp_path / "run.log").write_text(launched + said.replace(" 70.", " -1."))
    found = alone(load(tmp_path / "run.log"), "hang")
    assert "nothing went through before" in found.summary
    assert [advice.setting for advice in found.advice] == ["NCCL_DEBUG", "NCCL_P2P_DISABLE"]


def test_one_rank_that_waits_is_told_as_one() -> None:
    assert alone(run_of([*steps(12, WELL), *watchdog(2, 882)]), "hang").summary.startswith(
        "Rank 2 reports a timeout."
    )


STUCK = (
    "[rank{0}]:[F ProcessGroupNCCL.cpp:1169] [PG 0 Rank {0}] ProcessGroupNCCL's watchdog got stuck "
    "for 600 seconds without making progress in monitoring enqueued collectives.\n"
)
TIMEOUT = (
    "[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, "
    "NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600004 milliseconds before timing out.\n"
)


WAITS = {"in_flight": {"name": "all_reduce", "seq": 7, "at": LATER - 20 * 10**9}}


def test_ranks_that_waited_while_the_others_ended_are_not_said_to_have_missed_a_call() -> None:
    """As where the others had fewer batches."""
    left = [process(rank, over_at=LATER, **WAITS) for rank in (1, 2)]
    found = alone(recorded(ended(0, seconds=40.0), *left), "hang")
    assert found.title == (
        "Training hung after step 10: ranks 1 and 2 waited in all_reduce, one of them since "
        "12:00:20 UTC"
    )
    assert "did not arrive" not in found.title
    assert found.summary.startswith("The other recorded ranks ended meanwhile: they left early")
    assert "waited in all_reduce, and others ended without it" in found.evidence[0].text
    assert (found.ranks, found.confidence) == ((), "medium")


def test_of_those_that_others_did_not_wait_for_one_that_waits_itself_is_not_to_blame() -> None:
    stuck = process(2, **inside("data", "data"))
    found = alone(recorded(ended(0, seconds=40.0), process(1, **WAITS), stuck), "hang")
    assert found.title.endswith(": rank 2 did not come out of data")
    assert found.ranks == (2,)


def test_a_stuck_watchdog_is_no_collective_that_timed_out(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text(STUCK.format(0) + STUCK.format(1))
    found = alone(load(log), "hang")
    assert found.title == "NCCL's watchdog of 2 ranks was stuck"
    assert found.confidence == "medium"
    assert found.ranks == (0, 1)


def test_a_timeout_is_told_once_however_often_its_watchdog_says_it(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    end = "[rank3]:[E901 05:20:03.6 ProcessGroupNCCL.cpp:1899] [PG ID 0 Rank 3] Process group "
    end += f"watchdog thread terminated with exception: {TIMEOUT}"
    log.write_text(end)
    assert alone(load(log), "hang").title == "A collective timed out in ALLREDUCE, call 7"
    log.write_text(f"[rank3]:[E901 05:20:03.6 ProcessGroupNCCL.cpp:616] {TIMEOUT}{end}")
    run = load(log)
    assert run.problems["line"].tolist() == [1]


def test_an_exception_without_its_reason_comes_behind_a_timeout(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text(
        "terminate called after throwing an instance of 'std::runtime_error'\n" + TIMEOUT
    )
    assert alone(load(log), "hang").title.startswith("A collective timed out")


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
    found = alone(load(log), "hang")
    assert found.title.startswith("A collective timed out")
    assert found.summary.startswith("Rank 3 reports a timeout.")


def test_calls_that_do_not_match_are_named_where_the_message_lacks_a_comma() -> None:
    text = (
        "RuntimeError: Detected mismatch between collectives on ranks. Rank 4 is running "
        "collective: CollectiveFingerPrint(SequenceNumber=101, OpType=ALLGATHER), but Rank 7 is "
        "running collective: CollectiveFingerPrint(SequenceNumber=0OpType=REDUCE)."
    )
    found = alone(run_of([problem("desync", text, rank=4)]), "hang")
    assert "rank 4 called ALLGATHER, rank 7 called REDUCE. One rank skipped" in found.summary


def test_a_monitored_barrier_names_who_did_not_come() -> None:
    text = "Rank 2 failed to pass monitoredBarrier in 2000 ms"
    broken = "successfully reached monitoredBarrier, but received errors while waiting"
    rows = [
        problem("connection", broken, rank=1, step=7),
        problem("watchdog", text, rank=0, step=7),
    ]
    found = alone(run_of([*steps(10, WELL), *rows]), "hang")
    assert found.title == "A barrier timed out after step 7: rank 2 did not arrive"
    assert "stops at the first one" in found.summary
    assert found.ranks == (2,)
    texts = [f"Rank{who} failed to pass monitoredBarrier in 9 ms" for who in (" 4", "s 4, 5, 6")]
    found = alone(run_of([problem("watchdog", text, rank=0) for text in texts]), "hang")
    assert found.title == "A barrier timed out: ranks 4, 5 and 6 did not arrive"
    assert "stops at" not in found.summary


def test_a_timeout_of_gloo_is_not_looked_for_in_what_nccl_records() -> None:
    said = "RuntimeError: [/src/gloo/transport/tcp/buffer.cc:78] Timed out waiting 8000ms for recv"
    found = alone(run_of([problem("watchdog", said, rank=2)]), "hang")
    assert found.advice[0].setting == "TORCH_DISTRIBUTED_DEBUG"
    found = alone(run_of([problem("watchdog", "OpType=ALLREDUCE", rank=2)]), "hang")
    assert found.advice[0].setting == "TORCH_NCCL_TRACE_BUFFER_SIZE"


@pytest.mark.parametrize(
    ("elements", "setting"),
    [("", "py-spy dump --pid"), ("NumelIn=8, NumelOut=8, ", "TORCH_NCCL_TRACE_BUFFER_SIZE")],
)
def test_the_flight_recorder_is_not_advised_for_a_pytorch_that_has_none(
    elements: str, setting: str
) -> None:
    line = (
        "[E ProcessGroupNCCL.cpp:587] [Rank 3] Watchdog caught collective operation timeout: "
        f"WorkNCCL(SeqNum=8, OpType=BROADCAST, {elements}Timeout(ms)=1800000) ran for 1802492 "
        "milliseconds before timing out.\n"
    )
    assert alone(run_of_text(line), "hang").advice[0].setting == setting


def test_a_rank_that_waited_too_long_over_gloo_did_not_die_of_it() -> None:
    """In a recording it says so by its exception; then the other rank loses the connection."""
    waited = (
        "RuntimeError: [/src/gloo/transport/tcp/buffer.cc:78] Timed out waiting 8000ms for recv"
    )
    lost = "RuntimeError: [/src/gloo/transport/tcp/pair.cc:553] Connection closed by peer"
    rows = [
        problem("exception", waited, rank=1, step=20),
        problem("exception", lost, rank=0, step=20),
    ]
    found = findings_of(run_of(rows, world_size=2))
    assert [one.rule for one in found][:1] == ["hang"]
    assert "rank-died" not in {one.rule for one in found}
    assert found[0].title == "A collective timed out after step 20"
    assert found[0].ranks == ()
    assert "unequally many batches" in found[0].summary


_EI0002 = """\
EI0002: [PID: 29] 2026-10-11-15:09:34 The wait execution of the Notify register times out. Reason: \
The Notify register has not received the Notify record from remote rank [unknown].
"""
_SUSPECT = (
    "    Cluster Exception Location[IP/ID]:[10.0.0.7/{}], Arrival Time:[Sun Oct 11 15:08:04 2026], "
    "Discoverer:[10.0.0.7/0], ExceptionType:[{} Occurred], Possible Reason:1. Process has exited\n"
)


def test_a_timeout_of_ascend_names_the_device_that_hccls_heartbeats_name() -> None:
    found = alone(run_of_text(_EI0002, _SUSPECT.format(3, "Heartbeat Lost")), "hang")
    assert found.title == "A collective timed out: HCCL names device 3 on 10.0.0.7"
    assert "none of its heartbeats came for 30 s" in found.summary
    assert "device 3 on 10.0.0.7: Heartbeat Lost Occurred" in found.evidence[1].text
    assert found.advice[0].setting == "log of that process, dmesg on its host"


def test_of_many_devices_that_hccl_names_some_are_told() -> None:
    suspects = [_SUSPECT.format(device, "Stuck") for device in (1, 2, 2, 4, 5)]
    found = alone(run_of_text(_EI0002, *suspects), "hang")
    few = "device 1 on 10.0.0.7, device 2 on 10.0.0.7, device 4 on 10.0.0.7"
    assert found.title.endswith(f": HCCL names {few} and others")
    assert "its process was there, and stood still" in found.summary


def test_a_device_that_hccl_names_comes_behind_a_rank_that_is_known_to_be_missing() -> None:
    rows = [metric("hccl_suspect", None, None, text="device 3 on 10.0.0.7: Stuck Occurred")]
    found = alone(run_of([*steps(12, WELL), *watchdog(0, 880), *watchdog(1, 879), *rows]), "hang")
    assert found.ranks == (1,)
    assert "HCCL" not in found.title


def test_an_iommu_that_rccl_warned_of_is_advised_on_where_a_collective_hung() -> None:
    warned = problem("iommu", 'Missing "iommu=pt" from kernel command line', pattern="nccl.warn")
    rows = [*steps(10, WELL), *watchdog(1, 881)]
    hung = alone(run_of([warned, *rows]), "hang")
    assert hung.advice[0].to == "iommu=pt, as RCCL asks for"
    assert hung.advice[1:] == alone(run_of(rows), "hang").advice
