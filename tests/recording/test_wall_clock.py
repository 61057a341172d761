"""A wall clock that runs evenly, drifts or is set."""

from __future__ import annotations

import numpy as np
import pytest

from dsprof.recording.layout import CLOCK, RowKind
from dsprof.recording.wall_clock import Clock

SECOND = 10**9


def read(clock: Clock, *times: tuple[int, int]) -> None:
    """Both clocks are read again, in rows behind each other."""
    rows = [CLOCK.pack(RowKind.CLOCK, perf, wall, 1) for perf, wall in times]
    clock.define(b"".join(rows), bytes([RowKind.CLOCK] * len(rows)))


def test_between_two_readings_the_clock_runs_evenly() -> None:
    clock = Clock(1_000, 10**18)
    assert list(clock.utc(np.array([1_000, 2_000]))) == [10**18, 10**18 + 1_000]
    read(clock, (101_000, 10**18 + 100_000 + 512_000))
    assert list(clock.utc(np.array([51_000, 101_000, 201_000])) - 10**18) == [
        50_000 + 256_000, 100_000 + 512_000, 200_000 + 512_000,
    ]  # fmt: skip


@pytest.mark.parametrize("hours", [1, -1])
def test_a_clock_that_was_set_between_two_readings_counts_from_the_later_one(hours: int) -> None:
    """Nobody knows when it was set: until then no time between two events changes."""
    clock = Clock(0, 10**18)
    jump = hours * 3_600 * SECOND
    read(clock, (60 * SECOND, 10**18 + 60 * SECOND + jump))
    at = np.array([0, 59 * SECOND, 60 * SECOND, 61 * SECOND])
    assert list(clock.utc(at) - 10**18) == [0, at[1], at[2] + jump, at[3] + jump]
    assert clock.was_set == jump


def test_a_clock_that_a_time_server_slews_was_not_set() -> None:
    clock = Clock(0, 10**18)
    read(clock, (60 * SECOND, 10**18 + 60 * SECOND + 30_000_000))  # 500 ppm
    assert clock.was_set == 0
    assert clock.utc(np.array([30 * SECOND]))[0] == 10**18 + 30 * SECOND + 15_000_000


def test_what_is_more_than_slewing_was_set_however_long_the_machine_had_run() -> None:
    booted, moved = 10**16, 80_000_000
    clock = Clock(booted, 10**18)
    read(clock, (booted + 60 * SECOND, 10**18 + 60 * SECOND + moved))
    assert clock.was_set == moved


def test_all_readings_count_also_those_behind_each_other_and_each_setting() -> None:
    clock, hour = Clock(0, 10**18), 3_600 * SECOND
    read(
        clock,
        (60 * SECOND, 10**18 + 60 * SECOND),
        (120 * SECOND, 10**18 + 120 * SECOND + hour),
        (180 * SECOND, 10**18 + 180 * SECOND + 3 * hour),
    )
    assert clock.was_set == 3 * hour
    assert clock.last == 10**18 + 180 * SECOND + 3 * hour
    at = np.array([90, 150, 200]) * SECOND
    assert list(clock.utc(at) - 10**18 - at) == [0, hour, 3 * hour]
