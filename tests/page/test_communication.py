"""The section of communication: what its numbers are means or sums of."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from dsprof.charts.comm import LIMITS
from dsprof.page.communication import comm_section
from dsprof.page.model import Section
from dsprof.run import Run
from dsprof.run.comm import CUMULATIVE
from tests.loaded import sample
from tests.page.runs import gpus, made

MIB = 1 << 20


def section_of(name: str) -> Section:
    return comm_section(sample(name))


def with_calls(*rows: Mapping[str, Any]) -> Run:
    """A run of 40 steps with these rows of communication."""
    base: dict[str, Any] = {
        "segment": 0, "engine": 0, "step": 40, "steps": 1, "rank": 0, "op": "all_reduce",
        "group": None, "bytes": MIB, "count": 1, "seconds": 0.1, "exposed_seconds": float("nan"),
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
        (
            "comms_verbose_0.16.9",
            ["all_reduce", "1.52 MiB", "1", "4.09 ms"],
        ),
        (
            "comms_verbose_0.19.8",
            ["all_reduce", "1.52 MiB", "1", "3.78 ms"],
        ),
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
    section = section_of("comms_table_0.19.8")
    rows = cells(section)
    assert {row[3] for row in rows} == {"–"}
    assert {row[-1] for row in rows} == {"times are not trustworthy"}
    assert "What limits them: times are not trustworthy (a defect of" in section.tables[0].more


def test_a_table_of_calls_that_are_told_one_by_one_is_not_added_to_them() -> None:
    table = {"total": True, "rank": None, "count": 40, "seconds": 4.0}
    single = [{"step": step} for step in range(1, 41)]
    assert cells(comm_section(with_calls(*single, table)))[0][2:4] == ["1", "100 ms"]


def test_a_table_stands_in_for_single_calls_that_are_all_doubted() -> None:
    table = {"total": True, "rank": None, "count": 40, "seconds": 4.0}
    single = [{"step": step, "seconds": 9.0, "suspect": CUMULATIVE} for step in range(1, 41)]
    rows = cells(comm_section(with_calls(*single, table)))
    assert [row[2:4] for row in rows] == [["1", "100 ms"]]


def test_calls_are_of_the_launch_that_the_other_means_are_of() -> None:
    calls = [{"segment": launch, "step": step} for launch in (0, 1) for step in range(1, 11)]
    section = comm_section(with_calls(*calls))  # of 40 steps in launch 0
    assert "over 9 steps" in section.words
    assert "11 calls belong to no such step and are left out" in section.words
    assert cells(section)[0][2:4] == ["1", "100 ms"]


def test_calls_of_steps_without_times_are_of_all_steps() -> None:
    run = with_calls(*[{"step": step} for step in range(1, 41)])
    run.__dict__["steps"] = run.steps.assign(seconds=float("nan"))
    section = comm_section(run)
    assert "over 40 steps, from single calls." in section.words


def test_neither_set_up_nor_the_first_step_nor_what_follows_the_last_is_a_step() -> None:
    calls = [{"step": step} for step in [None, *range(1, 42)]]  # 40 steps ended
    slow = {"step": 1, "seconds": 50.0}
    section = comm_section(with_calls(*calls, slow))
    assert section.words.startswith(
        "Mean of one rank and one step, over 39 steps, without the first step, a warm-up, "
        "from single calls. 4 calls belong to no such step and are left out."
    )
    assert cells(section)[0][2:4] == ["1", "100 ms"]


def test_tables_say_that_they_count_set_up_and_the_first_step() -> None:
    words = section_of("straggler_0.16.9").words
    assert "from summary tables, which count from the start: calls of set-up and of the" in words


def test_the_loggers_own_summary_stands_beside_single_calls_and_is_not_added() -> None:
    summary = {"total": True, "step": None, "rank": None, "count": 146, "seconds": 3.0}
    section = comm_section(with_calls(*[{"step": s} for s in range(1, 41)], summary))
    assert cells(section)[0][2:4] == ["1", "100 ms"]
    assert "The logger's own summary, below, counts the calls once more." in section.words
    (row,) = section.tables[1].rows
    assert [cell.text for cell in row][2:4] == ["146", "3.00 s"]
    assert section.tables[1].head[2:4] == ["calls since the start", "total since the start"]


def test_without_the_number_of_ranks_the_bandwidth_is_said_to_be_the_algorithms() -> None:
    unknown = {"busbw": float("nan"), "algbw": 2e9}
    section = comm_section(with_calls(*[unknown | {"step": s} for s in range(1, 41)]))
    assert "Bus bandwidth is unknown without the number of ranks" in section.words
    assert section.tables[0].head[4] == "algorithm bandwidth"
    assert cells(section)[0][4] == "2.00 GB/s"


def test_a_recording_that_times_only_what_holds_a_step_up_says_so(tmp_path: Path) -> None:
    section = comm_section(gpus(tmp_path))
    assert "Only how long calls hold the step up (exposed) is known" in section.words
    assert section.tables[0].head == [
        "operation", "message", "calls per step", "exposed", "limited by",
    ]  # fmt: skip


def test_the_words_of_what_limits_a_call_are_explained_below_the_table() -> None:
    rows = [{"step": s, "bytes": size} for s in range(1, 41) for size in (1 << 10, 1 << 28)]
    table = comm_section(with_calls(*rows)).tables[0]
    used = {row[-1].text for row in table.rows}
    assert "latency" in used
    assert "latency (messages below 1.00 MiB, whose time is start-up or waiting)" in table.more
    assert all((f"{word} (" in table.more) == (word in used) for word in LIMITS)
