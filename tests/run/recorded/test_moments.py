"""When phases and calls were."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsprof import load
from dsprof.recording import ASYNC, THINNED, Writer, read_folder
from dsprof.recording.bulk import read_bulk
from dsprof.run import from_events
from dsprof.run.recorded.moments import CALL, COLUMNS, PHASE, STEP, UNKNOWN, moments
from tests.recording.recorded import (
    LENGTHS,
    MS,
    SPANS,
    frame,
    header,
    record,
    record_pauses,
    write_steps,
)


def test_a_step_has_its_phases_and_calls_in_order_of_time(tmp_path: Path) -> None:
    record(tmp_path, 5)
    run = load(tmp_path)
    found = run.moments(run.steps[run.steps["step"] == 3])
    assert list(found.columns) == list(COLUMNS)
    zero = found["begin"].iloc[0]
    assert found["what"].iloc[0] == STEP
    assert found["seconds"].iloc[0] == pytest.approx(0.1)
    inside = found.iloc[1:]
    assert inside["path"].tolist() == [
        "forward", "backward", "backward/all_reduce",
        "forward", "backward", "backward/all_reduce", "step", "step",
    ]  # fmt: skip
    assert ((inside["begin"] - zero) // MS).tolist() == [0, 10, 20, 40, 50, 60, 80, 86]
    calls = found[found["what"] == CALL]
    assert ((calls["issued"] - zero) // MS).tolist() == [12, 52]
    assert calls["seconds"].tolist() == pytest.approx([0.01, 0.01]), "those that it held up"
    assert calls["class"].unique().tolist() == ["communication"]
    assert calls["bytes"].tolist() == [4096, 4096]
    assert found["class"].iloc[-1] == "optimizer"
    assert found["line"].is_unique


def test_only_the_wanted_steps_and_ranks_are_told_of(tmp_path: Path) -> None:
    for rank in range(3):
        record(tmp_path, 50, rank)
    run = load(tmp_path)
    found = run.moments(run.steps.iloc[[4, 40]], ranks=[0, 2])
    assert sorted(found["step"].unique()) == [5, 41]
    assert sorted(found["rank"].unique()) == [0, 2]
    assert len(found) == 2 * 2 * (1 + SPANS + 2)
    outer = run.moments(run.steps.iloc[[4, 40]], outer=True)
    assert len(outer) == 3 * 2 * (1 + SPANS)
    assert set(outer["what"]) == {STEP, PHASE}


def test_a_recording_without_a_rank_is_not_taken_for_rank_0(tmp_path: Path) -> None:
    record(tmp_path, 5)
    writer = Writer.create(tmp_path, {"host": "worker-1", "world": 2})
    write_steps(writer, 1, 5)
    writer.close()
    run = load(tmp_path)
    found = run.moments(run.steps)
    assert found["rank"].value_counts().to_dict() == {0: 5 * 9, UNKNOWN: 5 * 9}
    assert len(run.moments(run.steps, ranks=[0])) == 5 * 9


def test_calls_that_share_a_row_have_no_moment(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, header())
    reduce, world = writer.name("all_reduce"), writer.name("world ranks 0-1")
    for flags, at in ((THINNED, 10), (ASYNC | THINNED, 30), (ASYNC, 60)):
        writer.collective(reduce, world, at * MS, at * MS, -1, 1, -1, 64, 3, 0, flags=flags)
    write_steps(writer, 1, 1)
    writer.close()
    run = load(tmp_path)
    calls = run.moments(run.steps)
    calls = calls[calls["path"] == "all_reduce"]
    assert calls["begin"].eq(UNKNOWN).sum() == 1, "DDP's buckets have that of their wait"
    assert calls["count"].tolist() == [3, 3, 3]
    assert calls["seconds"].isna().all()


def test_damaged_rows_have_no_moment_and_no_duration(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, header())
    forward = writer.name("forward", 0, "compute")
    write_steps(writer, 1, 3)
    writer.span(forward, 0, -5, 2)
    writer.span(forward, 0, 1 << 62, 2)
    writer.span(forward, (1 << 63) - 9, (1 << 63) - 2, 2)
    writer.step(2, 200 * MS, 100 * MS)
    writer.step(2, (1 << 63) - 90, (1 << 63) - 2)
    writer.step(2, 0, 1 << 62)
    writer.close()
    run = load(tmp_path)
    found = run.moments(run.steps[run.steps["step"] == 2])
    assert found["what"].tolist().count(STEP) == 1
    odd = found[(found["begin"] == UNKNOWN) | found["seconds"].isna()]
    assert len(odd) == 3
    assert set(odd["path"]) == {"forward"}
    assert found["begin"].ge(UNKNOWN).all()


def test_the_clocks_of_hosts_are_brought_to_that_of_the_first(tmp_path: Path) -> None:
    for rank in range(2):
        record(tmp_path, 3, rank, host=f"worker-{rank}")
    processes, steps = read_bulk([tmp_path]).processes, load(tmp_path).steps.iloc[[1]]
    own = moments(processes, steps, {})
    found = moments(processes, steps, {"worker-0": 0.0, "worker-1": 7.0})
    late = found["rank"] == 1
    assert (found["begin"] - own["begin"])[late].unique().tolist() == [-7_000 * MS]
    assert (found["begin"] == own["begin"])[~late].all()


def test_a_file_that_is_gone_or_another_one_has_no_moments(tmp_path: Path) -> None:
    path = record(tmp_path, 5)
    run = load(tmp_path)
    assert len(run.moments(run.steps))
    whole = path.read_bytes()
    path.write_bytes(whole[:-640])
    assert run.moments(run.steps).empty
    path.write_bytes(whole.replace(b"\x02", b"\x03"))
    assert run.moments(run.steps).empty
    for other in (b"", whole[:20], whole.replace(b"\n\x01\x00", b"\n\x09\x00", 1), b"text" * 99):
        path.write_bytes(other)
        assert run.moments(run.steps).empty
    path.unlink()
    assert run.moments(run.steps).empty


def test_a_log_has_no_moments() -> None:
    run = load(Path(__file__).parents[3] / "sample_logs" / "checkpoint_0.19.8.log")
    assert run.moments(run.steps).empty


def test_events_of_recordings_tell_the_same_of_what_lies_in_no_phase(tmp_path: Path) -> None:
    record_pauses(tmp_path, {"backward": 30}, {"forward": 10}, steps=4)
    run, told = load(tmp_path), from_events(frame(read_folder(tmp_path)))
    columns = ["step", "rank", "what", "path", "class", "seconds", "source", "line"]
    some, again = (one.moments(one.steps.iloc[1:3], [1], outer=True) for one in (run, told))
    assert len(some) == 2 * (1 + len(LENGTHS) + 1)
    for column in columns:
        assert some[column].tolist() == again[column].tolist()
    assert ((some["begin"] - again["begin"]).abs() <= 2_000).all(), "to a microsecond"
    assert told.moments(told.steps).empty, "what lies inside phases is not told"


def test_when_calls_were_that_share_a_row_is_not_told_either(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, header())
    for count, at in ((3, 110), (1, 120)):
        call = writer.name("all_reduce")
        writer.collective(call, 0, at * MS, at * MS, MS, 1, -1, 64, count, flags=THINNED)
    write_steps(writer, 1, 1)
    writer.close()
    told = from_events(frame(read_folder(tmp_path)))
    found = told.moments(told.steps, outer=True)
    calls = found[found["what"] == CALL].sort_values("count")
    assert calls["begin"].eq(UNKNOWN).tolist() == [False, True]
    assert calls["seconds"].tolist() == [0.001, 0.001]
