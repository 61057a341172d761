"""The interval of a ratio is honest, and allows one answer or none."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from dsprof.analysis.ratio import (
    Times,
    _block_length,
    _few_blocks,
    block_means,
    interval,
    judge,
    rows_needed,
)

Floats = NDArray[np.float64]


def series(size: int, mean: float, memory: float, chance: np.random.Generator) -> Floats:
    """Step times with 5 % noise that remembers: an autoregressive process of order one."""
    noise = chance.normal(0, 0.05, size)
    for i in range(1, size):
        noise[i] += memory * noise[i - 1]
    return np.asarray(mean * (1 + noise))


def noisy(size: int, mean: float, memory: float, chance: np.random.Generator) -> Times:
    """The same, of one step each."""
    return Times(series(size, mean, memory, chance), np.ones(size))


@pytest.mark.parametrize(
    ("low", "high", "answer"),
    [
        (1.03, 1.2, "regression"),
        (0.8, 0.97, "improvement"),
        (0.985, 1.015, "none"),
        (0.99, 1.1, "cannot tell"),
        (0.9, 1.1, "cannot tell"),
    ],
)
def test_an_interval_allows_one_answer(low: float, high: float, answer: str) -> None:
    assert judge(low, high, 0.02) == answer


def test_two_runs_of_the_same_job_are_rarely_called_different() -> None:
    """The false alarms of 200 pairs whose step times remember each other."""
    chance = np.random.default_rng(7)
    answers = [
        judge(*interval(noisy(60, 1, 0.7, chance), noisy(60, 1, 0.7, chance))[1:], 0.02)
        for _ in range(200)
    ]
    assert answers.count("regression") + answers.count("improvement") <= 14


def test_the_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    chance = np.random.default_rng(11)
    held = 0
    for _ in range(200):
        _, low, high = interval(noisy(150, 1, 0.5, chance), noisy(150, 1.05, 0.5, chance))
        held += low <= 1.05 <= high
    assert held >= 175


def test_resamples_centre_on_the_mean() -> None:
    values = np.arange(100.0)
    means = block_means(Times(values, np.ones(100)), np.random.default_rng(3))
    assert means.mean() == pytest.approx(values.mean(), rel=0.02)
    assert means.std() > values.std() / 10  # blocks of neighbours vary more than single values


def test_so_near_a_border_that_no_run_would_tell_asks_for_none() -> None:
    assert rows_needed(1.0201, 0.9, 1.1, 0.02, 30) is None


@pytest.mark.parametrize("size", [200, 24])
def test_an_interval_reaches_about_as_far_to_both_sides(size: int) -> None:
    chance = np.random.default_rng(5)
    ratio, low, high = interval(noisy(size, 1, 0, chance), noisy(size, 1.1, 0, chance))
    assert low < ratio < high
    assert high - ratio == pytest.approx(ratio - low, rel=0.2)


def test_an_interval_of_steps_that_are_not_alike_is_four_standard_errors_wide() -> None:
    chance = np.random.default_rng(5)
    ratio, low, high = interval(noisy(200, 1, 0, chance), noisy(200, 1.1, 0, chance))
    assert high - low == pytest.approx(4 * ratio * 0.05 * (2 / 200) ** 0.5, rel=0.2)


@pytest.mark.parametrize(
    ("blocks", "wider"),
    [(5, 2.776 / 1.960 * (5 / 4) ** 0.5), (1, 12.706 / 1.960 * 2**0.5), (1e6, 1.0)],
)
def test_few_blocks_widen_an_interval_as_students_t_does(blocks: float, wider: float) -> None:
    assert _few_blocks(blocks) == pytest.approx(wider, rel=1e-3)


@pytest.mark.parametrize(
    ("values", "length"),
    [
        (np.tile([1.0, 2.0], 500), 10),  # what alternates is not alike: the cube root
        (np.ones(1000), 10),
        (np.repeat(np.tile([1.0, 2.0], 20), 25), 24),  # alike for 12 rows
        (np.arange(1000.0), 250),  # alike throughout: a quarter
        (np.ones(3), 1),
    ],
)
def test_a_block_is_twice_as_long_as_step_times_are_alike(values: Floats, length: int) -> None:
    assert _block_length(values) == length


def test_so_many_rows_are_needed_as_narrow_the_interval_to_the_nearer_limit() -> None:
    assert rows_needed(1.1, 1.0, 1.2, 0.02, 30) == 47  # 30 times (0.1 / 0.08) squared
    assert rows_needed(1.0, 0.9, 1.1, 0.02, 30) == 750
    assert rows_needed(1.021, 0.9, 1.1, 0.02, 30) is None  # ten thousand times as many


def test_an_interval_that_ends_at_the_tolerance_is_within_it() -> None:
    assert judge(1 - 0.25, 1 + 0.25, 0.25) == "none"
    assert judge(1.25, 1.5, 0.25) == judge(0.5, 0.75, 0.25) == "cannot tell"


def test_a_row_counts_for_as_many_steps_as_it_is_the_mean_of() -> None:
    seconds, steps = np.repeat([8.0, 4.0], [10, 15]), np.repeat([10.0, 100.0], [10, 15])
    ratio, low, high = interval(Times(seconds, steps), Times(np.full(25, 4.0), steps))
    assert ratio == pytest.approx(4 / (6_800 / 1_600))
    assert low < ratio < high


def test_of_more_rows_than_are_resampled_none_is_left_out() -> None:
    """Each 500th step saves; of every fifth step none does."""
    plain, saving = np.ones(100_000), np.ones(100_000)
    saving[498::500] = 101
    ratio, low, _ = interval(*(Times(each, np.ones(100_000)) for each in (plain, saving)))
    assert ratio == pytest.approx(1.2)
    assert low > 1.1


def test_an_interval_ends_above_nothing() -> None:
    calm = Times(np.ones(8), np.ones(8))
    jump = Times(np.array([1.0, 1, 1, 1, 30, 1, 1, 1]), np.ones(8))
    ends = interval(calm, jump)[1:]
    assert ends[0] > 0
    assert interval(jump, calm)[1:] == pytest.approx([1 / ends[1], 1 / ends[0]], rel=0.1)
