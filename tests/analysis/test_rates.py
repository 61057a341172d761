"""Stated rates, held against batch and step time."""

from __future__ import annotations

import pandas as pd
import pytest

from dsprof.analysis.rates import batch_of, counted_batch, rate_of_steps
from tests.findings.plants import metric, run_of


@pytest.mark.parametrize(
    ("stated", "seconds", "batch", "told"),
    [
        ([32.0, 34.0], 2.0, 32, 16.0),  # half of each step lies outside of its timer
        ([16.5, 15.5], 2.0, 32, None),
        ([8.0, 8.0], 2.0, 32, 16.0),  # of printed steps: those between them are quicker
        ([8.0, None], 2.0, 32, None),  # of a timer that is too long, or of an odd step
        ([4.0, 36.0], 4.4, 32, None),  # 7.2 of all together: a mean of rates is not their rate
        ([32.0, 34.0], None, 32, None),
        ([32.0, 34.0], 2.0, None, None),
        ([], 2.0, 32, None),
    ],
)
def test_a_stated_rate_that_is_not_that_of_the_steps_is_told_beside_the_true_one(
    stated: list[float | None], seconds: float | None, batch: int | None, told: float | None
) -> None:
    rates = pd.Series(stated, dtype="Float64")
    steps = pd.DataFrame({"samples_per_second": rates, "seconds_from": "timers", "covers": 1.0})
    assert rate_of_steps(steps, seconds, batch) == told


def test_rates_reckoned_from_windows_of_unlike_length_are_no_others_than_the_steps() -> None:
    """Forty steps of a second, and one of 21 s: 32 samples each."""
    took = {"seconds": [1.0, 21.0], "covers": [40.0, 1.0], "samples_per_second": [32.0, 32 / 21]}
    steps = pd.DataFrame(took | {"seconds_from": "bar"})
    assert rate_of_steps(steps, 61 / 41, 32) is None


@pytest.mark.parametrize(("sizes", "told"), [((32, 32), 32), ((16, 32), None), ((), 32)])
def test_a_batch_that_grows_in_training_is_none_that_rates_can_be_held_against(
    sizes: tuple[int, ...], told: int | None
) -> None:
    rows = [metric("global_batch_size", step, size) for step, size in enumerate(sizes, 1)]
    run = run_of([*rows, metric("loss", 1, 2.0)], train_batch_size=32)
    assert batch_of(run, run.steps) == told


def test_the_batch_that_an_engine_was_told_is_none_where_a_loop_counts_other_samples() -> None:
    for each, told in ((32, 32), (8, None)):
        counted = [metric("samples", step, each * step) for step in (1, 2, 3)]
        run = run_of(counted, train_batch_size=32)
        assert batch_of(run, run.steps) == told


def test_the_batch_of_an_engine_that_says_its_own_is_not_the_first_one_s() -> None:
    rows = [metric("loss", 1, 2.0) | {"engine": engine} for engine in (0, 1)]
    rows += [
        {"kind": "config", "name": "train_batch_size", "value": value, "engine": engine}
        for engine, value in enumerate((32.0, 64.0))
    ]
    run = run_of(rows)
    assert [batch_of(run, run.steps[run.steps["engine"] == one]) for one in (0, 1)] == [32, 64]


@pytest.mark.parametrize(("sizes", "told"), [((16, 16), 16), ((16, 32), None), ((16,), None)])
def test_what_the_recorded_steps_of_one_launch_count_is_not_what_another_one_s_do(
    sizes: tuple[int, ...], told: int | None
) -> None:
    rows = [metric("loss", step, 2.0) for step in (1, 2)]
    rows += [metric("global_batch_size", step, size) for step, size in enumerate(sizes, 1)]
    rows += [metric("loss", step, 2.0, segment=1) for step in (1, 2)]
    run = run_of([row | {"source": "rank-00000.1.dsprof"} for row in rows])
    batches = [counted_batch(run, run.steps[run.steps["segment"] == one]) for one in (0, 1)]
    assert batches == [told, None]
