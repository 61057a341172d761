"""What is kept of a run without end."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from dsprof.live import store as live_store
from dsprof.live.store import SCHEMA, WINDOW, Store


def rows(first: int, last: int, *, segment: int = 0, each: int = 3, **more: object) -> pa.Table:
    """`each` metrics of each step."""
    return of_steps([s for s in range(first, last + 1) for _ in range(each)], segment, **more)


def of_steps(steps: Iterable[int], segment: int = 0, **more: object) -> pa.Table:
    """A metric of each; a text may name the step."""
    told = [
        {"kind": "metric", "name": "loss", "segment": segment, "engine": 0, "step": step,
         "value": 1.0, "record": number, "line": step}
        | {name: v.format(step) if isinstance(v, str) else v for name, v in more.items()}
        for number, step in enumerate(steps)
    ]  # fmt: skip
    return pa.Table.from_pylist(told, SCHEMA)


def steps(table: pa.Table) -> list[int]:
    found: pd.Series[int] = table.to_pandas()["step"].dropna()
    return sorted({int(step) for step in found})


def test_the_last_steps_are_whole_and_the_oldest_go() -> None:
    store = Store()
    for first in range(1, 1001, 10):
        store.add(rows(first, first + 9))
    assert steps(store.recent()) == list(range(1001 - WINDOW, 1001))
    assert len(store.recent()) == 3 * WINDOW


def test_a_new_launch_begins_with_nothing_of_the_old_one() -> None:
    store = Store()
    store.add(rows(1, 100))
    store.add(rows(50, 52, segment=1))
    assert steps(store.recent()) == [50, 51, 52]
    assert len(store.sample()) == 3 * 103


def test_an_engine_that_ended_before_another_began_is_none_of_the_last_steps() -> None:
    """As of a script that trains a model for each fold; those that take turns are all there."""
    store = Store()
    at = pd.Timestamp("2026-01-01", tz="UTC")
    for step in range(1, 101):
        store.add(rows(step, step, at=at + pd.Timedelta(seconds=step)))
    store.add(rows(1, 5, engine=1, at=at + pd.Timedelta(seconds=200)))
    assert set(store.recent().to_pandas()["engine"]) == {1}
    store.add(rows(101, 103, at=at + pd.Timedelta(seconds=201)))
    store.add(rows(6, 6, engine=1, at=at + pd.Timedelta(seconds=202)))
    assert set(store.recent().to_pandas()["engine"]) == {0, 1}


def test_memory_of_a_process_belongs_to_the_engine_that_is_trained_when_it_is_read() -> None:
    """A recording counts it to no engine: its rows name the first, which is over here."""
    store = Store()
    at = pd.Timestamp("2026-01-01", tz="UTC")
    memory: Any = {"kind": "memory", "name": "host_process", "each": 1}
    for step in range(1, 11):
        begun = at + pd.Timedelta(seconds=step)
        store.add(rows(step, step, at=begun))
        store.add(rows(step, step, at=begun, **memory))
        begun += pd.Timedelta(seconds=100)
        store.add(rows(step, step, engine=1, at=begun))
        store.add(rows(step, step, at=begun + pd.Timedelta(seconds=0.5), **memory))
    kept = store.recent().to_pandas()
    of_steps = kept[kept["kind"] == "metric"]
    assert (set(of_steps["engine"]), len(of_steps)) == ({1}, 30)
    assert kept["at"].min() > (at + pd.Timedelta(seconds=100)).tz_localize(None)
    assert len(kept) == 40


def test_of_engines_that_number_their_steps_differently_the_last_steps_of_each_are_kept() -> None:
    store = Store()
    for turn in range(1, 201):
        store.add(rows(5 * turn - 4, 5 * turn))
        store.add(rows(turn, turn, engine=1))
    found = store.recent().to_pandas().groupby("engine")["step"].agg(["min", "max"])
    assert found.loc[0].tolist() == [1001 - WINDOW, 1000]
    assert found.loc[1].tolist() == [201 - WINDOW, 200]


def test_a_sample_stays_small_and_tells_of_every_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_store, "SAMPLE_ROWS", 3_000)
    store = Store()
    for first in range(1, 20_001, 100):
        store.add(rows(first, first + 99))
        store.recent()
    found = store.sample()
    assert 1_000 < len(found) <= 3_000
    assert store.every > 1
    quarters = pd.Series(steps(found)).floordiv(5_001).value_counts()
    assert len(quarters) == 4
    assert quarters.max() < 2 * quarters.min()
    assert set(found.to_pandas()["step"].value_counts()) == {3}


def test_steps_printed_at_odd_numbers_are_sampled_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_store, "SAMPLE_ROWS", 300)
    store = Store()
    for first in range(5, 10_005, 500):  # never a multiple of two
        store.add(of_steps([step for step in range(first, first + 500, 10) for _ in range(3)]))
    assert 100 < len(store.sample()) <= 300


def test_configuration_and_problems_outlive_the_window() -> None:
    store = Store()
    store.add(rows(1, 1, each=1, kind="config", name="world_size", step=None))
    store.add(rows(1, 1, each=1, kind="problem", name="nan"))
    for first in range(1, 501, 50):
        store.add(rows(first, first + 49))
    kinds = store.recent().to_pandas()["kind"].value_counts()
    assert (kinds["config"], kinds["problem"]) == (1, 1)


def test_rows_that_may_change_are_counted_once() -> None:
    store = Store()
    store.add(rows(1, 5))
    for last in (7, 8):
        store.show([rows(6, last)])
    assert steps(store.recent()) == list(range(1, 9))
    assert len(store.recent()) == 3 * 8


def test_the_past_is_sampled_but_never_recent() -> None:
    store = Store()
    store.add(rows(101, 110))
    store.add(rows(1, 100), past=True)
    assert steps(store.recent()) == list(range(101, 111))
    assert steps(store.sample()) == list(range(1, 111))


def test_records_of_two_tables_stay_apart() -> None:
    store = Store()
    store.add(rows(1, 2))
    store.add(rows(3, 4))
    assert store.recent().to_pandas()["record"].is_unique


def test_words_of_rows_that_went_are_forgotten() -> None:
    store = Store()
    for first in range(1, 4_001, 100):
        store.add(rows(first, first + 99, text="said once, at {}"))
        store.recent()
    words = store.recent()["text"].combine_chunks().dictionary
    assert len(words) < 2_000
