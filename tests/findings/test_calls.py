"""How fast single calls are."""

from __future__ import annotations

from dsprof.events import Severity
from tests.findings.plants import (
    WELL,
    call,
    one,
    run_of,
    silent,
    steps,
    why,
)

LINK = {"link_bytes_per_second": 10e9}


def large_calls(busbw: float) -> list[dict[str, object]]:
    """all_reduce of 64 MiB on 2 ranks: the bus factor 2(n-1)/n is 1."""
    size = 64 << 20
    return [call("all_reduce", step, size, size / busbw) for step in range(1, 11)]


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
    assert silent(run_of(steps(10, WELL) + rows, LINK, world_size=2), "slow-link")


def test_a_link_of_unknown_speed_is_not_judged() -> None:
    run = run_of(steps(10, WELL) + large_calls(2e9), world_size=2)
    assert "--link" in (why(run, "slow-link") or "")
