"""Steps of an engine with what the other engines did meanwhile."""

from __future__ import annotations

from pathlib import Path

from dsprof import load
from dsprof.analysis.turns import is_foreign, turns
from dsprof.recording import Writer
from dsprof.run.moments import STEP
from tests.recording.recorded import MS, header


def record(folder: Path, steps: int = 12, world: int = 2) -> None:
    """An actor whose step takes 20 ms, and behind it a critic with two steps of 10 ms."""
    for rank in range(world):
        writer = Writer.create(folder, header(rank, world=world))
        forward, at = writer.name("forward", 0, "compute"), MS
        for turn in range(steps):
            for engine, step, ms in ((0, turn, 20), (1, 2 * turn, 10), (1, 2 * turn + 1, 10)):
                writer.span(forward, at + MS, at + (ms - 1) * MS, step + 1, engine=engine)
                writer.step(step + 1, at, at + ms * MS, engine=engine)
                at += ms * MS
        writer.close()


def test_a_turn_is_from_one_end_of_the_engines_step_to_the_next(tmp_path: Path) -> None:
    record(tmp_path)
    run = load(tmp_path)
    steps = run.steps[(run.steps["engine"] == 0) & run.steps["step"].isin([5, 6])]
    moments = turns(run, steps, {1})
    whole = moments[moments["what"] == STEP]
    assert whole["seconds"].round(6).tolist() == [0.04, 0.04]
    assert set(moments["rank"]) == {1}
    for step in (5, 6):
        paths = moments.loc[moments["step"].eq(step) & moments["seconds"].gt(0), "path"].tolist()
        assert paths == ["", "forward of engine 1", "forward of engine 1", "forward"]
    assert [is_foreign(path) for path in ("forward", "forward of engine 1")] == [False, True]


def test_the_first_step_of_an_engine_has_no_turn(tmp_path: Path) -> None:
    record(tmp_path)
    run = load(tmp_path)
    first = run.steps[(run.steps["engine"] == 1) & (run.steps["step"] == 1)]
    assert turns(run, first).empty
    assert turns(run, first[:0]).empty
