"""What is read of a run of recordings is what all of their events say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dsprof.recording import THINNED, Unit, Writer, read_folder
from dsprof.run import Run, from_events, load
from dsprof.run.table import frame_of
from tests.recording.recorded import MS, header

VIEWS = ("phases", "comm", "steps", "memory", "gpu", "problems")
KEYS = ["segment", "engine", "step", "rank", "name", "raw"]


def job(folder: Path, rank: int, steps: int, **more: object) -> Writer:
    """One rank: data, forward, backward with two collectives, an update; loss, memory, cost."""
    writer = Writer.create(folder, header(rank, **more), keep_bytes=1 << 20)
    backward = writer.name("backward", 0, "compute")
    names = {word: writer.name(word, 0, "compute") for word in ("forward", "step")}
    reduce_, world = writer.name("all_reduce", backward), writer.name("world")
    loss, resident = writer.name("loss"), writer.name("host_process")
    for step in range(1, steps + 1):
        at = step * 100 * MS + rank * MS
        writer.span(writer.name("data", 0, "data"), at, at + MS + rank, step)
        writer.span(names["forward"], at + 2 * MS, at + 9 * MS, step, 0)
        writer.span(backward, at + 9 * MS, at + 40 * MS + rank, step, 0)
        for number in (1, 2):
            writer.collective(reduce_, world, at, at, number * MS, step, 0, 4096, 1, number)
        writer.span(names["step"], at + 40 * MS, at + 50 * MS, step)
        writer.metric(loss, 1 / step + rank, step, at_ns=at)
        if step % 5 == 0:
            writer.memory(resident, step * 1e6, step, at)
        writer.metric(writer.name("overhead"), 1e-5, step, Unit.SECONDS)
        writer.step(step, at, at + (51 + rank) * MS)
        writer.flush()
    return writer


def several_ranks(folder: Path) -> None:
    for rank in range(4):
        job(folder, rank, 30).close()


def one_rank_ends_early(folder: Path) -> None:
    """And the metrics that only it told go on from the next one."""
    for rank, steps in enumerate((10, 30, 30)):
        job(folder, rank, steps).close()


def two_launches(folder: Path) -> None:
    for restart in (0, 1):
        for rank in (0, 1):
            job(folder, rank, 8, restart=restart).close()


def unknown_exposure(folder: Path) -> None:
    """A call that nobody timed: what holds it is compute and communication unseparated."""
    for rank in (0, 1):
        writer = job(folder, rank, 6)
        call = writer.name("all_gather", writer.name("forward", 0, "compute"))
        writer.collective(call, 0, 1, 1, -1, 3, 0, 64)
        writer.step(7, 800 * MS, 850 * MS)
        writer.close()


def an_engine_without_steps(folder: Path) -> None:
    """A reference model that another engine's training asks, in all that are its first step."""
    for rank in (0, 1):
        writer = job(folder, rank, 5)
        asked = writer.name("evaluation", 0, "other")
        for step in range(1, 6):
            writer.span(asked, step * 100 * MS + 60 * MS, step * 100 * MS + 90 * MS, 1, engine=1)
        writer.close()


def a_step_under_way(folder: Path) -> None:
    writer = job(folder, 0, 5)
    writer.span(writer.name("forward", 0, "compute"), 0, 9 * MS, 6)
    writer.flush()


def odd_values(folder: Path) -> None:
    """Rows outside of steps, a step 0, a loss that is no number, times that no clock reads."""
    for rank in (0, 1):
        writer = job(folder, rank, 8)
        forward = writer.name("forward", 0, "compute")
        writer.span(forward, 0, 5 * MS, -1)
        writer.span(forward, 0, 5 * MS, 0)
        writer.span(forward, 0, 1 << 62, 4)
        writer.collective(writer.name("barrier"), 0, 0, 0, 2 * MS, -1)
        writer.metric(writer.name("loss"), float("nan"), 9, at_ns=5)
        writer.metric(writer.name("tokens"), 7, 9, Unit.COUNT, at_ns=5)
        writer.step(0, 0, 5 * MS)
        writer.step(9, 0, 0)
        writer.close()


def problems(folder: Path) -> None:
    for rank in (0, 1):
        writer = job(folder, rank, 6)
        if rank:
            writer.problem("exception", "ValueError: no", 6)
        writer.close()


def forgotten_spans(folder: Path) -> None:
    """So long that the oldest parts are gone: their steps have seconds per class."""
    for rank in (0, 1):
        writer = Writer.create(folder, header(rank), keep_bytes=1 << 18)
        names = [writer.name(f"layer{n}", 0, "compute") for n in range(40)]
        for step in range(1, 301):
            at = step * 100 * MS
            for number, name in enumerate(names):
                writer.span(name, at + number * MS, at + (number + 1) * MS, step)
            writer.step(step, at, at + 40 * MS, [0.04, *[0.0] * 7])
            writer.flush()
        writer.close()


def two_engines(folder: Path) -> None:
    for rank in (0, 1):
        writer = job(folder, rank, 6)
        forward = writer.name("forward", 0, "compute")
        for step in (1, 2, 3):
            writer.span(forward, 0, 3 * MS, step, engine=1)
            writer.step(step, 900 * MS, 910 * MS, engine=1)
        writer.close()


def a_gap_in_what_the_lowest_rank_tells(folder: Path) -> None:
    """And a rank that makes no call, and one that merges calls now and then."""
    for rank in (0, 1, 2):
        writer = Writer.create(folder, header(rank))
        forward, reduce_ = writer.name("forward", 0, "compute"), writer.name("all_reduce")
        for step in range(1, 13):
            at = step * 100 * MS
            writer.span(forward, at, at + (9 + rank) * MS, step)
            if rank != 1:
                merged = 1 + (rank == 2 and step % 3 == 0)
                flags = THINNED * (merged > 1)
                writer.collective(
                    reduce_, 0, at, at, 2 * MS, step, 0, 64, merged, step, flags=flags
                )
            writer.metric(writer.name("loss"), step + rank, step, at_ns=at)
            if rank or step not in (4, 5):
                writer.metric(writer.name("lr"), 1e-4 * (1 + rank), step, at_ns=at)
            writer.step(step, at, at + 20 * MS)
        writer.close()


def a_loss_that_only_another_rank_tells(folder: Path) -> None:
    for rank in (0, 1):
        writer = Writer.create(folder, header(rank))
        forward, loss = writer.name("forward", 0, "compute"), writer.name("loss")
        for step in range(1, 6):
            at = step * 100 * MS
            writer.span(forward, at, at + 30 * MS, step)
            if rank or step != 3:
                writer.metric(loss, 1 / step, step, at_ns=at)
            writer.step(step, at, at + 50 * MS)
            writer.flush()
        writer.close()


def a_rank_with_fewer_batches(folder: Path) -> None:
    """It answers the others' collectives in a step that it never ends (`Join`); another one ends
    none at all."""
    for rank, steps in enumerate((10, 6, 0)):
        writer = job(folder, rank, steps)
        call, group = writer.name("all_reduce"), writer.name("world")
        for number in range(11 - steps):
            at = (steps + 1 + number) * 100 * MS
            writer.collective(call, group, at, at, 25 * MS, steps + 1, 0, 4096, 1, number)
        writer.flush()
        writer.close()


CASES = (
    several_ranks, one_rank_ends_early, two_launches, unknown_exposure, a_step_under_way,
    odd_values, problems, forgotten_spans, two_engines, a_gap_in_what_the_lowest_rank_tells,
    a_loss_that_only_another_rank_tells, an_engine_without_steps, a_rank_with_fewer_batches,
)  # fmt: skip


def plain(frame: pd.DataFrame) -> pd.DataFrame:
    """Words as text, whole numbers and measures as floats, in one order of rows."""
    found = pd.DataFrame(index=frame.index)
    for name, column in frame.items():
        kind = column.dtype
        if kind == "bool" or pd.api.types.is_numeric_dtype(kind):
            found[name] = column.astype("Float64").to_numpy(float, na_value=np.nan)
        else:
            found[name] = column.astype("object").where(column.notna(), None).map(str)
    keys = [key for key in KEYS if key in found]
    return found.sort_values([*keys, *(c for c in ("source", "line") if c in found)]).reset_index(
        drop=True
    )


@pytest.fixture(scope="module", params=CASES, ids=lambda case: case.__name__)
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    """The run as it is made of the table of all events, and as it is read."""
    folder = tmp_path_factory.mktemp("run")
    request.param(folder)
    return [from_events(frame_of(read_folder(folder))), load(folder)]


def test_findings_are_those_of_all_events(both: list[Run]) -> None:
    whole, run = both
    assert [(f.rule, f.title, f.summary, f.evidence) for f in run.findings] == [
        (f.rule, f.title, f.summary, f.evidence) for f in whole.findings
    ]


def test_views_are_those_of_all_events(both: list[Run]) -> None:
    whole, run = both
    for name in VIEWS:
        pd.testing.assert_frame_equal(
            plain(getattr(run, name)), plain(getattr(whole, name)), rtol=1e-9, obj=name
        )
    assert run.config == whole.config
    pd.testing.assert_frame_equal(plain(run.events), plain(whole.events), rtol=1e-9)


def test_a_model_that_is_only_asked_makes_no_steps(tmp_path: Path) -> None:
    an_engine_without_steps(tmp_path)
    run = load(tmp_path)
    assert set(run.steps["engine"]) == set(run.phases["engine"]) == {0}
    assert list(run.steps["step"]) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("way", ["all events", "columns"])
def test_phases_of_a_recording_that_ends_no_step_are_no_step(tmp_path: Path, way: str) -> None:
    """As where optimizers are fused into backward, and none of them is seen to step."""
    writer = Writer.create(tmp_path, header(0))
    for turn in range(30):
        writer.span(writer.name("forward", 0, "compute"), turn * MS, (turn + 1) * MS, 1)
    writer.close()
    run = load(tmp_path) if way == "columns" else from_events(read_folder(tmp_path))
    assert run.steps.empty
    assert "optimizer step: nothing can be said about speed" in run.findings[0].title


def test_what_a_rank_does_in_a_step_that_it_never_ends_is_no_part_of_that_step_of_the_others(
    tmp_path: Path,
) -> None:
    a_rank_with_fewer_batches(tmp_path)
    run = load(tmp_path)
    ended = [(step, rank) for step in range(1, 11) for rank in (0, 1) if not rank or step < 7]
    assert sorted(set(zip(run.phases["step"], run.phases["rank"], strict=True))) == ended
    inside = run.comm[run.comm["step"] <= 10]
    assert sorted(set(zip(inside["step"], inside["rank"], strict=True))) == ended
    steps = run.steps.set_index("step")
    assert steps.loc[7:, "compute"].to_numpy() == pytest.approx([0.045] * 4)
    assert run.repairs.empty


def test_a_step_stands_on_a_line_of_its_lowest_rank(tmp_path: Path) -> None:
    a_loss_that_only_another_rank_tells(tmp_path)
    steps = load(tmp_path).steps
    assert steps["loss"].notna().all()
    assert set(steps["source"]) == {steps["source"].iloc[0]}
    assert steps["line"].is_monotonic_increasing


def test_of_what_every_rank_tells_only_the_first_is_told(tmp_path: Path) -> None:
    several_ranks(tmp_path)
    run = load(tmp_path)
    losses = run.told[run.told["name"] == "loss"]
    assert set(losses["rank"]) == {0}
    assert list(losses["step"]) == list(range(1, 31))
    assert set(run.events.loc[run.events["name"] == "loss", "rank"]) == {0, 1, 2, 3}
    assert len(run.told) < len(run.events) / 5


def test_how_far_a_rank_came_is_told_where_its_last_rows_are_of_no_step(tmp_path: Path) -> None:
    for rank, steps in enumerate((30, 7)):
        writer = job(tmp_path, rank, steps)
        writer.config("collectives_seen", 14)
        writer.close()
    told = load(tmp_path).told
    assert told.groupby("rank")["step"].max().to_dict() == {0: 30, 1: 7}


def test_a_damaged_row_whose_name_no_writer_defines_is_no_phase(tmp_path: Path) -> None:
    writer = job(tmp_path, 0, 6)
    writer.span((1 << 31) + 5, 300 * MS, 301 * MS, 3)
    writer.collective((1 << 20) + 8, 0, 0, 0, MS, 3)
    writer.close()
    run = load(tmp_path)
    names = {"all_reduce_in_backward", "backward", "data", "forward", "step"}
    assert set(run.phases["name"]) == names
    assert run.comm["op"].dropna().unique().tolist() == ["all_reduce"]


def test_a_report_reads_no_table_of_all_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dsprof.page import render_page
    from dsprof.text.document import document
    from dsprof.text.summary import summary

    several_ranks(tmp_path)
    run = load(tmp_path)

    def read(_: Run) -> pd.DataFrame:
        raise AssertionError("all events were asked for")

    monkeypatch.setattr(Run, "events", property(read))
    monkeypatch.setattr(Run, "recorded", property(read))
    assert document(run)
    assert summary(run)
    assert render_page(run)
