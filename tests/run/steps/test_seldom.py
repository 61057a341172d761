"""Rates of few steps, beside the timers of every step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

from dsprof.analysis.breakdown import Breakdown, breakdown_of, main_steps
from dsprof.run import Run, from_events
from dsprof.text.overview import overview
from tests.run.run_rows import events, grammar_with, metric, timers

BATCH = 32


def printed(
    communication: Callable[[int], float],
    *,
    every: int = 10,
    count: int = 100,
    untimed: float = 0.0,
    rated: float = 0.0,
    stamps: bool = True,
) -> Run:
    """Steps of 0.9 s beside their communication; every so many of them a line states the rate.

    `untimed` seconds lie between two steps, `rated` of them within what the rate is of.
    """
    rows: list[dict[str, Any]] = [
        {"kind": "config", "name": name, "value": value}
        for name, value in (("zero_stage", 0), ("train_batch_size", BATCH))
    ]
    at = pd.Timestamp("2024-05-01", tz="UTC")
    for step in range(1, count + 1):
        moved = communication(step)
        at += pd.Timedelta(seconds=0.9 + moved + untimed)
        line = timers(
            "zero", step, forward=0.3, backward=0.5 + moved, backward_inner=0.5,
            backward_allreduce=moved, step=0.1,
        )  # fmt: skip
        if step % every == 0:
            rate = BATCH / (0.9 + moved + rated)
            line.append(metric("samples_per_second", step, rate))
        rows += [row | {"at": at} if stamps else row for row in line]
    return from_events(events(rows), grammar=grammar_with())


def mean_of(run: Run) -> Breakdown:
    found = breakdown_of(main_steps(run.steps), run.phases)
    assert found is not None
    return found


def at_tenths(step: int) -> float:
    return 2.1 if step % 10 == 0 else 0.1


@pytest.mark.parametrize("stamps", [True, False])
def test_what_comes_with_every_rate_is_not_of_every_step(stamps: bool) -> None:
    run = printed(at_tenths, stamps=stamps)
    mean = mean_of(run)
    assert mean.seconds == pytest.approx(1.2, rel=0.02)
    assert mean.classes["communication"] == pytest.approx(0.3, rel=0.05)
    assert mean.phases.loc["backward_allreduce", "seconds"] == pytest.approx(0.3, rel=0.05)
    assert mean.windows == 99
    assert overview(run).seconds_from == "timers"


def test_what_comes_between_the_rates_is_in_the_timers_of_its_steps() -> None:
    """The clock runs over ten steps: the timers of these ten are what it is held against."""
    mean = mean_of(printed(lambda step: 2.1 if step % 10 == 3 else 0.1))
    assert mean.seconds == pytest.approx(1.2, rel=0.02)
    assert mean.classes["communication"] == pytest.approx(0.3, rel=0.05)
    assert mean.classes["other"] == pytest.approx(0.0, abs=1e-6)


def test_time_in_no_timer_is_what_the_clock_has_beyond_the_timers_of_the_same_steps() -> None:
    mean = mean_of(printed(at_tenths, untimed=0.4))
    assert mean.seconds == pytest.approx(1.6, rel=0.02)
    assert mean.classes["other"] == pytest.approx(0.4, rel=0.02)
    assert mean.classes["communication"] == pytest.approx(0.3, rel=0.05)


def test_without_a_clock_rates_tell_of_all_steps_what_they_have_beyond_the_timers() -> None:
    run = printed(at_tenths, rated=0.4, stamps=False)
    mean = mean_of(run)
    assert mean.seconds == pytest.approx(1.6, rel=0.02)
    assert mean.classes["other"] == pytest.approx(0.4, rel=0.02)
    assert run.steps["smoothed"].all()
    assert run.steps["whole_from"].eq("rated").all()
    told = run.steps[run.steps["step"] % 10 == 0]
    assert told["whole_seconds"].tolist() == pytest.approx([3.4] * 10)  # as their lines have it
    assert (overview(run).median, overview(run).spread) == (None, "")


def test_the_speed_is_that_of_all_steps() -> None:
    run = printed(at_tenths)
    rates = run.steps["samples_per_second"]
    assert (rates * run.steps["seconds"]).tolist() == pytest.approx([BATCH] * 100)
    assert overview(run).samples_per_second == pytest.approx(32 / (0.9 + 0.1 * 3), rel=0.01)


def test_rates_of_steps_that_are_like_the_rest_stay_what_is_averaged() -> None:
    run = printed(lambda step: 0.12 if step % 10 == 0 else 0.1)
    assert mean_of(run).windows == 10
    assert mean_of(run).seconds == pytest.approx(1.02)
    assert "seldom-rates" not in run.repairs["name"].to_list()


def test_one_rate_does_not_say_what_the_rest_takes_beyond_its_timers() -> None:
    run = printed(at_tenths, every=100, rated=0.4, stamps=False)
    assert run.steps["whole_seconds"].notna().sum() == 1
    assert mean_of(run).seconds == pytest.approx(1.2, rel=0.02)
    assert run.steps["samples_per_second"].notna().sum() == 1


def test_two_rates_say_what_the_rest_takes_beyond_its_timers() -> None:
    assert mean_of(printed(at_tenths, every=50, rated=0.4)).seconds == pytest.approx(1.6, rel=0.02)


def test_two_rates_that_are_unlike_the_rest_are_not_the_speed_of_all() -> None:
    run = printed(at_tenths, every=50)
    assert overview(run).samples_per_second == pytest.approx(32 / (0.9 + 0.1 * 3), rel=0.01)


def test_rates_that_contradict_the_timers_of_their_steps_are_left_as_they_are() -> None:
    run = printed(at_tenths, rated=-1.5, stamps=False)
    assert run.steps["whole_seconds"].dropna().tolist() == pytest.approx([1.5] * 10)
    assert "seldom-rates" not in run.repairs["name"].to_list()


def test_how_steps_with_a_rate_differ_from_the_others_is_told() -> None:
    repairs = printed(at_tenths).repairs.set_index("name")
    assert repairs.loc["seldom-rates", "rows"] == 10
    text = str(repairs.loc["seldom-rates", "text"])
    assert "sum to 3.00 s, those of the others to 1.00 s" in text


def test_each_launch_has_odd_steps_of_its_own() -> None:
    odd, even = printed(at_tenths), printed(lambda _: 0.1)
    later = even.told.assign(segment=1)
    both = from_events(pd.concat([odd.told, later], ignore_index=True), grammar=grammar_with())
    told = both.steps["whole_seconds"].notna().groupby(both.steps["segment"]).sum()
    assert told.tolist() == [0, 10]


def without_timers(rate: float, mean: float) -> Run:
    """Every tenth line of a log without timers or time stamps."""
    rows: list[dict[str, Any]] = [{"kind": "config", "name": "train_batch_size", "value": BATCH}]
    for step in range(10, 101, 10):
        rows.append(metric("samples_per_second", step, rate))
        rows.append(metric("samples_per_second_mean", step, mean))
    return from_events(events(rows), grammar=grammar_with())


def test_where_nothing_tells_of_the_steps_between_rates_a_mean_unlike_theirs_is_a_doubt() -> None:
    repairs = without_timers(10.8, 27.6).repairs.set_index("name")
    assert repairs.loc["seldom-rates", "kind"] == "doubt"
    text = str(repairs.loc["seldom-rates", "text"])
    assert "slower than the others: since the start the source counts 27.6 samples/s" in text
    assert "seldom-rates" not in without_timers(10.8, 10.5).repairs["name"].to_list()


def test_a_first_rate_that_turns_the_mean_leaves_open_whether_the_others_are_slower() -> None:
    """The mean step of a few rows has the first one in it: 16 samples of 797 a second in the mean
    are not quicker than 964, though the second row is."""
    rows: list[dict[str, Any]] = [{"kind": "config", "name": "train_batch_size", "value": BATCH}]
    for step, rate, mean in ((4, 546.6, 683.1), (6, 1471.8, 964.2)):
        rows.append(metric("samples_per_second", step, rate))
        rows.append(metric("samples_per_second_mean", step, mean))
    run = from_events(events(rows), grammar=grammar_with())
    assert "seldom-rates" not in run.repairs["name"].to_list()


@pytest.mark.parametrize("count", [10, 19])
def test_a_job_that_ended_before_its_second_rate_is_read(count: int) -> None:
    rows = [{"kind": "config", "name": "train_batch_size", "value": BATCH}]
    rows += [metric("samples_per_second", step, 16.0) for step in range(10, count + 1, 10)]
    run = from_events(events(rows), grammar=grammar_with())
    assert run.steps["seconds"].tolist() == [2.0]
