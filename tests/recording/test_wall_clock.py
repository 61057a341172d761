"""A wall clock that runs evenly, drifts or is set."""

from __future__ import annotations

import numpy as np
import pytest

from dsprof.recording.layout import CLOCK, RowKind
from dsprof.recording.wall_clock import Clock


def read(clock: Clock, perf: int, wall: int) -> None:
    """Both clocks are read again."""
    clock.define(CLOCK.pack(RowKind.CLOCK, perf, wall, 1), bytes([RowKind.CLOCK]))


def test_between_two_readings_the_clock_runs_evenly() -> None:
    clock = Clock(1_000, 10**18)
    assert list(clock.utc(np.array([1_000, 2_000]))) == [10**18, 10**18 + 1_000]
    read(clock, 101_000, 10**18 + 100_000 + 512_000)
    assert list(clock.utc(np.array([51_000, 101_000, 201_000])) - 10**18) == [
        50_000 + 256_000, 100_000 + 512_000, 200_000 + 512_000,
    ]  # fmt: skip


@pytest.mark.parametrize("hours", [1, -1])
def test_a_clock_that_was_set_between_two_readings_counts_from_the_later_one(hours: int) -> None:
    """Nobody knows when it was set: until then no time between two events changes."""
    clock, second = Clock(0, 10**18), 10**9
    jump = hours * 3_600 * second
    read(clock, 60 * second, 10**18 + 60 * second + jump)
    at = np.array([0, 59 * second, 60 * second, 61 * second])
    assert list(clock.utc(at) - 10**18) == [0, at[1], at[2] + jump, at[3] + jump]
    assert clock.was_set == jump


def test_a_clock_that_a_time_server_slews_was_not_set() -> None:
    clock, second = Clock(0, 10**18), 10**9
    read(clock, 60 * second, 10**18 + 60 * second + 30_000_000)  # 500 ppm
    assert clock.was_set == 0
    assert clock.utc(np.array([30 * second]))[0] == 10**18 + 30 * second + 15_000_000
