"""The events frame: every column there, each of one type, however the rows came in."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from dsprof.events import COLUMNS
from dsprof.run.table import (
    among,
    frame_of,
    greatest,
    keys,
    of_kind,
    of_part,
    positions,
    stamps,
    take_turns,
    tidy,
    within,
)


def test_columns_that_are_not_there_are_missing() -> None:
    frame = tidy(pd.DataFrame({"kind": ["metric"], "step": [3]}))
    assert tuple(frame.columns) == COLUMNS
    assert frame["segment"].tolist() == [0]
    assert frame.drop(columns=["kind", "step", "segment", "engine", "record"]).isna().all(axis=None)


def test_types_do_not_depend_on_what_is_in_a_column() -> None:
    full: dict[str, list[Any]] = {name: ["7"] for name in COLUMNS} | {
        "at": [pd.Timestamp("2024-01-01")]
    }
    numbers = ("segment", "engine", "record", "step", "steps", "rank", "count", "line")
    full |= {name: [7] for name in (*numbers, "seconds", "bytes", "value")}
    empty, one = tidy(pd.DataFrame()), tidy(pd.DataFrame(full))
    assert empty.drop(columns="at").dtypes.map(str).tolist() == (
        one.drop(columns="at").dtypes.map(str).tolist()
    )
    assert not [name for name, kind in one.dtypes.items() if str(kind) == "object"]


def test_missing_numbers_and_large_ones_survive_the_way_from_arrow() -> None:
    table = pa.table(
        {
            "kind": pa.array(["metric", "metric"]).dictionary_encode(),
            "step": pa.array([None, 2**60 + 1], pa.int64()),
        }
    )
    frame = tidy(frame_of(table))
    assert frame["step"][1] == 2**60 + 1
    assert pd.isna(frame["step"][0])


@pytest.mark.parametrize("count", [1.5, 1e300, float("inf")])
def test_a_damaged_count_is_missing(count: float) -> None:
    assert tidy(pd.DataFrame({"count": [3.0, None, count]}))["count"].isna().tolist() == [
        False, True, True,
    ]  # fmt: skip


def test_rows_that_agree_share_a_key_and_missing_agrees_with_missing() -> None:
    frame = tidy(pd.DataFrame({"step": [5, None, 5, None], "rank": [0, 1, 0, 1]}))
    code = keys(frame, "step", "rank")
    assert code[0] == code[2] != code[1] == code[3]


def test_a_sum_over_a_part_is_that_of_its_segment_and_engine_without_what_is_missing() -> None:
    rows = pd.DataFrame({"segment": [0, 1, 0, 0], "engine": [0, 0, 2, 0]})
    assert of_part(rows, [1.0, 4.0, np.nan, 2.0]).tolist() == [3.0, 4.0, 0.0, 3.0]
    assert of_part(rows, np.array([True, False, True, True])).tolist() == [2, 0, 1, 2]
    assert of_part(rows[:0], []).tolist() == []


@pytest.mark.parametrize("count", [0, 1, 3, 8, 9, 40])
def test_rows_that_hold_one_of_few_or_many_words_are_found(count: int) -> None:
    names = [f"timer{n % 37}" for n in range(100)] + [None]
    words = [f"timer{n}" for n in range(count)]
    column = tidy(pd.DataFrame({"name": names}))["name"]
    assert among(column, words).tolist() == [name in words for name in names]


def test_events_of_a_kind_may_be_asked_for_by_name() -> None:
    kinds, names = ["metric", "phase", "metric", "metric"], ["loss", "loss", "lr", None]
    events = tidy(pd.DataFrame({"kind": kinds, "name": names}))
    assert of_kind(events, "metric").index.tolist() == [0, 2, 3]
    assert of_kind(events, "metric", "loss", "grad_norm").index.tolist() == [0]
    assert of_kind(events, "metric", "grad_norm").empty


@pytest.mark.parametrize("steps", [[2], [1, 3], [2, 3, 9], [], [9]])
def test_rows_within_a_table_are_those_whose_key_it_has(steps: list[int]) -> None:
    rows = tidy(pd.DataFrame({"step": [1, 1, 2, 2, 3, None]}))
    found = within(tidy(pd.DataFrame({"step": steps})), rows, "segment", "step")
    pd.testing.assert_frame_equal(found, rows[rows["step"].isin(steps)])


def test_positions_are_those_of_the_table_or_minus_one() -> None:
    table = tidy(pd.DataFrame({"step": [10, 20, 30]}))
    rows = tidy(pd.DataFrame({"step": [30, 25, 10, None]}))
    assert positions(table, rows, "segment", "step").tolist() == [2, -1, 0, -1]
    nothing = tidy(pd.DataFrame())
    assert positions(nothing, rows, "step").tolist() == [-1] * 4
    assert len(positions(table, nothing, "step")) == 0


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("numbers", [[1, 2, 3], [1, 5_000, 90_000]], ids=["dense", "sparse"])
def test_a_missing_number_among_fractions_is_at_no_position(numbers: list[int]) -> None:
    """As a frame holds whole numbers that are not all there, before it is made tidy."""
    table = pd.DataFrame({"step": numbers})
    rows = pd.DataFrame({"step": [np.nan, float(numbers[1]), np.inf, -7.0]})
    assert positions(table, rows, "step").tolist() == [-1, 1, -1, -1]


def test_a_hostile_step_number_does_not_overflow_a_key() -> None:
    big = np.iinfo(np.int64).max
    frame = tidy(pd.DataFrame({"segment": [0, 1], "step": [big, big], "rank": [big, 0]}))
    code = keys(frame, "segment", "step", "rank")
    assert 0 <= code[0] < code[1]


def test_the_greatest_of_a_key_is_its_row_wherever_it_stands_and_no_row_has_none() -> None:
    rows = tidy(pd.DataFrame({"segment": [1, 0, 1, 0, 1], "step": [7, 3, 9, 2, 8]}))
    assert greatest(rows, "segment", "step").tolist() == [1, 2]
    assert greatest(rows[:0], "segment", "step").tolist() == []


@pytest.mark.parametrize("unit", ["us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Asia/Tokyo"])
def test_stamps_are_in_utc_and_as_fine_as_they_were(unit: str, zone: str | None) -> None:
    told = pd.Series(np.array(["2024-05-01T10:00:00.000001", "NaT"], f"datetime64[{unit}]"))
    zoned = told if zone is None else told.dt.tz_localize("UTC").dt.tz_convert(zone)
    assert stamps(zoned).dtype == f"datetime64[{unit}]"
    np.testing.assert_array_equal(stamps(zoned), told.to_numpy())


def test_engines_take_turns_within_a_launch_alone() -> None:
    rows = tidy(pd.DataFrame({"segment": [0, 0, 1, 1], "engine": [0, 1, 1, 1]}))
    assert take_turns(rows).tolist() == [True, True, False, False]
    assert take_turns(rows[2:]).tolist() == [False, False]
