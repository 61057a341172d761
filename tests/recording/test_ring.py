"""Disk is bounded, the steps of the whole run are kept, and a follower misses nothing."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from dsprof.recording import Recording, Recordings, RowKind, Writer, read_rows
from dsprof.recording.layout import OVER, PAGE, PHASE, ROW, SINCE, parse_header, part_of
from dsprof.recording.ring import PARTS
from tests.recording.recorded import (
    CLASSES,
    SPANS,
    events,
    follow,
    frame,
    header,
    step_numbers,
    write_steps,
)

KEEP = 256 << 10
STEPS = 2000


@pytest.fixture(scope="module")
def long_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that turned its ring several times."""
    folder = tmp_path_factory.mktemp("long")
    writer = Writer.create(folder, header(), keep_bytes=KEEP)
    write_steps(writer, 1, STEPS)
    writer.close()
    return folder


def test_detail_takes_no_more_than_it_may(long_run: Path) -> None:
    files = {path.name: path.stat().st_size for path in long_run.iterdir()}
    kept = files.pop(next(name for name in files if ".kept." in name))
    one_step = (SPANS + 4) * ROW
    assert len(files) == PARTS
    assert sum(files.values()) < KEEP + PARTS * (PAGE + 20 * ROW + one_step)
    assert kept < PAGE + STEPS * 2 * ROW + 100 * ROW  # a step and its loss


def test_every_step_of_the_whole_run_is_there_once_and_in_order(long_run: Path) -> None:
    found = events(long_run)
    assert step_numbers(found) == list(range(1, STEPS + 1))
    assert list(found.loc[found["name"] == "loss", "step"]) == list(range(1, STEPS + 1))


def test_a_step_whose_spans_are_forgotten_gives_a_phase_per_class(long_run: Path) -> None:
    phases = events(long_run).query("kind == 'phase'")
    detail = phases[phases["source"].str.contains("kept") == False]  # noqa: E712
    oldest = int(detail["step"].min())
    assert oldest > STEPS / 2
    for step in (1, oldest - 1):
        rows = phases[phases["step"] == step]
        known = rows.set_index("text")["seconds"].to_dict()
        assert sum(known.values()) == pytest.approx(sum(CLASSES))
        assert known["communication"] == pytest.approx(0.020)
    assert len(phases[phases["step"] == oldest]) == SPANS
    assert len(phases[phases["step"] == STEPS]) == SPANS


def test_a_recording_is_idle_since_its_newest_file_was_written(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, header(), keep_bytes=KEEP)
    write_steps(writer, 1, 10)
    reader = Recording(writer.path)
    first = Path(reader.path)
    reader.follow()
    write_steps(writer, 11, STEPS)
    assert not first.exists()  # forgotten
    reader.follow()
    files = [path for path in tmp_path.iterdir() if ".kept." not in path.name]
    newest = max(files, key=lambda path: part_of(path.name))
    for path in tmp_path.iterdir():
        hours = 1 if path == newest else 3
        os.utime(path, times=(time.time() - hours * 3600,) * 2)
    assert reader.facts["idle"] == pytest.approx(3600, abs=60)
    reader.close()
    assert reader.facts["idle"] == pytest.approx(3600, abs=60)


def test_no_step_is_half_in_the_ring(long_run: Path) -> None:
    spans = frame(read_rows(RowKind.SPAN, long_run))
    assert set(spans.groupby("step").size()) == {SPANS}


def test_each_part_stands_alone(long_run: Path, tmp_path: Path) -> None:
    for path in long_run.iterdir():
        alone = tmp_path / f"copy-of-{path.name}"  # a name that leads to no other part
        alone.write_bytes(path.read_bytes())
        found = events(alone)
        assert found["name"].notna().all()
        assert len(found) > 0


def test_a_header_says_which_part_its_file_is(long_run: Path) -> None:
    """The `kept` file is part -1."""
    for path in long_run.iterdir():
        told = parse_header(path.read_bytes(), path.name).meta["part"]
        assert told == (-1 if ".kept." in path.name else part_of(path.name))


def test_a_ring_that_turns_holds_no_file_that_it_is_done_with(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, header(), keep_bytes=8 * PAGE)
    write_steps(writer, 1, 20)
    part, before = part_of(writer.path.name), len(list(Path("/proc/self/fd").iterdir()))
    write_steps(writer, 21, 200)
    assert part_of(writer.path.name) > (part or 0) + PARTS
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    writer.close()


def test_nothing_follows_the_end_however_long_ago_the_clocks_were_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a job that evaluates for a minute behind its last step, and whose part is full."""
    for many in range(40, 80):  # the last step may be the one that fills the part
        writer = Writer.create(tmp_path / str(many), header(), keep_bytes=KEEP)
        write_steps(writer, 1, many)
        writer.step(many + 1, 0, 1)
        with monkeypatch.context() as patch:
            patch.setattr("dsprof.recording.writer.CLOCK_EVERY", -1)
            writer.close()
        assert writer.path.read_bytes()[-ROW] == RowKind.END


def test_a_follower_sees_every_span_although_the_ring_turns(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, header(), keep_bytes=KEEP)
    recordings = Recordings([tmp_path])
    phases = steps = 0
    for first in range(1, 1001, 50):  # several parts at a time, but never the whole ring
        write_steps(writer, first, first + 49)
        found = follow(recordings)
        phases += int((found["kind"] == "phase").sum())
        steps += len(step_numbers(found))
    writer.close()
    assert steps == 1000
    assert phases == 1000 * SPANS
    assert len(list(tmp_path.iterdir())) == PARTS + 1


def test_a_follower_is_not_kept_by_a_writer_as_fast_as_itself(tmp_path: Path) -> None:
    """What is written while it reads is of its next look: else that would never come."""
    writer = Writer.create(tmp_path, header())
    recording = Recording(writer.path)
    write_steps(writer, 1, 1)
    looks = 0
    for looks, _ in enumerate(recording.portions(), 1):
        write_steps(writer, looks + 1, looks + 1)
        assert looks < 10
    assert looks == 1
    (rest,) = recording.portions()
    assert rest.kinds.count(RowKind.STEP) == 1


def test_a_follower_that_slept_through_the_ring_still_sees_every_step(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, header(), keep_bytes=KEEP)
    recordings = Recordings([tmp_path])
    write_steps(writer, 1, 10)
    seen = step_numbers(follow(recordings))
    write_steps(writer, 11, STEPS)
    seen += step_numbers(follow(recordings))
    write_steps(writer, STEPS + 1, STEPS + 5)
    writer.close()
    seen += step_numbers(follow(recordings))
    assert seen == list(range(1, STEPS + 6))
    assert recordings.recordings[0].ended


def test_without_the_kept_file_the_rest_can_be_read(long_run: Path, tmp_path: Path) -> None:
    for path in long_run.iterdir():
        if "kept" not in path.name:
            (tmp_path / path.name).write_bytes(path.read_bytes())
    steps = step_numbers(events(tmp_path))
    assert steps == list(range(steps[0], STEPS + 1))


@pytest.mark.parametrize("missing", [1, 63, 64, 65, 5000])
def test_a_kept_file_that_is_cut_gives_whole_parts(
    long_run: Path, tmp_path: Path, missing: int
) -> None:
    """A kill while a part is copied leaves the part: nothing may come twice."""
    for path in long_run.iterdir():
        data = path.read_bytes()
        cut = data[:-missing] if "kept" in path.name else data
        (tmp_path / path.name).write_bytes(cut)
    steps = step_numbers(events(tmp_path))
    assert len(set(steps)) == len(steps)
    assert steps[-1] == STEPS


def test_lasting_rows_do_not_gather_in_memory(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, header())
    loss = writer.name("loss")
    for step in range(1, 40_001):
        writer.metric(loss, 1.0, step, at_ns=step)
        if step % 100 == 0:
            writer.flush()
    kept = next(path for path in tmp_path.iterdir() if "kept" in path.name)
    assert kept.stat().st_size > 40_000 * ROW - (1 << 20)
    writer.close()
    found = events(tmp_path)
    assert list(found.loc[found["name"] == "loss", "step"]) == list(range(1, 40_001))


def test_a_step_larger_than_a_part_does_not_fill_the_disk(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, header(), keep_bytes=KEEP)
    name = writer.name("forward")
    for at in range(20_000):  # 1.2 MB of spans, and the step never ends
        writer.span(name, at, at + 1, 1)
        if at % 20 == 0:
            writer.flush()
    writer.close()
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 3 * KEEP


def test_the_in_flight_cell_goes_along_into_the_next_part(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, header(), keep_bytes=8 * PAGE)
    writer.in_flight(writer.name("barrier"), 7, 1234)
    write_steps(writer, 1, 100)
    recordings = Recordings([tmp_path])
    recordings.follow()
    flying = recordings.facts()["recordings"][0]["in_flight"]
    assert (flying["name"], flying["seq"]) == ("barrier", 7)
    writer.close()


def test_samples_of_gpus_leave_with_their_part(tmp_path: Path) -> None:
    """They come as long as the job runs: what is kept for ever must not."""
    writer = Writer.create(tmp_path, {"rank": 0}, keep_bytes=4 * PARTS * PAGE)
    power, device = writer.name("power"), writer.name("GPU-a")
    for step in range(1, 1001):
        writer.gpu(power, 700.0, step, gpu=device)
        writer.step(step, step, step + 1)
        writer.flush()
    writer.close()
    rows = read_rows(RowKind.GPU, tmp_path)
    assert 100 < len(rows) < 1000
    assert rows["step"].to_pylist()[-1] == 1000
    assert len(read_rows(RowKind.STEP, tmp_path)) == 1000


def test_the_phase_in_the_cell_goes_along_into_the_next_part_and_leaves_with_the_end(
    tmp_path: Path,
) -> None:
    writer = Writer.create(tmp_path, header(), keep_bytes=8 * PAGE)
    now = time.perf_counter_ns()
    recordings = Recordings([tmp_path])
    recordings.follow()
    assert recordings.facts()["recordings"][0]["phase"] is None  # as of an older recording
    writer.ring.cell[PHASE] = now & SINCE | writer.name("data", 0, "data")
    write_steps(writer, 1, 100)
    recordings.follow()
    phase = recordings.facts()["recordings"][0]["phase"]
    assert (phase["name"], phase["class"], phase["over"]) == ("data", "data", False)
    assert 0 <= time.time_ns() - phase["at"] < 60e9
    writer.ring.cell[PHASE] |= OVER
    assert recordings.facts()["recordings"][0]["phase"]["over"]
    writer.close()
    recordings.follow()
    assert recordings.facts()["recordings"][0]["phase"] is None
