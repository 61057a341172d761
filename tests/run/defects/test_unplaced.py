"""Timers that no dialect knows: where the clock proves that they lie, and where it cannot."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from dsprof.run import Run
from dsprof.run.defects import unplaced
from tests.run.run_rows import events, grammar_with, timers

#: What the engine times of each step, its own way: no two alike.
STEPS = [1.0, 1.1, 0.9, 1.05, 0.95, 1.2, 1.0]


def a_log(
    strange: list[float],
    between: list[float],
    *,
    after: bool = False,
    name: str = "my_timer",
    every: int = 1,
) -> Run:
    """Steps of `STEPS`, `between` passing before each, and a strange timer's line in front of the
    engine's: or behind it, where the next step's lines begin. `every` third step has one, say."""
    rows: list[dict[str, Any]] = []
    now = pd.Timestamp("2024-05-01", tz="UTC")
    for step, (engine, more, odd) in enumerate(
        zip(every * STEPS, between, strange, strict=True), 1
    ):
        now += pd.Timedelta(seconds=engine + more)
        seconds: dict[str, Any] = {name: odd}
        own = timers("", step + after, steps=None, **seconds)
        lines = timers("zero", step, forward=0.3 * engine, backward=0.6 * engine, step=0.1 * engine)
        own = own if step % every == 0 else []
        both = [*lines, *own] if after else [*own, *lines]
        rows += [row | {"at": now, "pattern": "deepspeed.timers"} for row in both]
    return Run(events(rows), grammar=grammar_with())


def told(run: Run) -> list[tuple[str, str]]:
    met = run.repairs[run.repairs["name"].str.contains("placed-timers")]
    return list(zip(met["name"], met["kind"], strict=True))


VARIED = [0.5, 0.62, 0.4, 0.7, 0.55, 0.45, 0.5]


@pytest.mark.parametrize("after", [False, True])
def test_a_timer_that_fills_what_lies_between_the_steps_lies_there(after: bool) -> None:
    run = a_log(VARIED, VARIED, after=after)
    assert told(run) == [("placed-timers", "repair")]
    assert "my_timer" in set(run.phases["name"].astype("str"))
    assert "lie between the steps" in run.repairs["text"][0]
    if not after:
        sums = [engine + odd for engine, odd in zip(STEPS, VARIED, strict=True)]
        assert run.steps["seconds"].tolist() == pytest.approx(sums)


def test_a_timer_that_would_not_find_room_between_the_steps_lies_within_them() -> None:
    run = a_log(VARIED, [0.01] * 7)
    assert told(run) == [("placed-timers", "repair")]
    assert "lie within those of the engine" in run.repairs["text"][0]
    assert "my_timer" not in set(run.phases["name"].astype("str"))
    assert run.steps["seconds"].tolist() == pytest.approx(STEPS)


def test_a_timer_of_every_third_step_may_be_a_sum_over_three_and_is_not_within_the_engine() -> None:
    run = a_log([1.5] * 21, [0.7] * 21, every=3)
    assert told(run) == [("unplaced-timers", "doubt")]
    assert told(a_log([1.5] * 21, [0.1] * 21, every=3)) == [("placed-timers", "repair")]


def test_a_sum_over_three_steps_that_lies_between_them_is_divided_as_the_clock_divides_it() -> None:
    between = [0.2, 0.8, 0.5] * 7
    run = a_log([1.5] * 21, between, every=3)
    assert told(run) == [("placed-timers", "repair")]
    phases = run.phases[run.phases["name"] == "my_timer"].set_index("step")["seconds"]
    assert phases.loc[4:].tolist() == pytest.approx(between[3:])
    assert phases.loc[:3].to_dict() == pytest.approx({2: 0.5, 3: 0.5})  # no more than the mean
    sums = [engine + more for engine, more in zip(3 * STEPS, between, strict=True)]
    assert run.steps["seconds"].tolist()[3:] == pytest.approx(sums[3:])
    assert run.events["at"].isna().sum() == len(phases)


@pytest.mark.parametrize(
    "between",
    [
        [1.5 * odd for odd in VARIED],  # room for it, and for more
        [sum(VARIED) / 7] * 7,  # as much on the average, and of no step
        [0.7 * odd for odd in VARIED],  # most of it
    ],
)
def test_where_the_clock_proves_nothing_the_doubt_stays(between: list[float]) -> None:
    run = a_log(VARIED, between)
    assert told(run) == [("unplaced-timers", "doubt")]
    assert "my_timer" not in set(run.phases["name"].astype("str"))


def test_a_timer_below_the_resolution_of_the_stamps_is_placed_nowhere() -> None:
    assert told(a_log([0.001] * 7, [0.001] * 7)) == [("unplaced-timers", "doubt")]


def test_few_steps_prove_nothing() -> None:
    run = a_log(VARIED, VARIED)
    few = run.events[run.events["step"] <= 4]
    assert told(Run(few, grammar=grammar_with())) == [("unplaced-timers", "doubt")]


def test_of_several_timers_each_is_placed() -> None:
    run = a_log(VARIED, VARIED)
    inside = [
        row | {"at": at, "pattern": "deepspeed.timers"}
        for step, at in run.events.groupby("step")["at"].max().items()
        for row in timers("", int(str(step)), steps=None, inner=2.0)
    ]
    rows = [*run.recorded.dropna(axis=1, how="all").to_dict("records"), *inside]
    both = Run(pd.DataFrame(rows), grammar=grammar_with())
    assert {"my_timer"} == set(both.phases["name"].astype("str")) & {"my_timer", "inner"}


def test_thousands_of_names_on_one_line_are_no_timers_to_judge_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(unplaced, "_has_no_room")
    seconds: dict[str, Any] = {f"timer_{n}": 0.001 for n in range(1000)}
    line = timers("", 7, **seconds)
    lines = [row for step in range(1, 8) for row in timers("zero", step, forward=0.3, step=0.1)]
    rows = [row | {"pattern": "deepspeed.timers"} for row in (*lines, *line)]
    run = Run(events(rows), grammar=grammar_with())
    assert told(run) == [("unplaced-timers", "doubt")]
    assert set(run.phases["name"].astype("str")) == {"forward", "step"}
