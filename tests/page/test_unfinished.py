"""The step in which a recorded launch hung or died."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from time import perf_counter_ns

import pytest

from dsprof import load
from dsprof.analysis.lanes import Stretch
from dsprof.findings.facts import Facts
from dsprof.page.lanes import lanes_section
from dsprof.page.unfinished import unfinished_step
from dsprof.recording import Writer, launches
from dsprof.recording import writer as writer_module
from dsprof.recording.layout import OVER, PHASE, SINCE
from tests.recording.recorded import CLASSES, MS, header

SECOND = 1000 * MS


def record(
    folder: Path,
    *,
    steps: int = 10,
    over: Collection[int] = (),
    engines: Sequence[int] = (1, 1),
    seen: bool = True,
    ahead: int = 0,
    closes: Collection[int] = (),
    known: bool = True,
    since: bool = True,
    begun: bool = True,
    waits: bool = True,
    more: int = 0,
    hosts: Sequence[str] = ("worker-1", "worker-1"),
) -> None:
    """Two ranks after steps of 100 ms each: for 20 s rank 0 waited, and rank 1 was in data; then
    the command ended, if that was `seen`.

    Args:
        over: ranks that were behind their phase.
        engines: of each rank, which take turns.
        ahead: by how much rank 0 counts further in the end.
        closes: ranks that closed their recording instead, at the end.
        known: whether the phase of rank 0 is.
        since: whether it is known when its wait began.
        begun: whether both had done a forward of the step that they did not end.
        waits: whether rank 0 waited in a call.
        more: steps that rank 0 had ended, and rank 1 had not.
    """
    start = perf_counter_ns() - 21 * SECOND
    for rank in range(2):
        writer = Writer.create(folder, header(rank, launch="one", host=hosts[rank]))
        names = {name: writer.name(name, 0, "compute") for name in ("forward", "backward")}
        data, reduce = writer.name("data", 0, "data"), writer.name("all_reduce")
        at = start
        last = steps + (0 if rank else more)
        for step in range(1, last + 1):
            for engine in range(engines[rank]):
                end = at + 100 // max(engines) * MS
                writer.span(names["forward"], at, end - MS, step, engine=engine)
                number = step + (ahead if step == 10 and not rank else 0)
                writer.step(number, at, end, CLASSES, engine=engine)
                at = end
            at = start + 100 * step * MS
        if begun:
            writer.span(names["forward"], at, at + 3 * MS, last + 1)
        writer.flush()
        cell, phase = writer.ring.cell, data if rank else names["backward"]
        if rank in closes:
            writer.close()
            continue
        if known or rank:
            cell[PHASE] = at + 6 * MS & SINCE | phase | OVER * (rank in over)
        if waits and not rank:
            writer.in_flight(reduce, 7, (at + 500 * MS) * since)
        writer.ring.close()
    if seen:
        (folder / launches.FOLDER).mkdir()
        launches.end(folder, "one", 1)


def lanes_of(folder: Path, ranks: Sequence[int] = (0, 1)) -> dict[int, list[Stretch]]:
    found = unfinished_step(Facts(load(folder)), ranks)
    return {} if found is None else found.lanes


def paths(folder: Path, rank: int) -> list[str]:
    return [one.path for one in lanes_of(folder)[rank]]


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
    record(tmp_path, over=(1,))
    chart = lanes_section(load(tmp_path)).charts[0]
    assert chart.table is not None
    said = [[cell.text for cell in row] for row in chart.table.rows]
    assert [(row[0], row[3]) for row in said][-1] == ("1", "no phase")


def test_of_engines_in_turns_it_is_what_came_after_the_last_step(tmp_path: Path) -> None:
    record(tmp_path, engines=(2, 2))
    chart = lanes_section(load(tmp_path)).charts[0]
    assert chart.label.startswith("Since step 10 of engine 1, until training stopped. ")


def test_what_was_not_written_any_more_is_left_blank(tmp_path: Path) -> None:
    record(tmp_path)
    first, second = lanes_of(tmp_path)[1]
    assert (first.path, second.path) == ("forward", "data")
    assert first.begin < MS < first.end < 6 * MS + SINCE <= second.begin  # a cell rounds down


def test_it_begins_where_the_last_step_ended_that_all_of_them_ended(tmp_path: Path) -> None:
    record(tmp_path, more=1)
    assert paths(tmp_path, 0) == ["forward", "forward", "backward", "backward/all_reduce"]
    assert paths(tmp_path, 1) == ["forward", "data"]


def test_a_rank_that_waits_between_phases_is_in_no_phase(tmp_path: Path) -> None:
    record(tmp_path, over=(0,))
    assert paths(tmp_path, 0) == ["forward", "", "all_reduce"]


@pytest.mark.parametrize(
    ("known", "since", "waits"), [(False, True, True), (True, False, True), (False, True, False)]
)
def test_a_rank_of_which_nobody_knows_where_it_stood_or_since_when_is_left_out(
    tmp_path: Path, *, known: bool, since: bool, waits: bool
) -> None:
    record(tmp_path, known=known, since=since, waits=waits)
    assert set(lanes_of(tmp_path)) == {1}


@pytest.mark.parametrize("closes", [(), (1,)])
def test_a_rank_whose_step_before_nobody_knows_is_left_out(
    tmp_path: Path, closes: Collection[int]
) -> None:
    """It has not the engine whose step was the last one."""
    record(tmp_path, engines=(2, 1), closes=closes)
    assert set(lanes_of(tmp_path)) == {0}


def test_ranks_that_are_not_asked_for_are_left_out(tmp_path: Path) -> None:
    record(tmp_path)
    assert set(lanes_of(tmp_path, [1])) == {1}


def test_a_rank_that_closed_its_recording_is_drawn_until_then(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """By the clock of the first host."""
    now = writer_module.clocks

    def later() -> tuple[int, int, int]:
        perf, wall, error = now()
        return perf, wall + 7 * SECOND * any(tmp_path.glob("*.dsprof")), error

    monkeypatch.setattr(writer_module, "clocks", later)
    record(tmp_path, closes=(1,), hosts=("worker-1", "worker-2"))
    lanes = lanes_of(tmp_path)
    assert 20 * SECOND < lanes[1][-1].end < 21 * SECOND
    assert [one.path for one in lanes[1]] == ["forward", ""]


def test_where_nothing_is_known_of_the_step_nothing_is_drawn(tmp_path: Path) -> None:
    record(tmp_path, closes=(0, 1), begun=False)
    assert lanes_of(tmp_path) == {}


def test_where_no_step_ended_nothing_is_drawn(tmp_path: Path) -> None:
    record(tmp_path, steps=0)
    assert lanes_of(tmp_path) == {}


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
