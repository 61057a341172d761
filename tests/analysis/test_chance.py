"""Whether a stretch of a series stands out of the series' own noise."""

from __future__ import annotations

import numpy as np
import pytest

from dsprof.analysis.chance import chance


def test_a_rise_beyond_the_noise_is_no_chance() -> None:
    noise = np.random.default_rng(1).normal(0.0, 0.01, 40)
    values = 1.0 + noise
    values[20:] += 0.1
    assert chance(values, noise, 20, 40) < 0.01


def test_the_highest_stretch_of_mere_noise_is_chance() -> None:
    rare = 0
    for seed in range(40):
        noise = np.random.default_rng(seed).normal(0.0, 0.1, 60)
        first = int(np.convolve(noise, np.ones(10), "valid").argmax())
        rare += chance(1.0 + noise, noise, first, first + 10) <= 0.05
    assert rare <= 4


def test_noise_that_lasts_several_values_must_be_beaten_by_more() -> None:
    """Each value is there five times: a stretch of ten is but two of them."""
    noise = np.repeat(np.random.default_rng(2).normal(0.0, 0.1, 12), 5)
    values = 1.0 + noise
    values[50:] += 0.25
    assert chance(values, noise, 50, 60) > 0.05
    assert chance(values, np.zeros(60), 50, 60) < 0.05


def test_a_series_that_never_changes_and_one_spike_are_chance() -> None:
    assert chance(np.ones(30), np.zeros(30), 10, 30) == 1.0
    spike = np.ones(30)
    spike[7] = 9.0
    assert chance(spike, np.zeros(30), 7, 8) == pytest.approx(1.0, abs=0.01)


def test_equal_values_are_of_equal_rank_wherever_they_stand() -> None:
    values = np.repeat([1.0, 2.0, 1.0], 10)
    assert chance(values, np.zeros(30), 10, 20) < 0.05
    assert chance(values, np.zeros(30), 20, 30) == 1.0
