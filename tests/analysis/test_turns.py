"""Steps of an engine with what the other engines did meanwhile."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pandas as pd

from dsprof import load
from dsprof.analysis.turns import is_foreign, turns
from dsprof.recording import THINNED, Writer
from dsprof.run import Run
from dsprof.run.recorded.moments import STEP, UNKNOWN
from tests.recording.recorded import MS, header


def record(
    folder: Path,
    steps: int = 12,
    world: int = 2,
    restart: int = 0,
    thinned: Collection[tuple[int, int]] = (),
) -> None:
    """An actor whose step takes 20 ms, and behind it a critic with two steps of 10 ms. Calls of
    some of the steps share a row: those of these engines and numbers.
    """
    for rank in range(world):
        writer = Writer.create(folder, header(rank, world=world, restart=restart))
        forward, at = writer.name("forward", 0, "compute"), MS
        for turn in range(steps):
            for engine, step, ms in ((0, turn, 20), (1, 2 * turn, 10), (1, 2 * turn + 1, 10)):
                writer.span(forward, at + MS, at + (ms - 1) * MS, step + 1, engine=engine)
                if (engine, step + 1) in thinned:
                    reduce = writer.name("all_reduce")
                    writer.collective(
                        reduce, 0, at, at, MS, step + 1, count=9, flags=THINNED, engine=engine
                    )
                writer.step(step + 1, at, at + ms * MS, engine=engine)
                at += ms * MS
        writer.close()


def test_a_turn_is_from_one_end_of_the_engines_step_to_the_next(tmp_path: Path) -> None:
    record(tmp_path)
    run = load(tmp_path)
    moments = turns(run, own(run, 2, 5, 6), {1})
    whole = moments[moments["what"] == STEP]
    assert whole["seconds"].round(6).tolist() == [0.04, 0.04, 0.04]
    assert set(moments["rank"]) == {1}
    for step in (2, 5, 6):
        paths = moments.loc[moments["step"].eq(step) & moments["seconds"].gt(0), "path"].tolist()
        assert paths == ["", "forward of engine 1", "forward of engine 1", "forward"]
    assert [is_foreign(path) for path in ("forward", "forward of engine 1")] == [False, True]


def own(run: Run, *steps: int, segment: int = 0) -> pd.DataFrame:
    """Rows of these steps of the first engine."""
    mine = (run.steps["engine"] == 0) & (run.steps["segment"] == segment)
    return run.steps[mine & run.steps["step"].isin(steps)]


def test_steps_between_those_that_are_asked_for_are_left_out(tmp_path: Path) -> None:
    record(tmp_path)
    moments = turns(load(tmp_path), own(load(tmp_path), 5, 7))
    assert moments["step"].unique().tolist() == [5, 7]


def test_a_turn_has_nothing_of_another_launch(tmp_path: Path) -> None:
    for restart in range(2):
        record(tmp_path, world=1, restart=restart)
    run = load(tmp_path)
    moments = turns(run, own(run, 5, segment=1))
    assert set(moments["segment"]) == {1}
    paths = moments.loc[moments["seconds"].gt(0), "path"].tolist()
    assert paths == ["", "forward of engine 1", "forward of engine 1", "forward"]


def test_what_begins_where_a_turn_does_is_part_of_it(tmp_path: Path) -> None:
    """Inside phases, too, unless these are not wanted."""
    writer = Writer.create(tmp_path, header(world=1))
    forward = writer.name("forward", 0, "compute")
    reduce, at = writer.name("all_reduce", forward), MS
    for step in range(1, 6):
        for engine in range(2):
            writer.span(forward, at, at + 9 * MS, step, engine=engine)
            writer.collective(reduce, 0, at, at, 2 * MS, step, engine=engine)
            writer.step(step, at, at + 10 * MS, engine=engine)
            at += 10 * MS
    writer.close()
    run = load(tmp_path)
    told = turns(run, own(run, 3))["path"].tolist()
    assert sorted(told) == [
        "", "forward", "forward of engine 1", "forward/all_reduce",
        "forward/all_reduce of engine 1", "step of engine 1",
    ]  # fmt: skip
    outer = turns(run, own(run, 3), outer=True)["path"].tolist()
    assert sorted(outer) == ["", "forward", "forward of engine 1", "step of engine 1"]


def write(writer: Writer, *told: tuple[str, int, int, int, int]) -> None:
    """Phases, and steps, by what it is, its engine, number, begin and end in ms."""
    for what, engine, step, begin, end in told:
        if what == "step":
            writer.step(step, begin * MS, end * MS, engine=engine)
        else:
            phase = writer.name(what, 0, "compute")
            writer.span(phase, begin * MS, end * MS, step, engine=engine)


def in_turn(folder: Path, step: int, rank: int) -> list[str]:
    """Paths of what took time in a turn of the first engine on a rank."""
    run = load(folder)
    moments = turns(run, own(run, step))
    mine = moments["rank"].eq(rank) & moments["seconds"].gt(0)
    return sorted(moments.loc[mine & moments["what"].ne(STEP), "path"])


def test_a_step_of_another_engine_that_ends_after_the_turn_is_part_of_it(tmp_path: Path) -> None:
    """As of a critic that computes what the actor learns from, and learns itself behind it."""
    writer = Writer.create(tmp_path, header(world=1))
    for step in range(1, 6):
        at = 100 * step
        write(
            writer, ("forward", 1, step, at, at + 20), ("backward", 0, step, at + 20, at + 40),
            ("step", 0, step, at, at + 40), ("step", 1, step, at, at + 90),
        )  # fmt: skip
    writer.close()
    assert in_turn(tmp_path, 3, 0) == ["backward", "forward of engine 1"]


def test_steps_of_an_engine_that_other_ranks_end_later_are_found_too(tmp_path: Path) -> None:
    """Rank 0 alone has the first engine. Of the second one rank 1 ends its steps later: that of
    which rank 0 has done a part follows one that ended, for all that the table of steps tells, when
    the turn was over.
    """
    first, second = (Writer.create(tmp_path, header(rank)) for rank in range(2))
    for step in range(1, 6):
        at = 100 * step
        write(
            first, ("step", 1, 2 * step, at - 50, at + 10), ("forward", 1, 2 * step + 1, at + 10,
            at + 20), ("backward", 0, step, at + 20, at + 30), ("step", 0, step, at, at + 30),
            ("step", 1, 2 * step + 1, at + 10, at + 50),
        )  # fmt: skip
        write(
            second, ("step", 1, 2 * step, at - 50, at + 45),
            ("step", 1, 2 * step + 1, at + 45, at + 50),
        )  # fmt: skip
    first.close()
    second.close()
    assert in_turn(tmp_path, 3, 0) == ["backward", "forward of engine 1"]


def test_steps_of_an_engine_that_ended_before_other_ranks_began_the_turn_are_found_too(
    tmp_path: Path,
) -> None:
    """Rank 1 ends each step of the first engine later; rank 0 alone has the second one."""
    first, second = (Writer.create(tmp_path, header(rank)) for rank in range(2))
    for step in range(1, 6):
        at = 100 * step
        write(
            first, ("backward", 0, step, at, at + 20), ("step", 0, step, at, at + 20),
            ("forward", 1, step, at + 20, at + 40), ("step", 1, step, at + 20, at + 40),
        )  # fmt: skip
        write(second, ("backward", 0, step, at, at + 20), ("step", 0, step, at, at + 70))
    first.close()
    second.close()
    assert in_turn(tmp_path, 3, 0) == ["backward", "forward of engine 1"]


def test_calls_that_nobody_knows_when_are_of_the_turns_of_their_own_step(tmp_path: Path) -> None:
    """Each engine counts its own: step 9 of the critic comes in the turn of step 6 of the actor."""
    record(tmp_path, world=1, thinned=((0, 4), (1, 9)))
    run = load(tmp_path)
    moments = turns(run, own(run, *range(2, 12)))
    lost = moments[moments["begin"].eq(UNKNOWN)]
    assert list(zip(lost["step"], lost["path"], strict=True)) == [
        (4, "all_reduce"), (6, "all_reduce of engine 1"),
    ]  # fmt: skip


def test_calls_that_nobody_knows_when_are_told_of_a_step_of_which_nothing_else_is(
    tmp_path: Path,
) -> None:
    writer = Writer.create(tmp_path, header(world=1))
    reduce = writer.name("all_reduce")
    for step in range(1, 6):
        at = 100 * step * MS
        writer.collective(reduce, 0, at, at, MS, step, count=9, flags=THINNED)
        write(writer, ("step", 0, step, 100 * step, 100 * step + 40))
        write(writer, ("step", 1, step, 100 * step + 40, 100 * step + 90))
    writer.close()
    run = load(tmp_path)
    assert turns(run, own(run, 3))["begin"].eq(UNKNOWN).sum() == 1


def test_the_first_step_of_an_engine_has_no_turn(tmp_path: Path) -> None:
    record(tmp_path)
    run = load(tmp_path)
    first = run.steps[(run.steps["engine"] == 1) & (run.steps["step"] == 1)]
    assert turns(run, first).empty
    assert turns(run, first[:0]).empty
