"""How fast single calls are."""

from __future__ import annotations

from dsprof.events import Severity
from tests.findings.plants import WELL, alone, call, one, quiet, run_of, steps, why

LINK = {"link_bytes_per_second": 10e9}


def large_calls(busbw: float, rank: int = 0) -> list[dict[str, object]]:
    """all_reduce of 64 MiB on 2 ranks, as logged: the bus factor 2(n-1)/n is 1."""
    size = 64 << 20
    return [
        call("all_reduce", step, size, size / busbw, rank, pattern="t.p") for step in range(1, 11)
    ]


def test_large_transfers_below_half_the_link_are_a_slow_link() -> None:
    found = one(run_of(steps(10, WELL) + large_calls(4e9), LINK, world_size=2), "slow-link")
    assert found.severity is Severity.WARNING
    assert "4.00 GB/s of the link's 10.0 GB/s" in found.title


def test_below_a_quarter_of_the_link_is_critical() -> None:
    found = one(run_of(steps(10, WELL) + large_calls(2e9), LINK, world_size=2), "slow-link")
    assert found.severity is Severity.CRITICAL


def test_one_fast_call_in_ten_means_waiting_and_not_the_link() -> None:
    size = 64 << 20
    rows = large_calls(2e9) + [call("all_reduce", step, size, size / 9e9) for step in (3, 4)]
    assert quiet(run_of(steps(10, WELL) + rows, LINK, world_size=2), "slow-link")


def test_the_rank_that_comes_last_to_every_call_shows_what_the_link_can_do() -> None:
    """Of many ranks its calls are fewer than a tenth."""
    waiting = [row for rank in range(1, 16) for row in large_calls(1e9, rank)]
    others, last = steps(10, WELL) + waiting, large_calls(9e9)
    assert quiet(run_of(others + last, LINK, world_size=2), "slow-link")
    found = alone(run_of(others, LINK, world_size=2), "slow-link")
    assert "a rank whose calls are not here may be late to all of them" in found.summary


def test_calls_of_all_ranks_leave_no_rank_to_be_late() -> None:
    rows = steps(10, WELL) + large_calls(3e9) + large_calls(4e9, rank=1)
    found = alone(run_of(rows, LINK, world_size=2), "slow-link")
    assert "of 16.0 MiB and more, on rank 1, whose are fastest, has" in found.summary
    assert "calls of all ranks are here: the path itself is slow" in found.summary


def test_a_link_of_unknown_speed_is_not_judged() -> None:
    run = run_of(steps(10, WELL) + large_calls(2e9), world_size=2)
    assert "--link" in (why(run, "slow-link") or "")
