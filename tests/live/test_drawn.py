"""What the screens tell of a run is what a report on it tells."""

from __future__ import annotations

import pytest

from dsprof.live.drawn import recent_of
from dsprof.text.overview import overview
from tests.loaded import sample
from tests.run.ends.test_unclosed import LATER, ended, run_of


def test_the_rate_is_that_of_whole_steps_where_the_stated_one_leaves_out_a_part() -> None:
    run = sample("zero1_accumulation_0.19.8")
    seen = overview(run)
    assert seen.samples_per_second_of_steps
    assert recent_of(run, []).figures.samples_per_second == seen.samples_per_second_of_steps


def test_the_headlines_step_time_and_rate_multiply_to_the_batch() -> None:
    """Both are of the mean step: one step that sticks out does not set them apart."""
    run = sample("straggler_0.19.8")
    figures = recent_of(run, []).figures
    assert figures.seconds
    assert figures.samples_per_second
    batch = figures.seconds * figures.samples_per_second
    assert batch == pytest.approx(run.meta["train_batch_size"], rel=1e-5)


def test_a_command_that_was_stopped_is_told_although_no_rank_is_to_blame() -> None:
    over = {"over_at": LATER, "over_with": -15}
    run = run_of(ended(0, 10.1, **over), ended(1, 10.1, **over))
    assert recent_of(run, []).failure.startswith("The command was killed by SIGTERM after step 10")
