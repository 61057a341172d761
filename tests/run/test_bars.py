"""Seconds of a step from progress bars: only from the training's, only as sure as a bar is."""

from __future__ import annotations

import pytest

from dsprof.run import Run, from_events
from tests.logs.reading import read

BANNER = "***** Running training *****\n  Total optimization steps = %d\n"


def bar(count: int, total: int, elapsed: int) -> str:
    clock = f"{elapsed // 60:02}:{elapsed % 60:02}"
    return f" {count * 100 // total:2}%|██    | {count}/{total} [{clock}<59:59,  1.00s/it]"


def loss(epoch: float) -> str:
    return f"{{'loss': 1.5, 'learning_rate': 1e-05, 'epoch': {epoch}}}\n"


def run_of(text: str) -> Run:
    return from_events(read(text.encode()).events.to_pandas())


def seconds(run: Run) -> dict[int, float]:
    told = run.steps.dropna(subset="seconds")
    assert set(told["seconds_from"].astype("str")) <= {"bar"}
    return dict(zip(told["step"].astype(int), told["seconds"].round(6), strict=True))


def trained(total: int, places: list[tuple[int, int]]) -> str:
    return "".join(f"{bar(n, total, at)}{loss(n / total)}" for n, at in places)


PLACES = [(10, 14), (20, 24), (30, 34), (50, 84)]
TOLD = {20: 1.0, 30: 1.0, 50: 2.5}


def test_the_bars_beside_the_trainers_dicts_tell_how_long_a_step_takes() -> None:
    assert seconds(run_of(trained(500, PLACES))) == TOLD


def test_a_record_that_says_how_long_training_lasted_is_as_good_as_its_bar() -> None:
    record = (
        '{{"current_steps": {}, "total_steps": 500, "loss": 1.5, "epoch": 0.5, '
        '"elapsed_time": "0:00:{:02}", "remaining_time": "1 day, 0:00:05"}}\n'
    )
    short = [(n, at) for n, at in PLACES if at < 60]
    told = run_of("".join(record.format(*place) for place in short))
    assert seconds(told) == {20: 1.0, 30: 1.0}


def test_the_bar_as_long_as_the_training_is_the_trainings() -> None:
    others = bar(9, 900, 400) + "\n" + bar(1, 8, 401) + "\n"
    assert seconds(run_of(BANNER % 500 + others + trained(500, PLACES))) == TOLD


def test_a_bar_of_another_length_than_the_training_tells_nothing() -> None:
    assert seconds(run_of(BANNER % 100 + trained(500, PLACES))) == {}


def test_whole_seconds_are_added_up_until_they_tell_something() -> None:
    places = [(10, 1), (20, 3), (30, 5), (40, 9), (50, 11), (60, 12)]
    assert seconds(run_of(trained(500, places))) == {50: 0.25}


def test_a_bar_that_starts_over_is_not_measured_against_the_one_before() -> None:
    text = trained(500, [*PLACES, (5, 20), (15, 40)])
    assert seconds(run_of(text))[15] == pytest.approx(2.0)


def test_a_last_bar_says_how_far_it_came_and_how_fast() -> None:
    run = run_of(BANNER % 500 + trained(500, PLACES) + bar(60, 500, 104))
    assert seconds(run) == TOLD | {60: 2.0}
    assert int(run.steps["step"].iloc[-1]) == 60


def test_a_bar_of_a_loop_of_ones_own_is_no_measure_of_a_step() -> None:
    line = "[2022-08-03 03:55:10,485] [INFO] [logging.py:69:log_dist] [Rank 0] "
    steps = [f"{bar(n, 80, n)}{line}step={n // 4}, skipped=0, lr=[1], mom=[1]\n"
             for n in range(20, 81, 20)]  # fmt: skip
    run = run_of("".join(steps))
    assert "bar" not in set(run.steps["seconds_from"].dropna().astype("str"))


def test_a_training_that_slows_down_is_noticed_by_its_bar() -> None:
    places = [(n, n if n <= 250 else 250 + 3 * (n - 250)) for n in range(10, 501, 10)]
    run = run_of(BANNER % 500 + trained(500, places))
    assert "slowdown" in {found.rule for found in run.findings}
