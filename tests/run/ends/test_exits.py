"""What is known of processes that ended, and their moments by one clock."""

from __future__ import annotations

import signal
from typing import Any

import pandas as pd
import pytest

from dsprof.recording.launches import NOT_FOUND, Gone
from dsprof.run.ends.exits import (
    as_seen,
    by_one_clock,
    end_of,
    ended_by_signal,
    has_failed,
    have_one_clock,
    last_seen,
    told_by,
    was_interrupted,
    was_stopped,
)

SECOND = 10**9
AT = pd.Timestamp("2026-01-01 12:00:00")


def process(host: str = "w0", **more: Any) -> dict[str, Any]:
    return {"source": f"of {host}", "host": host, "ended": False, "ended_at": None} | more


def events(*rows: tuple[str, int, str]) -> pd.DataFrame:
    """Of hosts: seconds after `AT`, and the kind."""
    table = pd.DataFrame(
        [
            {"source": f"of {host}", "at": AT + pd.Timedelta(seconds=after), "kind": kind}
            for host, after, kind in rows
        ]
    )
    return table.astype({"kind": "category"})


def test_all_moments_of_a_process_are_brought_to_the_clock_of_the_first_host() -> None:
    moments: dict[str, Any] = {
        "ended_at": 10 * SECOND, "alive_at": 11 * SECOND, "lost": 12 * SECOND,
        "in_flight": {"name": "all_reduce", "at": 13 * SECOND},
        "phase": {"name": "forward", "at": 14 * SECOND},
        "killed": Gone(15 * SECOND, 9),
    }  # fmt: skip
    clocks = {"w0": {"ahead": 0.0}, "w1": {"ahead": 3.0}}
    both = [process(**moments), process("w1", **moments)]
    (first, second), timed = by_one_clock(both, events(("w0", 9, ""), ("w1", 9, "")), clocks)
    assert first == both[0]
    assert [second[name] // SECOND for name in ("ended_at", "alive_at", "lost")] == [7, 8, 9]
    assert [second[name]["at"] // SECOND for name in ("in_flight", "phase")] == [10, 11]
    assert second["killed"] == Gone(12 * SECOND, 9)
    assert timed["at"].tolist() == [AT + pd.Timedelta(seconds=after) for after in (9, 6)]


def test_moments_that_are_not_known_stay_so() -> None:
    unknown = process("w1", in_flight={"name": "all_reduce", "at": None}, phase=None)
    (found,), _ = by_one_clock([unknown], events(("w1", 9, "")), {"w1": {"ahead": 3.0}})
    assert found == unknown


@pytest.mark.parametrize("clocks", [None, {}, {"w1": {"set": 3.0}}])
def test_clocks_that_are_not_known_to_differ_are_believed(clocks: Any) -> None:
    both, rows = [process("w1", ended_at=SECOND)], events(("w1", 9, ""))
    processes, timed = by_one_clock(both, rows, clocks)
    assert (processes, timed["at"].tolist()) == (both, rows["at"].tolist())


def test_clocks_can_be_compared_on_one_host_or_where_all_are_known() -> None:
    assert have_one_clock([process(), process()], None)
    both = [process(), process("w1")]
    assert not have_one_clock(both, None)
    assert not have_one_clock(both, {"w0": {"ahead": 0.0}, "w1": {"set": 3.0}})
    assert have_one_clock(both, {"w0": {"ahead": 0.0}, "w1": {"ahead": 3.0}})


def test_a_process_that_was_gone_when_it_was_looked_for_is_only_lost_since_then() -> None:
    found = as_seen(process(killed=Gone(5, NOT_FOUND)))
    assert (found["killed"], found["lost"], found["ended"]) == (None, 5, False)


def test_who_exited_with_status_0_closed_then_unless_it_had_before() -> None:
    well = as_seen(process(killed=Gone(5, 0, 0)))
    assert (well["ended"], well["ended_at"], well["said_nothing"]) == (True, 5, True)
    for other in (
        process(killed=Gone(5, 0, 0), ended=True, ended_at=4),
        process(killed=Gone(5, 9)),
        process(killed=Gone(5, 0)),
        process(killed=Gone(5, 0, 7)),
        process(),
    ):
        assert as_seen(other) == other


def test_what_ended_a_process() -> None:
    codes = {None: False, 0: False, 1: True, 130: True, 128 + signal.SIGTERM: False}
    assert {code: has_failed(Gone(5, 0, code)) for code in codes} == codes
    by = {name: process(killed=Gone(5, getattr(signal, name))) for name in ("SIGINT", "SIGTERM")}
    assert [was_interrupted(by[name]) for name in by] == [True, False]
    assert [was_stopped(by[name]) for name in by] == [False, True]
    assert not was_stopped(by["SIGTERM"] | {"ended": True})
    assert [ended_by_signal(one) for one in (*by.values(), process(killed=Gone(5, 0, 1)))] == [
        True, True, False,
    ]  # fmt: skip


def test_who_closed_its_recording_had_ended_then_whenever_it_was_gone() -> None:
    gone = Gone(9, 0, 1)
    assert end_of(process(killed=gone)) == 9
    assert end_of(process(killed=gone, ended=True, ended_at=4)) == 4


def test_a_launch_was_last_seen_by_its_newest_row_or_by_who_is_there() -> None:
    rows = events(("w0", 9, ""), ("w1", 5, ""), ("elsewhere", 60, ""))
    newest = (AT + pd.Timedelta(seconds=9)).value
    assert last_seen([process(), process("w1")], rows) == newest
    assert last_seen([process(), process("w1", alive_at=newest + 1)], rows) == newest + 1
    assert last_seen([process(alive_at=newest - 1)], rows) == newest
    assert last_seen([], rows) == 0


def test_only_the_problems_of_a_launch_itself_are_what_it_tells() -> None:
    rows = events(("w0", 1, "problem"), ("w0", 2, "metric"), ("w1", 3, "problem"))
    assert told_by([process()], rows)["at"].tolist() == [AT + pd.Timedelta(seconds=1)]
