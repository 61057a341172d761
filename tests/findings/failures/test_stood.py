"""Where processes stood that died."""

from __future__ import annotations

from typing import Any

import pytest

from dsprof.findings.facts import Facts
from dsprof.findings.failures.stood import proofs, said_of_all, stood
from dsprof.recording.launches import NOT_FOUND
from dsprof.run import from_events
from tests.findings.plants import alone
from tests.run.ends.test_unclosed import LATER, ended, inside, killed, process, run_of, standing


def said(*processes: dict[str, Any]) -> str:
    return said_of_all(stood(Facts(run_of(*processes)), 0))


def test_what_a_rank_was_in_that_was_killed_is_told_and_for_how_long() -> None:
    found = alone(
        run_of(killed(0, 10.6, 15), killed(1, 10.5, 9, **inside("data", "data"))), "rank-died"
    )
    assert found.summary.endswith("Before that, it was in data for 400 ms.")


@pytest.mark.parametrize(("signal", "who"), [(6, "A process"), (9, "Rank 0")])
def test_of_one_that_had_stood_for_long_it_is_told_where_the_others_were(
    signal: int, who: str
) -> None:
    """On NCCL no process waits in the call: the host goes on to where it needs the result. Then its
    watchdog aborts it."""
    first = killed(0, 110.0, signal, **inside("step"))
    found = alone(run_of(first, killed(1, 115.0, 15, **inside("data", "data"))), "rank-died")
    assert found.title.startswith(f"{who} on w0 was killed by SIG")
    assert found.summary.endswith(
        "Before that, rank 0 was in step for 99.9 s; rank 1 was in data for 105 s."
    )


def test_a_moment_too_short_for_the_cell_has_no_length() -> None:
    found = alone(run_of(killed(0, 10.6, 15), killed(1, 10.11, 9, **inside("data"))), "rank-died")
    assert found.summary.endswith("Before that, it was in data.")


def test_ranks_at_one_place_are_told_together() -> None:
    waits = {"in_flight": {"name": "all_reduce", "seq": 7, "at": LATER - 20 * 10**9}}
    most = [killed(n, 40.0, 15, None, **waits, **inside("backward")) for n in range(3)]
    run = run_of(*most, process(3, **inside("data")))
    assert said_of_all(stood(Facts(run), 0)) == (
        "ranks 0, 1 and 2 waited in all_reduce, inside backward, one of them for 20.0 s; rank 3 "
        "was in data since 12:00:10 UTC"
    )


def test_of_ranks_at_one_place_one_whose_time_is_known_tells_it() -> None:
    unknown = {"phase": {"name": "data", "class": "data", "over": False, "at": 0}}
    run = run_of(process(0, **unknown), process(1, **inside("data")))
    assert said_of_all(stood(Facts(run), 0)) == (
        "ranks 0 and 1 were in data, one of them since 12:00:10 UTC"
    )


def test_of_many_places_those_of_most_ranks_are_told() -> None:
    """As of a pipeline, whose stages wait in calls of their own."""
    most = [process(n, **inside(f"stage {n // 3}")) for n in range(30)]
    said = said_of_all(stood(Facts(run_of(*most)), 0))
    assert (said.count(";"), said.endswith("; 18 more elsewhere")) == (4, True)


@pytest.mark.parametrize("at", [None, 40.0])
def test_since_when_a_process_stood_there_is_not_told_where_nobody_knows(at: float | None) -> None:
    phase: dict[str, Any] = {"phase": {"name": "data", "class": "", "over": False, "at": 0}}
    alone = process(0, **phase) if at is None else killed(0, at, 15, **phase)
    assert said(alone) == "rank 0 was in data"


def test_of_a_process_that_was_not_found_it_is_not_known_how_long_it_stood_there() -> None:
    """It may have been gone for long, or run in a container."""
    gone = killed(0, 40.0, NOT_FOUND, **inside("data", "data"))
    assert said(gone) == "rank 0 was in data since 12:00:10 UTC"


def test_a_process_that_waits_between_phases_is_not_inside_the_last_one() -> None:
    waits: Any = {"in_flight": {"name": "all_reduce", "seq": 7, "at": LATER - 20 * 10**9}}
    between = killed(0, 40.0, 15, **waits, **inside("step", over=True))
    assert said(between) == "rank 0 waited in all_reduce for 20.0 s"


def test_a_process_of_which_only_its_call_is_known_is_told_too() -> None:
    waits = {"in_flight": {"name": "all_reduce", "seq": 7, "at": LATER}}
    assert said(process(0, **waits)) == "rank 0 waited in all_reduce since 12:00:40 UTC"


def test_only_processes_of_the_launch_are_told_that_did_not_close_their_recordings() -> None:
    done = ended(1, **inside("forward"))
    again = process(2, segment=1, **inside("data"))
    assert said(process(0, **inside("step")), done, again) == (
        "rank 0 was in step since 12:00:10 UTC"
    )


def test_of_ranks_at_one_place_the_longest_time_is_told() -> None:
    ones = [killed(0, 40.0, 15, **inside("data"))]
    later: Any = {"phase": {"name": "data", "class": "", "over": False, "at": LATER - 10**9}}
    ones.append(killed(1, 40.0, 15, **later))
    assert said(*ones) == "ranks 0 and 1 were in data, one of them for 29.9 s"


def test_for_how_long_a_process_was_seen_to_stand_there_is_told_by_its_own_clock() -> None:
    run = run_of(killed(0, 40.0, 15, **inside("data")))
    run = from_events(run.events, meta=run.meta | {"clocks": {"w0": {"ahead": 5.0}}})
    (told,) = stood(Facts(run), 0)
    assert (told.lasted, told.until) == (" for 29.9 s", LATER - 5 * 10**9)


def test_when_a_launch_was_over_is_until_when_a_process_stood_there_that_nobody_saw() -> None:
    (told,) = stood(Facts(run_of(process(0, over_at=LATER, **inside("data")))), 0)
    assert (told.seconds, told.until) == (None, LATER)
    assert told.silent == pytest.approx(29.9)


def test_a_process_that_outlived_all_others_was_silent_until_it_was_ended() -> None:
    gone = killed(0, 40.0, 15, over_at=LATER - 20 * 10**9, **inside("data"))
    (told,) = stood(Facts(run_of(gone)), 0)
    assert told.silent == pytest.approx(29.9)


@pytest.mark.parametrize(
    ("sign", "other"),
    [
        ("the command ended", {"over_at": LATER}),
        ("another was last seen", {"alive_at": LATER}),
        ("the others ended", {"ended": True, "ended_at": LATER}),
        ("the last of the others began to wait", {"in_flight": {"name": "send", "at": LATER}}),
    ],
)
def test_the_last_that_is_known_of_a_launch_says_what_it_is(sign: str, other: Any) -> None:
    """By the clock of the process that shows it."""
    run = run_of(process(0, **inside("data")), process(1, host="w1", **other))
    run = from_events(run.events, meta=run.meta | {"clocks": {"w1": {"ahead": 10.0}}})
    told = stood(Facts(run), 0)[0]
    assert told.sign == sign
    assert told.silent == pytest.approx(19.9)


def test_of_an_error_that_a_process_tells_it_is_not_said_where_others_stood() -> None:
    row = {
        "kind": "problem", "name": "exception", "text": "ValueError: no", "segment": 0,
        "engine": 0, "line": 11, "record": 11, "source": "run.log",
    }  # fmt: skip
    found = alone(run_of(process(0, idle=1.0, **inside("data")), rows=[row]), "rank-died")
    assert "Before that" not in found.summary


def test_processes_of_older_recordings_stood_nobody_knows_where() -> None:
    assert stood(Facts(run_of(process(0), process(1))), 0) == []


LOAD = "read (lib/io.py) < load (./data.py:7) < main (./train.py:30)"
WAIT = "wait (torch/work.py) < log (./train.py:44)"


def test_the_code_that_ranks_stood_in_is_told_where_their_stacks_were_seen() -> None:
    """Of a collective, where it was called."""
    waits: dict[str, Any] = {
        "in_flight": {"name": "all_reduce", "seq": 7, "at": LATER - 29 * 10**9}
    }
    data, backward = (inside(name, name) for name in ("data", "backward"))
    run = run_of(
        killed(0, 40.0, 15, stands=True, **data),
        killed(1, 40.0, 15, stands=True, **waits, **backward),
        killed(2, 40.0, 15, **data), rows=[standing(0, LOAD), standing(1, WAIT, 11.0)],
    )  # fmt: skip
    every = stood(Facts(run), 0)
    assert said_of_all(every[:2]) == (
        "rank 0 was in data for 29.9 s, in read (lib/io.py), called by load (data.py:7); rank 1 "
        "waited in all_reduce, inside backward, for 29.0 s, called by log (train.py:44)"
    )
    assert said_of_all(every[::2]) == "ranks 0 and 2 were in data, one of them for 29.9 s"
    assert [(one.source, one.line, one.text) for one in proofs(every)] == [
        ("rank-0", 11, f"its stack, seen for 28.0 s: {LOAD}"),
        ("rank-1", 11, f"its stack, seen for 28.0 s: {WAIT}"),
    ]


def test_of_one_that_died_the_code_it_had_stood_in_is_told() -> None:
    dead = killed(1, 15.0, 9, stands=True, **inside("step", over=True))
    run = run_of(killed(0, 40.0, 15), dead, rows=[standing(1, LOAD)])
    assert alone(run, "rank-died").summary.endswith(
        "Before that, it was between phases, after step, for 4.90 s, in read (lib/io.py), called "
        "by load (data.py:7)."
    )


def test_what_it_stood_in_before_it_went_on_is_not_told() -> None:
    run = run_of(process(0), process(1, **inside("data")), rows=[standing(1, LOAD)])
    assert stood(Facts(run), 0)[0].standing is None
