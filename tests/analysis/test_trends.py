"""Levels, spikes and rhythms of a series."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsprof.analysis.trends import (
    booked_late,
    climb,
    excess,
    levels,
    outliers,
    period,
    spikes,
    without_spikes,
)


def noise(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).lognormal(0.0, 0.03, count)


@given(count=st.integers(20, 3_000), seed=st.integers(0, 10_000))
def test_levels_tile_the_series(count: int, seed: int) -> None:
    found = levels(noise(count, seed))
    assert found[0].start == 0
    assert found[-1].stop == count
    assert all(a.stop == b.start for a, b in pairwise(found))


@pytest.mark.parametrize("count", [40, 400, 401, 5_000, 100_000])
def test_one_change_is_placed_within_a_few_rows(count: int) -> None:
    values = noise(count)
    cut = int(count * 0.6)
    values[cut:] *= 1.25
    found = levels(values)
    assert len(found) == 2
    assert abs(found[1].start - cut) <= 5
    assert found[1].median / found[0].median == pytest.approx(1.25, rel=0.03)


@pytest.mark.parametrize("stuck_out", [55, 57, 58, 61])
def test_a_change_is_placed_where_it_is_if_a_row_beside_it_sticks_out(stuck_out: int) -> None:
    values = noise(100)
    values[60:] *= 1.6
    values[stuck_out] *= 1.35
    first, second = levels(values)
    assert first.stop == second.start == 60


def test_a_constant_series_has_one_level() -> None:
    assert len(levels(np.ones(500))) == 1


def test_an_outlier_is_no_level() -> None:
    values = noise(300)
    values[100:103] = 40.0
    assert len(levels(values)) == 1


def test_three_levels_are_told_apart() -> None:
    values = noise(900)
    values[300:600] *= 1.5
    assert [round(level.median, 1) for level in levels(values)] == [1.0, 1.5, 1.0]


def test_few_values_climb_if_each_or_the_last_quarter_of_them_is_higher_than_before() -> None:
    each = [1.0, 1.1, 1.3, 1.4, 2.0]
    assert [level.median for level in climb(np.array(each))] == each
    assert climb(np.array(each[:4])) == []
    assert climb(np.array([1.0, 1.1, 1.1, 1.4, 2.0])) == []
    whole = np.array([1.0, 1.2, 1.1, 1.0, 1.2, 1.1, 1.3, 1.2, 1.3, 1.5, 1.5, 1.4])
    assert [(level.start, level.stop) for level in climb(whole)] == [(0, 6), (6, 9), (9, 12)]
    assert climb(whole[:11]) == []
    whole[3] = 1.4
    assert climb(whole) == []


@pytest.mark.parametrize("at", [6, 7, 9])
def test_few_values_that_jump_are_two_levels_and_climb_no_further(at: int) -> None:
    values = np.array([1.0, 1.02, 0.99, 1.01, 0.98, 1.01, 1.02, 1.0, 0.99, 1.0, 0.98, 1.01])
    values[at:] *= 2
    assert [(level.start, level.stop) for level in climb(values)] == [(0, at), (at, 12)]


def test_spikes_are_the_rows_that_stick_out() -> None:
    values = np.ones(200)
    values[[0, 50, 199]] = 3.0
    rows = spikes(values, 1.5)
    assert rows.tolist() == [0, 50, 199]
    assert excess(values, rows).tolist() == [2.0, 2.0, 2.0]


def test_of_few_values_those_far_above_all_others_are_outliers() -> None:
    values = np.array([1.0, 1.2, 1.1, 9.0, 1.0, 1.1, 1.2, 1.0])
    assert outliers(values, 3.0).tolist() == [3]
    assert outliers(values[:7], 3.0).tolist() == []
    values[6] = 5.0
    assert outliers(values, 3.0).tolist() == [3, 6]
    values[0] = 3.5
    assert outliers(values, 3.0).tolist() == []
    assert outliers(np.array([1.0] * 7 + [9.0]), 3.0).tolist() == [7]
    assert outliers(np.array([1.0] * 8 + [9.0] * 2), 3.0).tolist() == []


def test_a_step_to_a_new_level_is_no_spike() -> None:
    values = noise(400)
    values[200:] *= 2
    assert len(spikes(values, 1.5)) == 0


def test_a_rhythm_needs_four_beats_that_keep_to_it() -> None:
    assert period(np.array([9, 19, 29, 39])) == 10
    assert period(np.array([9, 19, 29])) is None
    assert period(np.array([3, 50, 61, 200, 204])) is None


def test_a_rhythm_keeps_to_its_beat_by_a_twentieth_and_one_row_is_no_beat() -> None:
    assert period(np.cumsum([0, 40, 42, 38, 40])) == 40
    assert period(np.cumsum([0, 40, 43, 37, 40])) is None
    assert period(np.array([0, 2, 4, 6])) == 2
    assert period(np.array([5, 6, 7, 8])) is None


def test_a_spike_is_so_many_times_what_is_usual_around_it() -> None:
    values = np.full(200, 10.0)
    values[[50, 120]] = 14.9, 15.0
    assert spikes(values, 1.5).tolist() == [120]


def test_a_spike_is_six_deviations_outside_of_the_noise() -> None:
    values = np.tile([9.0, 10.0, 11.0], 70)  # deviates by 1.48 from 10, outliers aside
    values[[60, 150]] = 18.5, 19.5
    assert spikes(values, 1.5).tolist() == [150]


def test_without_its_spikes_a_series_is_what_is_usual_around_them() -> None:
    values = np.ones(200)
    values[[50, 120]] = 3.0
    assert without_spikes(values, 1.5).tolist() == [1.0] * 200
    assert values[50] == 3.0  # a copy


def test_a_row_whose_neighbour_is_shorter_by_as_much_was_booked_late() -> None:
    usual = np.full(40, 3.37)
    for at, taken in ((10, 2.42), (20, -2.41), (30, 0.5)):  # of the row behind, before, and hardly
        usual[at] += 2.42
        usual[at + (1 if taken < 0 else -1)] -= abs(taken)
    assert booked_late(usual, np.array([10, 20, 30])).tolist() == [True, True, False]


@pytest.mark.parametrize("at", [0, 39])
def test_a_row_at_an_end_has_one_neighbour(at: int) -> None:
    usual = np.full(40, 3.0)
    usual[at] = 6.0
    assert booked_late(usual, np.array([at])).tolist() == [False]
    usual[1 if at == 0 else 38] = 0.1
    assert booked_late(usual, np.array([at])).tolist() == [True]
