"""Where a rank stands that does not come to the collective in which the others wait."""

from __future__ import annotations

from typing import Any

import pytest

from dsprof.findings import Finding
from dsprof.recording.launches import Gone
from dsprof.run import from_events
from tests.findings.plants import alone
from tests.run.ends.test_unclosed import LATER, ended, inside, killed, process, run_of, standing


def hang(**stuck: Any) -> Finding:
    waits = {"in_flight": {"name": "all_reduce", "seq": 7, "at": LATER - 20 * 10**9}}
    other = killed(0, 40.0, 15, None, **waits, **inside("backward", "compute"))
    return alone(run_of(other, process(1, **stuck)), "hang")


def test_a_rank_that_is_seen_to_be_in_a_phase_is_told_with_the_command_that_looks_at_it() -> None:
    found = hang(alive_at=LATER, **inside("forward", "compute"))
    assert found.title.endswith("rank 1 has been in forward for 29.9 s")
    assert found.summary == (
        "Rank 1 has been in forward for 29.9 s, and still is. Rank 0 waited in all_reduce, inside "
        "backward, for 20.0 s."
    )
    look = found.advice[0]
    assert (look.setting, look.to) == ("py-spy dump --pid 101", "on w0, now")


def test_a_rank_that_nobody_saw_end_did_not_come_out_of_its_phase() -> None:
    found = alone(run_of(ended(0, seconds=40.0), process(1, **inside("data", "data"))), "hang")
    assert found.title.endswith(": rank 1 did not come out of data")
    assert "which it entered 29.9 s before the others ended" in found.summary
    assert [advice.setting for advice in found.advice] == [
        "py-spy dump --pid", "DataLoader(timeout=...)",
    ]  # fmt: skip


def test_a_rank_that_is_in_no_phase_is_said_to_be_between_two() -> None:
    long = LATER + 60 * 10**9
    seen = Gone(long, 15)
    found = hang(killed=seen, over_at=long, **inside("step", "optimizer", over=True))
    assert found.title.endswith(": rank 1 was between phases for 89.9 s")
    assert "Rank 1 was between phases, after step, for 89.9 s: in the script" in found.summary
    assert (found.confidence, "it may only do what takes that long" in found.summary) == (
        "medium", True,
    )  # fmt: skip
    assert found.advice[-1].setting == "branches that depend on data or rank"


def test_since_when_a_rank_is_between_two_phases_is_told_where_nobody_saw_it_end() -> None:
    found = alone(run_of(ended(0, seconds=100.0), process(1, **inside("step", over=True))), "hang")
    assert found.title.endswith(": rank 1 was between phases since 12:00:10 UTC")
    assert ", after step, since 12:00:10 UTC: in the script's own code" in found.summary


def test_when_a_rank_came_to_its_phase_is_not_told_where_nobody_knows() -> None:
    unknown = {"phase": {"name": "data", "class": "data", "over": False, "at": 0}}
    found = alone(run_of(ended(0, seconds=40.0), process(1, **unknown)), "hang")
    assert found.summary.startswith("Rank 1 did not come out of data. The others waited")


def test_a_process_of_which_nobody_knows_its_rank_is_no_rank_that_did_not_come() -> None:
    stuck = process(1, **inside("data", "data")) | {"rank": None}
    found = alone(run_of(ended(0, seconds=40.0), stuck), "hang")
    assert found.title == "Training hung after step 10"
    assert "None" not in found.summary


def test_several_ranks_that_did_not_come_are_named_and_where_they_were() -> None:
    stuck = [process(rank, **inside("data", "data")) for rank in (1, 2)]
    found = alone(run_of(ended(0, seconds=40.0), *stuck), "hang")
    assert found.title.endswith(": ranks 1 and 2 did not arrive")
    assert "their recordings end before that one" in found.summary
    assert "Ranks 1 and 2 were in data, one of them since 12:00:10 UTC." in found.summary


def test_of_several_ranks_that_did_not_come_it_may_not_be_known_where_they_were() -> None:
    found = alone(run_of(ended(0, seconds=40.0), process(1), process(2)), "hang")
    assert "before that one, without a message. Their stacks (py-spy" in found.summary


@pytest.mark.parametrize("class_", ["data", "checkpoint"])
def test_what_helps_in_a_phase_is_not_advised_where_it_was_over(class_: str) -> None:
    long = LATER + 60 * 10**9
    found = hang(killed=Gone(long, 15), over_at=long, **inside(class_, class_, over=True))
    assert [advice.setting for advice in found.advice] == [
        "py-spy dump --pid", "branches that depend on data or rank",
    ]  # fmt: skip


def test_a_process_whose_number_nobody_knows_is_looked_for_by_hand() -> None:
    for stopped in (True, False):
        found = hang(alive_at=LATER, stopped=stopped, pid=None, **inside("forward", "compute"))
        assert found.advice[0].setting == "py-spy dump --pid"
        assert found.advice[0].to == "of rank 1, while it hangs"


def test_where_nobody_was_seen_to_end_it_is_not_said_that_anybody_did() -> None:
    waits = {"in_flight": {"name": "all_reduce", "seq": 7, "at": LATER}}
    run = run_of(process(0, **waits), process(1, **inside("data", "data")))
    assert "which it entered 29.9 s before the last of the others began to wait" in (
        alone(run, "hang").summary
    )


def test_a_rank_that_was_stopped_is_said_to_be() -> None:
    found = hang(alive_at=LATER, stopped=True, **inside("forward", "compute"))
    assert "and still is. It is stopped, by a signal (SIGSTOP) or in a debugger." in found.summary
    assert found.title.endswith(": rank 1 is stopped (SIGSTOP, or a debugger)")
    assert [advice.setting for advice in found.advice] == ["kill -CONT 101"]


@pytest.mark.parametrize(("seconds", "stopped"), [(700.0, False), (700.0, True), (80.0, True)])
def test_a_rank_between_phases_that_is_stopped_or_there_for_long_surely_hangs(
    seconds: float, *, stopped: bool
) -> None:
    """Long is what no evaluation of another module takes."""
    seen = LATER + int((seconds - 40) * 1e9)
    found = hang(alive_at=seen, stopped=stopped, **inside("step", "optimizer", over=True))
    assert (found.confidence, "it may only do" in found.summary) == ("high", False)


def test_how_long_others_waited_is_told_by_one_clock() -> None:
    run = run_of(
        ended(0, seconds=40.0), process(1, host="w1", **inside("data", "data")),
    )  # fmt: skip
    run = from_events(run.events, meta=run.meta | {"clocks": {"w1": {"ahead": -10.0}}})
    assert "which it entered 19.9 s before the others ended" in alone(run, "hang").summary


@pytest.mark.parametrize("phase", ["checkpoint", "load_checkpoint"])
def test_a_save_that_does_not_end_sends_to_its_file_system(phase: str) -> None:
    stuck = process(1, **inside(phase, "checkpoint"))
    found = alone(run_of(ended(0, seconds=1000.0), stuck), "hang")
    assert found.advice[-1].setting == "file system of the checkpoint"


def seen(stack: str, **stuck: Any) -> Finding:
    waits = {"in_flight": {"name": "all_reduce", "seq": 7, "at": LATER - 20 * 10**9}}
    other = killed(0, 40.0, 15, None, stands=True, **waits, **inside("backward", "compute"))
    rows = [standing(1, stack), standing(0, "wait (torch/a.py) < main (./train.py:9)", 20.5)]
    return alone(run_of(other, process(1, stands=True, **stuck), rows=rows), "hang")


def test_the_code_that_a_rank_stood_in_is_told_in_place_of_how_to_find_it() -> None:
    gone: dict[str, Any] = {"killed": Gone(LATER, 15), "over_at": LATER}
    found = seen("read (lib/io.py) < load (./data.py:7)", **gone, **inside("data", "data"))
    assert found.title.endswith(": rank 1 was in data for 29.9 s, in load (data.py:7)")
    assert found.summary == (
        "Rank 1 was in data for 29.9 s, until it was ended. Its stack, whenever it was seen in "
        "28.0 s, had read (lib/io.py), called by load (data.py:7). Rank 0 waited in all_reduce, "
        "inside backward, for 20.0 s, called by main (train.py:9)."
    )
    assert [advice.setting for advice in found.advice] == [
        "load (data.py:7)", "DataLoader(timeout=...)",
    ]  # fmt: skip
    assert [one.source for one in found.evidence[1:]] == ["rank-1", "rank-0"]


def test_of_a_rank_that_is_still_there_more_can_be_found() -> None:
    found = seen("load (./data.py:7)", alive_at=LATER, **inside("forward"))
    assert "has been in forward for 29.9 s, in load (data.py:7)" in found.title
    assert [advice.setting for advice in found.advice[:2]] == [
        "load (data.py:7)", "py-spy dump --pid 101",
    ]  # fmt: skip


def test_a_rank_that_is_stopped_is_to_go_on_whatever_code_it_stands_in() -> None:
    stopped = seen("load (./data.py:7)", alive_at=LATER, stopped=True, **inside("data", "data"))
    assert [advice.setting for advice in stopped.advice] == ["kill -CONT 101"]


def test_a_rank_that_never_came_to_its_first_phase_is_told_with_what_it_did_before() -> None:
    stack = "prepare (./train.py:13) < <module> (./train.py:15)"
    found = seen(stack, killed=Gone(LATER, 15), over_at=LATER)
    assert found.title.endswith(
        ": rank 1 was before its first phase for 29.5 s, in prepare (train.py:13)"
    )
    assert found.summary.startswith(
        "Rank 1 was before its first phase for 29.5 s, until it was ended. Its stack, whenever"
    )
    unseen = alone(
        run_of(ended(0, seconds=40.0), process(1, stands=True), rows=[standing(1, stack)]), "hang"
    )
    assert unseen.title.endswith(
        ": rank 1 did not come to its first phase, in prepare (train.py:13)"
    )
    assert unseen.summary.startswith("Rank 1 did not come to its first phase. Its stack")


def test_of_a_part_of_the_time_it_is_said_that_the_stack_was_seen_then() -> None:
    """It may be elsewhere since, where nobody can look."""
    seen_for = standing(1, "load (./data.py:7)", lasted=20.0)
    gone = process(1, stands=True, killed=Gone(LATER, 15), over_at=LATER, **inside("data"))
    found = alone(run_of(ended(0, seconds=40.0), gone, rows=[seen_for]), "hang")
    assert found.title.endswith(
        ": rank 1 was in data for 29.9 s, 20.0 s of that in load (data.py:7)"
    )


def test_of_a_script_that_only_calls_a_library_the_call_in_that_is_advised() -> None:
    gone: dict[str, Any] = {"killed": Gone(LATER, 15), "over_at": LATER}
    found = seen("wait (torch/data.py) < <module> (./hf.py:35)", **gone, **inside("data", "data"))
    assert found.advice[0].setting == "wait (torch/data.py), called by hf.py:35"
