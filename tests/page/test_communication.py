"""The section of communication: what its numbers are means or sums of."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import dsprof
from dsprof.page.communication import comm_section
from dsprof.page.model import Section
from dsprof.run import Run
from dsprof.run.comm import CUMULATIVE
from tests.page.runs import made

SAMPLES = Path(__file__).parents[2] / "sample_logs"
MIB = 1 << 20


def section_of(name: str) -> Section:
    return comm_section(dsprof.load(SAMPLES / f"{name}.log", processes=1))


def with_calls(*rows: Mapping[str, Any]) -> Run:
    """A run of 40 steps with these rows of communication."""
    base: dict[str, Any] = {
        "segment": 0, "engine": 0, "step": 40, "rank": 0, "op": "all_reduce", "group": None,
        "bytes": MIB, "count": 1, "seconds": 0.1, "exposed_seconds": float("nan"),
        "algbw": 1e9, "busbw": 1e9, "suspect": None, "total": False, "source": "made.log",
        "line": 1,
    }  # fmt: skip
    run = made(40)
    run.__dict__["comm"] = pd.DataFrame([{**base, **row} for row in rows])
    return run


def cells(section: Section) -> list[list[str]]:
    return [[cell.text for cell in row] for row in section.tables[0].rows]


@pytest.mark.parametrize(
    ("name", "costliest"),
    [
        ("straggler_0.16.9", ["all_reduce", "1.52 MiB", "1", "51.4 ms"]),  # 2054.95 ms of 40
        ("comms_table_zero3_0.16.9", ["reduce_scatter_tensor", "776 KiB", "1", "4.89 ms"]),
        ("comms_verbose_0.16.9", ["all_reduce", "1.52 MiB", "1", "4.08 ms"]),
        ("comms_verbose_0.19.8", ["all_reduce", "1.52 MiB", "1", "14.7 ms"]),
    ],
)
def test_a_step_takes_its_own_part_of_the_communication(name: str, costliest: list[str]) -> None:
    section = section_of(name)
    assert cells(section)[0][:4] == costliest
    assert section.tables[0].head[2:4] == ["calls per step", "total per step"]


def test_totals_that_cannot_be_divided_are_said_to_be_totals() -> None:
    section = section_of("comms_table_0.19.8")
    assert "since the start" in section.words
    assert section.tables[0].head[2:4] == ["calls since the start", "total since the start"]


def test_a_doubted_time_has_no_number_and_says_why() -> None:
    rows = cells(section_of("comms_table_0.19.8"))
    assert {row[3] for row in rows} == {"–"}
    assert {row[-1] for row in rows} == {"times are not trustworthy"}


def test_a_table_of_calls_that_are_told_one_by_one_is_not_added_to_them() -> None:
    table = {"total": True, "rank": None, "count": 40, "seconds": 4.0}
    single = [{"step": step} for step in range(1, 41)]
    assert cells(comm_section(with_calls(*single, table)))[0][2:4] == ["1", "100 ms"]


def test_a_table_stands_in_for_single_calls_that_are_all_doubted() -> None:
    table = {"total": True, "rank": None, "count": 40, "seconds": 4.0}
    single = [{"step": step, "seconds": 9.0, "suspect": CUMULATIVE} for step in range(1, 41)]
    rows = cells(comm_section(with_calls(*single, table)))
    assert [row[2:4] for row in rows] == [["1", "100 ms"]]


def test_two_launches_that_repeat_their_steps_cover_twice_as_many() -> None:
    calls = [{"segment": launch, "step": step} for launch in (0, 1) for step in range(1, 11)]
    section = comm_section(with_calls(*calls))
    assert "20 steps" in section.words
    assert cells(section)[0][2:4] == ["1", "100 ms"]


def test_a_call_behind_the_last_step_adds_no_step() -> None:
    calls = [{"step": step} for step in range(1, 42)]  # 40 steps ended
    section = comm_section(with_calls(*calls))
    assert "over 40 steps" in section.words
    assert cells(section)[0][2] == "1"


def test_a_mean_over_the_warm_up_says_that_it_is_among_its_steps() -> None:
    section = comm_section(dsprof.load(SAMPLES / "comms_verbose_0.19.8.log"))
    assert "the first one, which also warms up, among them" in section.words
