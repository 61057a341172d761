"""What is said of a job that is there and stands still, before it counts as one that hangs."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from dsprof.findings import Finding
from dsprof.run import Run, from_events
from tests.findings.plants import WELL, alone, steps
from tests.findings.plants import run_of as planted
from tests.run.ends.test_unclosed import START, ended, inside, process, run_of


def moment(seconds: float) -> int:
    return int((START + pd.Timedelta(seconds=seconds)).value)


def still(seconds: float, *places: dict[str, Any], step: float = 1.0) -> Finding | None:
    """Of ranks that stand in `places` and are seen there, so long after the start; the last step
    ended 10 s after it.
    """
    seen: dict[str, Any] = {"alive_at": moment(seconds), "idle": seconds - 10}
    run = run_of(*(process(rank, **seen | more) for rank, more in enumerate(places)), seconds=step)
    assert run.problems.empty
    found = [finding for finding in run.findings if finding.rule == "standing-still"]
    return found[0] if found else None


def waits(name: str = "all_reduce", since: float = 10.5) -> dict[str, Any]:
    return {"in_flight": {"name": name, "seq": 7, "at": moment(since)}}


def test_for_how_long_no_step_has_ended_is_told_and_where_the_ranks_stand() -> None:
    found = still(40.0, waits(), inside("step", over=True))
    assert found is not None
    assert (found.severity, found.ranks, found.steps) == ("info", (), (10, 10))
    assert found.title == (
        "No step has ended for 30.0 s, where one usually takes 1.00 s: rank 0 waited in all_reduce "
        "for 29.5 s; rank 1 was between phases, after step, for 29.9 s"
    )
    assert "whether it hangs is not known yet" in found.summary


def test_whom_others_wait_for_longer_than_a_step_may_take_is_a_warning() -> None:
    found = still(40.0, waits(), inside("data", "data"))
    assert found is not None
    assert (found.severity, found.ranks, found.confidence) == ("warning", (1,), "medium")
    assert "The others wait for rank 1, longer than any step took." in found.summary
    look, again = found.advice
    assert (look.setting, look.to) == ("py-spy dump --pid 101", "on w0, now")
    assert again.setting == "dsprof report"


def test_no_rank_is_awaited_by_clocks_that_cannot_be_compared() -> None:
    """Of another host, which may have written a moment ago: its clock may be late."""
    here: dict[str, Any] = {"alive_at": moment(40.0), "idle": 1.0}
    there = process(1, host="w1", idle=1.0, **inside("data", "data"))
    run = run_of(process(0, **here, **waits()), there)
    assert alone(run, "standing-still").severity == "info"
    clocks = {"w0": {"ahead": 0.0}, "w1": {"ahead": 0.0}}
    known = from_events(run.events, meta=run.meta | {"clocks": clocks})
    assert alone(known, "standing-still").severity == "warning"


def test_ranks_that_wait_in_different_collectives_are_a_warning_of_no_rank() -> None:
    found = still(40.0, waits(), waits("barrier"))
    assert found is not None
    assert (found.severity, found.ranks) == ("warning", ())
    assert "Each waits in a collective, and not all in the same one, longer" in found.summary


@pytest.mark.parametrize("place", ["evaluation", "checkpoint", "generate"])
def test_what_may_take_long_is_a_note(place: str) -> None:
    found = still(40.0, waits(), inside(place, "checkpoint" if place == "checkpoint" else "other"))
    assert found is not None
    assert found.severity == "info"


def test_all_ranks_in_the_middle_of_one_step_are_a_note() -> None:
    """As where torch.compile compiles anew."""
    found = still(40.0, *[inside("forward", "compute")] * 2)
    assert found is not None
    assert found.severity == "info"


def test_a_job_whose_steps_go_on_or_are_long_has_no_such_note() -> None:
    assert still(15.0, waits(), inside("data", "data")) is None
    assert still(40.0, waits(), inside("data", "data"), step=8.0) is None


def test_that_all_processes_are_stopped_is_said() -> None:
    found = still(40.0, *[{"stopped": True} | inside("data", "data")] * 2)
    assert found is not None
    assert (found.severity, "All of its processes are stopped" in found.summary) == ("info", True)


def test_who_has_ended_is_said() -> None:
    seen: dict[str, Any] = {"alive_at": moment(30.0), "idle": 20.0}
    run = run_of(ended(0), process(1, **seen, **inside("data", "data")))
    assert alone(run, "standing-still").summary.startswith("The recording of rank 0 has ended. ")


def test_it_is_not_said_that_nothing_holds_a_run_back_that_stands_still() -> None:
    def run(seconds: float) -> Run:
        rows = [row | {"source": "rank-0"} for row in steps(40, WELL)]
        rows = [row | {"at": START + pd.Timedelta(seconds=row["step"])} for row in rows]
        there = process(0, alive_at=moment(40.0 + seconds), idle=seconds)
        return planted(rows, {"recordings": [there]}, world_size=1, zero_stage=1)

    assert run(1.0).findings[0].title.startswith("Nothing holds this run back: ")
    title = run(20.0).findings[0].title
    assert title.startswith("No step has ended for 20.0 s, where one usually takes 1.00 s; before ")
    assert "that, nothing held this run back: compute is" in title


def test_what_is_watched_has_a_clock_of_its_own() -> None:
    there = process(0, alive_at=moment(40.0), idle=30.0, **inside("data", "data"))
    run = run_of(there, process(1, alive_at=moment(40.0), idle=30.0, **waits()))
    assert "standing-still" in {finding.rule for finding in run.findings}
    watched = from_events(run.events, meta=run.meta | {"watched": True})
    assert "standing-still" not in {finding.rule for finding in watched.findings}
