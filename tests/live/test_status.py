"""What is said of a job's state."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dsprof.live.processes import Process, State
from dsprof.live.status import Sources, status_of
from dsprof.recording import Recording
from dsprof.recording.launches import Gone
from tests.recording.recorded import record


@pytest.mark.parametrize("exited", [True, False])
def test_how_to_see_what_is_not_read_is_whole_in_80_columns(*, exited: bool) -> None:
    found = Sources(
        (), (), (), logs=1, closed=exited, failure="", hangs=False, exited=exited, idle=1.0
    )
    _, note = status_of(found, None, None, begun=False)
    assert "`dsprof parsers --unknown`" in note
    assert len(note) <= 78  # the head has a blank at both ends


@pytest.mark.parametrize(
    ("states", "hangs", "said"),
    [
        (["silent", "running"], True, "silent"),
        (["silent", "running"], False, "died"),
        (["ended", "ended"], True, "died"),
        ([], True, "died"),
    ],
)
def test_a_job_that_hangs_has_not_died_while_its_ranks_are_there(
    tmp_path: Path, states: list[State], said: str, *, hangs: bool
) -> None:
    why = "Training hung after step 20: rank 1 did not arrive"
    processes = [
        Process(Recording(record(tmp_path, 20, rank)), 0.0, rank, "worker-1", 7, state)
        for rank, state in enumerate(states)
    ]
    found = Sources(
        (), (), processes, 1, closed=False, failure=why, hangs=hangs, exited=False, idle=99.0
    )
    assert status_of(found, None, 1.0, begun=True) == (said, why)
    for process in processes:
        process.lost = True
    assert status_of(found, None, 1.0, begun=True) == ("died", why)


@pytest.mark.parametrize(
    ("signal", "hangs", "blames"),
    [(15, True, True), (15, False, True), (9, False, False), (9, True, True)],
)
def test_of_a_job_that_was_stopped_it_is_said_why_it_stood_still(
    tmp_path: Path, signal: int, *, hangs: bool, blames: bool
) -> None:
    """Whom a launcher asked to end is not to blame, but who was killed is, unless that was at last:
    whoever is stopped (SIGSTOP) cannot end when asked to.
    """
    why = "Training hung after step 20: rank 1 was in data for 30.0 s"
    processes = [
        Process(Recording(record(tmp_path, 20, rank)), 0.0, rank, "worker-1", 7, "died")
        for rank in range(2)
    ]
    for process in processes:
        process.gone = Gone(1, signal)
    found = Sources(
        (), (), processes, 0, closed=False, failure=why, hangs=hangs, exited=False, idle=99.0
    )
    state, said = status_of(found, None, 1.0, begun=True)
    assert (state, said == why) == ("died", blames)


def test_what_silent_ranks_are_in_is_said_a_collective_or_a_phase(tmp_path: Path) -> None:
    processes = [
        Process(Recording(record(tmp_path, 20, rank)), 0.0, rank, "worker-1", 7, "silent")
        for rank in range(3)
    ]
    processes[0].operation = "all_reduce"
    for one, phase in zip(processes, ("backward", "data", "no phase"), strict=False):
        one.phase = phase
    found = Sources(
        (), (), processes, 0, closed=False, failure="", hangs=False, exited=False, idle=99.0
    )
    assert status_of(found, None, 1.0, begun=True) == (
        "silent",
        "nothing was written for 99.0 s; rank 1 in data; rank 2 in no phase; rank 0 in all_reduce",
    )


def test_where_ranks_stand_that_have_not_begun_to_train_is_said() -> None:
    found = Sources(
        (), (), (), 1, closed=False, failure="", hangs=False, exited=False, idle=1.0,
        begins="Rank 0 stood in load (train.py:7), for 20.0 s",
    )  # fmt: skip
    assert status_of(found, None, None, begun=False) == ("waiting", found.begins)


def silent(**more: Any) -> str:
    found = Sources((), (), (), 1, closed=False, failure="", hangs=False, exited=False, idle=99.0)
    return status_of(replace(found, **more), None, 1.0, begun=True)[1]


def test_that_what_is_watched_is_gone_or_cannot_be_read_is_told_of_a_silent_job_too() -> None:
    assert silent(missing=["run.log"]) == "nothing was written for 99.0 s · run.log is gone"
    assert silent(faults=["run.log: cannot be read"]).endswith(" · run.log: cannot be read")


def test_a_pipe_that_is_closed_without_a_step_has_ended() -> None:
    found = Sources((), (), (), 1, closed=True, failure="", hangs=False, exited=False, idle=None)
    state, note = status_of(found, None, None, begun=False)
    assert state == "ended"
    assert note.startswith("nothing more will come, and no line shows a step")
