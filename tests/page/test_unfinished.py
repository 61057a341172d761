"""The step in which a recorded launch hung or died."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter_ns

import pytest

from dsprof import load
from dsprof.page.lanes import lanes_section
from dsprof.recording import Writer, launches
from dsprof.recording.layout import OVER, PHASE, SINCE
from tests.recording.recorded import CLASSES, MS, header

SECOND = 1000 * MS


def record(
    folder: Path, *, over: bool = False, engines: int = 1, seen: bool = True, ahead: int = 0
) -> None:
    """Two ranks after ten steps of 100 ms each: for 20 s rank 0 waited, and rank 1 was in data, or
    behind it; then the command ended, if that was `seen`. Rank 0 counts so far `ahead` in the end.
    """
    start = perf_counter_ns() - 21 * SECOND
    for rank in range(2):
        writer = Writer.create(folder, header(rank, launch="one"))
        names = {name: writer.name(name, 0, "compute") for name in ("forward", "backward")}
        data, reduce = writer.name("data", 0, "data"), writer.name("all_reduce")
        at = start
        for step in range(1, 11):
            for engine in range(engines):
                end = at + 100 // engines * MS
                writer.span(names["forward"], at, end - MS, step, engine=engine)
                number = step + (ahead if step == 10 and not rank else 0)
                writer.step(number, at, end, CLASSES, engine=engine)
                at = end
        writer.flush()
        cell = writer.ring.cell
        if rank:
            cell[PHASE] = at + 4 * MS & SINCE | data | OVER * over
        else:
            cell[PHASE] = at + 4 * MS & SINCE | names["backward"]
            writer.in_flight(reduce, 7, at + 500 * MS)
        writer.ring.close()
    if seen:
        (folder / launches.FOLDER).mkdir()
        launches.end(folder, "one", 1)


def test_phases_that_had_not_ended_are_drawn_until_their_ranks_were_last_seen(
    tmp_path: Path,
) -> None:
    record(tmp_path)
    chart = lanes_section(load(tmp_path)).charts[0]
    assert chart.name == "lanes-unfinished"
    assert chart.label.startswith("Step 11, in which training stopped. ")
    assert chart.table is not None
    said = [[cell.text for cell in row] for row in chart.table.rows]
    assert [(row[0], row[3]) for row in said] == [
        ("0", "backward"), ("0", "backward/all_reduce"), ("1", "data"),
    ]  # fmt: skip
    assert ["not ended" in row[2] for row in said] == [False, True, True]
    texts = [text for trace in chart.figure["data"] for text in trace["text"]]
    assert "data, not ended" in texts


def test_a_rank_between_phases_is_drawn_so(tmp_path: Path) -> None:
    record(tmp_path, over=True)
    chart = lanes_section(load(tmp_path)).charts[0]
    assert chart.table is not None
    said = [[cell.text for cell in row] for row in chart.table.rows]
    assert [(row[0], row[3]) for row in said][-1] == ("1", "no phase")


def test_of_engines_in_turns_it_is_what_came_after_the_last_step(tmp_path: Path) -> None:
    record(tmp_path, engines=2)
    chart = lanes_section(load(tmp_path)).charts[0]
    assert chart.label.startswith("Since step 10 of engine 1, until training stopped. ")


@pytest.mark.parametrize("again", [True, False])
def test_where_nobody_saw_how_long_they_stood_nothing_is_drawn(
    tmp_path: Path, *, again: bool
) -> None:
    record(tmp_path, seen=False)
    if again:  # a later launch shows that this one is over
        writer = Writer.create(tmp_path, header(launch="two"))
        writer.close()
    names = [one.name for one in lanes_section(load(tmp_path)).charts]
    assert "lanes-unfinished" not in names


def test_ranks_that_are_far_apart_were_in_no_step_together(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As one that counts from where it resumed: a billion steps are not looked for."""
    record(tmp_path, ahead=1_000_000_000)
    monkeypatch.delattr("dsprof.page.unfinished._since")
    names = [one.name for one in lanes_section(load(tmp_path)).charts]
    assert "lanes-unfinished" not in names
