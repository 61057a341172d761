"""The lines of a collective that timed out show who waited in which call, and who is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsprof.findings import Finding, findings_of
from dsprof.run import load
from tests.findings.failures.test_hangs import WATCHDOG, watchdog
from tests.findings.plants import WELL, alone, metric, problem, run_of, steps
from tests.loaded import run_of_text


def test_the_rank_that_started_fewest_collectives_is_the_one_that_did_not_come() -> None:
    rows = [*watchdog(0, 882), *watchdog(1, 880), *watchdog(2, 882)]
    found = alone(run_of([*steps(12, WELL), *rows]), "hang")
    assert found.ranks == (1,)
    assert "in ALLREDUCE, call 880" in found.title
    assert "rank 1 did not arrive" in found.title


def test_equal_ranks_blame_nobody() -> None:
    found = alone(run_of([*steps(12, WELL), *watchdog(0, 882), *watchdog(2, 882)]), "hang")
    assert found.ranks == ()
    assert "never arrived" in found.summary
    assert found.confidence == "medium"


@pytest.mark.parametrize(
    ("called", "is_told"),
    [("OpType=ALLREDUCE, NumelIn=1,", True), ("OpType=ALLREDUCE, NumelIn=16,", False),
     ("OpType=BARRIER, NumelIn=0,", True), ("OpType=BROADCAST, NumelIn=1,", False)],
)  # fmt: skip
def test_who_waited_in_a_barrier_may_have_waited_for_what_one_rank_does_alone(
    called: str, *, is_told: bool
) -> None:
    text = f"{called} NumelOut=1, Timeout(ms)=600000"
    rows = [problem("watchdog", text, rank=rank, step=12) for rank in (2, 6)]
    found = alone(run_of([*steps(12, WELL), *rows]), "hang")
    assert ("for a rank that saves, evaluates or loads for longer" in found.summary) is is_told
    assert ("what one rank does alone before it" in [one.setting for one in found.advice]) is (
        is_told
    )


def test_where_every_rank_waits_in_one_call_none_is_said_to_be_missing() -> None:
    rows = [*steps(12, WELL), *watchdog(0, 882), *watchdog(1, 882)]
    found = alone(run_of(rows, world_size=2), "hang")
    assert "with every rank in it" in found.title
    assert "All 2 ranks of the job had called it" in found.summary
    assert "never arrived" not in found.summary
    assert found.confidence == "medium"
    assert "never arrived" in alone(run_of(rows, world_size=4), "hang").summary


@pytest.mark.parametrize(("call", "first"), [(1, True), (882, False)])
def test_a_rank_that_missed_the_first_call_may_still_prepare_or_be_out_of_reach(
    call: int, *, first: bool
) -> None:
    text = "OpType=BROADCAST, NumelIn=1, NumelOut=1, Timeout(ms)=600000"
    found = alone(run_of([problem("watchdog", text, rank=1, count=call)]), "hang")
    assert ("nothing went through before" in found.summary) is first
    advised = [advice.setting for advice in found.advice]
    assert (advised == ["NCCL_DEBUG", "what one rank prepares before training"]) is first


def test_where_nccl_speaks_already_its_links_are_to_be_tried() -> None:
    text = "OpType=BROADCAST, NumelIn=1, NumelOut=1, Timeout(ms)=600000"
    rows = [problem("watchdog", text, rank=1, count=1)]
    advised = alone(run_of(rows, nccl_ranks=2), "hang").advice
    assert [one.setting for one in advised] == [
        "NCCL_P2P_DISABLE",
        "NCCL_SOCKET_IFNAME",
        "what one rank prepares before training",
    ]


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
    found = alone(run, "hang")
    assert found.ranks == ((2,) if named else ())
    assert ("Rank 2 alone reports none" in found.summary) is named
    assert found.confidence == "medium"


def test_what_watchdogs_print_names_the_call_and_the_rank_that_did_not_come(tmp_path: Path) -> None:
    told = [(0, 77, 79), (1, 74, 74), (2, 77, 79)]
    text = "".join(WATCHDOG.format(rank=rank, call=call, last=last) for rank, call, last in told)
    (tmp_path / "run.log").write_text(text, encoding="utf-8")
    found = findings_of(load(tmp_path / "run.log"))[0]
    assert found.title == "A collective timed out in ALLREDUCE, call 77: rank 1 did not arrive"
    assert found.ranks == (1,)


def test_the_call_that_timed_out_is_that_of_the_ranks_that_came(tmp_path: Path) -> None:
    told = [(0, 74, 74), (1, 77, 79), (2, 77, 79)]
    text = "".join(WATCHDOG.format(rank=rank, call=call, last=last) for rank, call, last in told)
    (tmp_path / "run.log").write_text(text, encoding="utf-8")
    found = findings_of(load(tmp_path / "run.log"))[0]
    assert found.title == "A collective timed out in ALLREDUCE, call 77: rank 0 did not arrive"
    assert "It waits itself, in ALLREDUCE, call 74: it skipped a collective" in found.summary


def test_a_timeout_that_an_exception_quotes_keeps_the_number_of_its_call() -> None:
    run = run_of_text(
        '  File "t.py", line 2532, in all_gather\n',
        "    work = group._allgather_base(output_tensor, input_tensor)\n",
        "RuntimeError: NCCL communicator was aborted on rank 0.  Original reason for failure was: "
        "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4015, "
        "OpType=_ALLGATHER_BASE, Timeout(ms)=1800000) ran for 1806375 milliseconds before timing "
        "out.\n",
    )
    assert "in _ALLGATHER_BASE, call 4,015" in alone(run, "hang").title


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
    lines = [WATCHDOG.format(rank=rank, call=call, last=last) for rank, call, last in told]
    lines[1] = lines[1].replace("ID 0 PG GUID 0(default_pg)", "ID 3 PG GUID 17")
    (tmp_path / "run.log").write_text("".join(lines), encoding="utf-8")
    found = findings_of(load(tmp_path / "run.log"))[0]
    assert "did not arrive" not in found.title
    assert found.confidence == "medium"


@pytest.mark.parametrize("told", [[(0, 961), (0, 958), (7, 640)], [(0, 96_120), (7, 64_088)]])
def test_numbers_that_must_be_of_several_groups_blame_nobody(told: list[tuple[int, int]]) -> None:
    """PyTorch before 2.2 names no group: a rank that waits in two calls does so in two groups, and
    in one group no rank is a third of the training behind."""
    text = "OpType=ALLREDUCE, Timeout(ms)=1800000"
    found = alone(run_of([problem("watchdog", text, rank=r, count=n) for r, n in told]), "hang")
    assert "did not arrive" not in found.title
    assert (found.ranks, found.confidence) == ((), "medium")


def test_ranks_that_wait_in_different_collectives_blame_nobody() -> None:
    text = "OpType=ALLREDUCE, NumelIn={0}, NumelOut={0}, Timeout(ms)=600000"
    big, small = text.format(25427968), text.format(1)
    rows = [
        problem("watchdog", big, rank=0, count=1516),
        metric("last_enqueued_work", None, 1516),
        problem("watchdog", small, rank=1, count=1517),
    ]
    found = alone(run_of(rows), "hang")
    assert "did not arrive" not in found.title
    assert "They wait in different ones" in found.summary
    assert found.ranks == ()


def test_a_timeout_whose_line_is_cut_names_no_other_collective() -> None:
    told = "[rank%d]:[E816 00:34:01.%d ProcessGroupNCCL.cpp:629] [Rank %d] Watchdog caught "
    told += "collective operation timeout: WorkNCCL(SeqNum=37, OpType=_ALLGATHER_BA%s\n"
    whole = "SE, NumelIn=8, NumelOut=16, Timeout(ms)=600000) ran for 600004 milliseconds."
    lines = (told % (2, 1, 2, "[45/1919]"), told % (0, 2, 0, whole))
    found = alone(run_of_text(*lines), "hang")
    assert found.title == "A collective timed out in _ALLGATHER_BASE, call 37"
    assert "different" not in found.summary


def test_the_one_rank_that_waits_in_another_collective_is_told_by_its_number() -> None:
    text = "OpType=_ALLGATHER_BASE, NumelIn={}, NumelOut={}, Timeout(ms)=600000"
    rows = [
        problem("watchdog", text.format(size, 8 * size), rank=rank, count=150)
        for rank, size in ((2, 4096), (1, 4096), (3, 128))
    ]
    said = " Rank 3 alone waits in OpType=_ALLGATHER_BASE, NumelIn=128, NumelOut=1024."
    assert said in alone(run_of(rows), "hang").summary
    assert "alone waits in" not in alone(run_of(rows[1:]), "hang").summary


OTHER = "OpType=BROADCAST, NumelIn=64, NumelOut=64, Timeout(ms)=600000"


def apart(calls: dict[int, int], groups: dict[int, str]) -> Finding:
    """Rank 2 broadcasts, the others reduce."""
    rows = [*watchdog(0, 882), *watchdog(1, 882), *watchdog(2, 882)]
    for row in rows:
        rank = row["rank"]
        if row["kind"] == "problem":
            row["count"] = calls.get(rank, 880)
            row["text"] = OTHER if rank == 2 else row["text"]
        else:
            row["text"] = groups.get(rank, "ID 0 PG GUID 0(default_pg)")
    return alone(run_of([*steps(12, WELL), *rows]), "hang")


def test_ranks_in_different_collectives_of_one_number_and_group_are_out_of_step() -> None:
    found = apart({}, {})
    assert found.title == (
        "Ranks called different collectives after step 12: ranks 0 and 1 ALLREDUCE and rank 2 "
        "BROADCAST"
    )
    assert "call 880 of the same process group" in found.summary
    assert "skipped a collective, or called an extra one" in found.summary
    assert found.confidence == "high"


@pytest.mark.parametrize(
    "group", ["0", "ID 1 PG GUID 1(mesh_tp)", "ID 2 PG GUID 4(default_pg:split:3)"]
)
def test_groups_that_may_share_a_name_or_count_messages_too_show_no_rank_out_of_step(
    group: str,
) -> None:
    """As where torch 2.3 counts what stages send each other, or a DeviceMesh splits a group."""
    assert "different collectives" not in apart({}, dict.fromkeys(range(3), group)).title


def test_numbers_of_two_groups_or_two_calls_do_not_show_ranks_out_of_step() -> None:
    for found in (apart({2: 881}, {}), apart({}, {2: "ID 3 PG GUID 17"})):
        assert "different collectives" not in found.title
