"""How large a card is, and how its memory moves."""

from __future__ import annotations

import pandas as pd
import pytest

from dsprof.analysis.memory import Growth, capacity, growths

GIB = 1 << 30


@pytest.mark.parametrize(
    ("text", "gib"),
    [
        ("Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of which", 79.15),
        ("Tried to allocate 2.00 GiB (GPU 0; 39.59 GiB total capacity; 37 GiB already", 39.59),
    ],
)
def test_both_wordings_of_out_of_memory_tell_the_size_of_the_card(text: str, gib: float) -> None:
    problems = pd.DataFrame({"kind": ["oom"], "text": [text]})
    assert capacity({}, problems) == pytest.approx(gib * GIB)


def test_what_a_recording_knows_comes_first() -> None:
    problems = pd.DataFrame({"kind": ["oom"], "text": ["a total capacity of 79.15 GiB"]})
    assert capacity({"gpu_memory_bytes": 80 * GIB}, problems) == 80 * GIB


def test_other_problems_tell_nothing() -> None:
    problems = pd.DataFrame({"kind": ["exit"], "text": ["a total capacity of 79.15 GiB"]})
    assert capacity({}, problems) is None


def readings(values: list[float], rank: int | None = 3, **more: object) -> pd.DataFrame:
    """Memory by step, from step 1 on."""
    return pd.DataFrame(
        {
            "segment": 0,
            "engine": 0,
            "name": "allocated",
            "step": range(1, len(values) + 1),
            "rank": rank,
            "bytes": values,
            **more,
        }
    )


def test_memory_that_grows_with_every_step_grows_half_of_it_in_the_second_half() -> None:
    (found,) = growths(readings([float(step) for step in range(1, 101)]), ("allocated",), 100)
    assert found == Growth("allocated", 3, 5.5, 95.5, 1.0, 0.5, 100, (1, 100), 99)


def test_memory_that_grows_at_the_start_alone_does_not_grow_late() -> None:
    (found,) = growths(readings([1.0] * 10 + [4.0] * 90), ("allocated",), 10)
    assert (found.first, found.last, found.late) == (1.0, 4.0, 0.0)
    assert found.rising == pytest.approx(1 / 9)


def test_memory_that_grows_at_the_end_alone_grows_late() -> None:
    (found,) = growths(readings([1.0] * 90 + [4.0] * 10), ("allocated",), 10)
    assert found.late == 1.0


@pytest.mark.parametrize("values", [[2.0] * 20, [float(20 - step) for step in range(20)]])
def test_memory_that_stays_or_falls_does_not_rise(values: list[float]) -> None:
    (found,) = growths(readings(values), ("allocated",), 20)
    assert (found.rising, found.late) == (0.0, 0.0)


def test_each_rank_grows_by_itself_and_its_largest_value_of_a_step_counts() -> None:
    one, other = readings([1.0] * 20), readings([2.0] * 20, rank=None)
    rows = pd.concat([one, one.assign(bytes=9.0), other], ignore_index=True)
    found = {growth.rank: growth for growth in growths(rows, ("allocated",), 20)}
    assert {rank: growth.last for rank, growth in found.items()} == {3: 9.0, None: 2.0}
    assert found[3].row == 39


def test_too_few_steps_other_counters_and_values_of_no_step_tell_no_growth() -> None:
    rows = readings([1.0] * 20)
    assert growths(rows, ("allocated",), 21) == []
    assert growths(rows, ("reserved",), 20) == []
    assert growths(rows.assign(step=None), ("allocated",), 1) == []
    (found,) = growths(rows.assign(bytes=[1.0] * 15 + [float("nan")] * 5), ("allocated",), 15)
    assert (found.readings, found.steps) == (15, (1, 15))
