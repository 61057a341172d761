"""The interval of a ratio is honest, and allows one answer or none."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from dsprof.analysis.ratio import block_means, interval, judge, rows_needed

Floats = NDArray[np.float64]


def series(size: int, mean: float, memory: float, chance: np.random.Generator) -> Floats:
    """Step times with 5 % noise that remembers: an autoregressive process of order one."""
    noise = chance.normal(0, 0.05, size)
    for i in range(1, size):
        noise[i] += memory * noise[i - 1]
    return np.asarray(mean * (1 + noise))


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
        judge(*interval(series(60, 1, 0.7, chance), series(60, 1, 0.7, chance))[1:], 0.02)
        for _ in range(200)
    ]
    assert answers.count("regression") + answers.count("improvement") <= 14


def test_the_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    chance = np.random.default_rng(11)
    held = 0
    for _ in range(200):
        _, low, high = interval(series(150, 1, 0.5, chance), series(150, 1.05, 0.5, chance))
        held += low <= 1.05 <= high
    assert held >= 175


def test_resamples_centre_on_the_mean() -> None:
    values = np.arange(100.0)
    means = block_means(values, np.random.default_rng(3))
    assert means.mean() == pytest.approx(values.mean(), rel=0.02)
    assert means.std() > values.std() / 10  # blocks of neighbours vary more than single values


def test_so_near_a_border_that_no_run_would_tell_asks_for_none() -> None:
    assert rows_needed(1.0201, 0.9, 1.1, 0.02, 30) is None
