"""Counters of GPUs and memory: units, whose they are, what was held down."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsprof.events import GPU, MEMORY
from dsprof.page import gpus, resources
from dsprof.page.gpus import gpu_section
from dsprof.page.model import Section, Table
from dsprof.page.resources import memory_section
from dsprof.recording import Writer
from dsprof.run import load
from tests.page.runs import gpus as recorded
from tests.page.runs import made, with_rows
from tests.recording.recorded import header, record, write_steps


@pytest.fixture
def section(tmp_path: Path) -> Section:
    return gpu_section(recorded(tmp_path))


def rows_of(table: Table, first: str) -> list[list[str]]:
    return [[cell.text for cell in row] for row in table.rows if row[0].text == first]


def test_counters_say_which_gpu_whose_it_is_and_their_unit(section: Section) -> None:
    counters = section.tables[0]
    assert counters.head == ["counter", "GPU", "rank", "lowest", "median", "highest"]
    assert rows_of(counters, "power") == [
        ["power", "05d1a2b3", "0", "600 W", "603 W", "606 W"],
        ["power", "15d1a2b3", "1", "600 W", "603 W", "606 W"],
        ["power", "25d1a2b3", "–", "600 W", "603 W", "606 W"],
    ]
    used = rows_of(counters, "memory in use, by all processes")
    assert [row[-1] for row in used] == ["70.0 GiB", "71.0 GiB", "72.0 GiB"]
    assert all(cell.places for row in counters.rows for cell in row[3:])


def test_use_power_temperature_and_clocks_are_drawn(section: Section) -> None:
    titles = [note["text"] for note in section.charts[0].figure["layout"]["annotations"]]
    assert titles == [
        "utilisation, %",
        "power, W",
        "temperature, °C",
        "clock of the multiprocessors, MHz",
    ]


def test_a_clock_that_was_held_down_is_told_with_the_samples_that_say_so(section: Section) -> None:
    held = section.tables[1]
    assert rows_of(held, "heat") == [["heat", "15d1a2b3", "1", "25 %", "40"]]
    assert rows_of(held, "power limit") == []
    (row,) = held.rows
    assert row[3].among
    assert row[3].among.of == 10


def test_the_lead_says_on_what_phases_are_timed_and_whose_no_gpu_is(section: Section) -> None:
    assert section.words == (
        "3 GPUs sampled, 1 of them used by no rank of this run. "
        "Phases of all ranks are timed on the GPU's own stream."
    )


def test_where_no_clock_was_held_down_the_lead_says_so(tmp_path: Path) -> None:
    section = gpu_section(recorded(tmp_path, steps=20))
    assert section.words.endswith("No sample shows a clock held down (power limit, heat).")
    assert len(section.tables) == 1


def test_samples_need_not_tell_whether_a_clock_was_held_down(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, header())
    write_steps(writer, 1, 3)
    writer.gpu(writer.name("power"), 600, 2, 0, writer.name("GPU-05d1a2b3c"), 5)
    writer.close()
    (counters,) = gpu_section(load(tmp_path)).tables
    assert [row[0].text for row in counters.rows] == ["power"]


def test_a_recording_without_samples_is_not_told_to_record(tmp_path: Path) -> None:
    record(tmp_path, 3)
    assert gpu_section(load(tmp_path)).why.startswith("The recording has no sample of a GPU.")
    assert gpu_section(made(3)).why.endswith("A recording has them.")


def test_every_counter_and_every_kind_of_memory_has_a_name() -> None:
    assert gpus._NAMED.keys() | gpus._HELD.keys() == GPU.keys()
    assert resources._MEMORY.keys() == MEMORY.keys()


def test_the_limit_is_drawn_where_memory_is_a_gpus_and_nowhere_else(tmp_path: Path) -> None:
    section = memory_section(recorded(tmp_path))
    layout = section.charts[0].figure["layout"]
    assert [shape["y0"] for shape in layout["shapes"]] == [141.0]
    panel = layout["shapes"][0]["yref"]
    titles = [note["text"] for note in layout["annotations"]]
    assert titles == [
        "peak allocated, GiB",
        "resident memory of the process, GiB",
        "all of one GPU: 141 GiB",
    ]
    assert panel == "y"
    assert section.words == "One GPU has 141 GiB."
    assert section.said[1].places


def test_memory_of_each_launch_has_rows_of_its_own() -> None:
    row = {"kind": "memory", "name": "allocated", "bytes": 1 << 30, "rank": 0}
    twice = [row | {"step": 1, "line": 5}, row | {"step": 1, "segment": 1, "line": 9}]
    (table,) = memory_section(with_rows(made(3), *twice)).tables
    assert [[cell.text for cell in r][:2] for r in table.rows] == [
        ["allocated", "1"],
        ["allocated", "2"],
    ]


def test_memory_printed_before_the_first_step_ended_is_not_said_to_be_at_it() -> None:
    row = {"kind": "memory", "name": "allocated", "bytes": 1 << 30, "rank": 0, "step": 2}
    run = with_rows(made(6), row | {"line": 2, "step": 1}, row | {"rank": 1, "line": 2})
    steps = run.steps
    run.__dict__["steps"] = steps.assign(line=steps["line"] + 10)
    section = memory_section(run)
    assert [r[-1].text for r in section.tables[0].rows] == ["up to 1", "2"]
    assert section.words.endswith(
        " Where it says up to 1, the line precedes that step's own line: it may belong to set-up."
    )


def test_a_log_whose_counters_are_not_read_is_not_said_to_have_none() -> None:
    assert gpu_section(made(3)).why == (
        "No counter of a GPU (use, clocks, temperature, power) was read. A recording has them."
    )


def test_lines_of_several_ranks_are_named_beside_the_chart(section: Section) -> None:
    figure = section.charts[0].figure
    named = [trace["name"] for trace in figure["data"] if trace["showlegend"]]
    assert named == ["rank 0", "rank 1"]
    assert figure["layout"]["showlegend"]
