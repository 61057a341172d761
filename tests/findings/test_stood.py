"""Where processes stood that died."""

from __future__ import annotations

import pytest

from dsprof.findings.facts import Facts
from dsprof.findings.stood import said_of_all, stood
from tests.findings.plants import one
from tests.run.test_unclosed import LATER, inside, killed, process, run_of


def test_what_a_rank_was_in_that_was_killed_is_told_and_for_how_long() -> None:
    found = one(
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
    found = one(run_of(first, killed(1, 115.0, 15, **inside("data", "data"))), "rank-died")
    assert found.title.startswith(f"{who} on w0 was killed by SIG")
    assert found.summary.endswith(
        "Before that, rank 0 was in step for 99.9 s; rank 1 was in data for 105 s."
    )


def test_a_moment_too_short_for_the_cell_has_no_length() -> None:
    found = one(run_of(killed(0, 10.6, 15), killed(1, 10.11, 9, **inside("data"))), "rank-died")
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


def test_processes_of_older_recordings_stood_nobody_knows_where() -> None:
    assert stood(Facts(run_of(process(0), process(1))), 0) == []
