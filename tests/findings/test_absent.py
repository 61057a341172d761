"""Where a rank stands that does not come to the collective in which the others wait."""

from __future__ import annotations

from typing import Any

import pytest

from dsprof.findings import Finding
from dsprof.recording.launches import Gone
from tests.findings.plants import one
from tests.run.test_unclosed import LATER, ended, inside, killed, process, run_of


def hang(**stuck: Any) -> Finding:
    waits = {"in_flight": {"name": "all_reduce", "seq": 7, "at": LATER - 20 * 10**9}}
    other = killed(0, 40.0, 15, None, **waits, **inside("backward", "compute"))
    return one(run_of(other, process(1, **stuck)), "hang")


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
    found = one(run_of(ended(0, seconds=40.0), process(1, **inside("data", "data"))), "hang")
    assert found.title.endswith(": rank 1 did not come out of data")
    assert "which it entered 29.9 s before the others ended" in found.summary
    assert [advice.setting for advice in found.advice] == [
        "py-spy dump --pid", "DataLoader(timeout=...)",
    ]  # fmt: skip


def test_a_rank_that_is_in_no_phase_is_said_to_be_between_two() -> None:
    seen = Gone(LATER, 15)
    found = hang(killed=seen, over_at=LATER, **inside("step", "optimizer", over=True))
    assert found.title.endswith(": rank 1 was between phases for 29.9 s")
    assert "Rank 1 was between phases, after step, for 29.9 s: in the script" in found.summary
    assert found.advice[-1].setting == "branches that depend on data or rank"


def test_several_ranks_that_did_not_come_are_named() -> None:
    stuck = [process(rank, **inside("data", "data")) for rank in (1, 2)]
    found = one(run_of(ended(0, seconds=40.0), *stuck), "hang")
    assert found.title.endswith(": ranks 1 and 2 did not arrive")


@pytest.mark.parametrize("phase", ["checkpoint", "load_checkpoint"])
def test_a_save_that_does_not_end_sends_to_its_file_system(phase: str) -> None:
    stuck = process(1, **inside(phase, "checkpoint"))
    found = one(run_of(ended(0, seconds=1000.0), stuck), "hang")
    assert found.advice[-1].setting == "file system of the checkpoint"
