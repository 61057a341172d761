"""A log followed while it grows says what a log read at once says."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

from dsprof import grammar
from dsprof.errors import DsprofError
from dsprof.live import log as live_log
from dsprof.live.log import LogFollower
from dsprof.live.streams import File, Part, Pipe
from dsprof.live.watch import Watch
from dsprof.logs import read

GRAMMAR = grammar.builtin()
SAMPLES = Path(__file__).parents[2] / "sample_logs"
SAID = ["segment", "step", "rank", "kind", "name", "seconds", "bytes", "value", "line"]


def told(follower: LogFollower) -> pd.DataFrame:
    tables = [*follower.settled, follower.fresh()]
    found: pd.DataFrame = pa.concat_tables(tables).unify_dictionaries().to_pandas()
    return found[SAID].astype("object")


def at_once(path: Path) -> pd.DataFrame:
    found: pd.DataFrame = read([path], grammar=GRAMMAR).events.to_pandas()
    return found[SAID].astype("object")


def same(one: pd.DataFrame, other: pd.DataFrame) -> None:
    pd.testing.assert_frame_equal(one.fillna(-1), other.fillna(-1))


def step_line(step: int, loss: float = 1.0) -> bytes:
    return (
        b"[2026-01-02 03:04:%02d,000] [INFO] [logging.py:96:log_dist] [Rank 0] step=%d, "
        b"skipped=0, lr=[0.001], mom=[(0.9, 0.999)]\nsteps: %d loss: %.4f iter time (s): 0.500 "
        b"samples/sec: 16.000\n" % (step % 60, step, step, loss)
    )


@pytest.mark.parametrize("name", ["neox_pipeline_2023", "zero2_accumulation_0.19.8"])
def test_a_log_fed_bit_by_bit_gives_the_table_of_the_whole(tmp_path: Path, name: str) -> None:
    whole = (SAMPLES / f"{name}.log").read_bytes()
    path = tmp_path / "run.log"
    path.touch()
    follower = LogFollower(File(str(path)), GRAMMAR)
    with path.open("ab", buffering=0) as file:
        for at in range(0, len(whole), 7001):
            file.write(whole[at : at + 7001])
            follower.poll(1 << 20)
            follower.fresh()
    same(told(follower), at_once(path))


def test_readers_that_take_over_from_each_other_lose_and_double_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_log, "ROLL", 300)
    monkeypatch.setattr(live_log, "_OVERLAP", 1 << 14)
    path = tmp_path / "run.log"
    path.write_bytes(b"".join(map(step_line, range(1, 1501))))
    follower = LogFollower(File(str(path)), GRAMMAR)
    while follower.poll(5000):
        pass
    assert len(follower.settled) > 3
    same(told(follower), at_once(path))


def test_a_restart_is_counted_across_a_takeover(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_log, "ROLL", 200)
    monkeypatch.setattr(live_log, "_OVERLAP", 1 << 13)
    path = tmp_path / "run.log"
    launches = [b"".join(step_line(n, loss) for n in range(1, 401)) for loss in (3.0, 2.0, 1.0)]
    path.write_bytes(b"".join(launches))
    follower = LogFollower(File(str(path)), GRAMMAR)
    while follower.poll(4000):
        pass
    same(told(follower), at_once(path))
    assert told(follower)["segment"].nunique() == 3


def test_a_rotated_log_goes_on_in_the_same_launch(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_bytes(b"".join(map(step_line, range(1, 21))))
    follower = LogFollower(File(str(path)), GRAMMAR)
    follower.poll(1 << 20)
    path.rename(tmp_path / "run.log.1")
    with (tmp_path / "run.log.1").open("ab") as old:  # the writer has not noticed yet
        old.write(step_line(21))
    path.write_bytes(b"".join(map(step_line, range(22, 31))))
    for _ in range(3):
        follower.poll(1 << 20)
    found = told(follower)
    assert sorted(found["step"].dropna().unique()) == list(range(1, 31))
    assert set(found["segment"]) == {0}


@pytest.mark.parametrize("steps", [3, 60], ids=["shorter", "longer"])
def test_a_log_written_anew_is_another_launch(tmp_path: Path, steps: int) -> None:
    path = tmp_path / "run.log"
    path.write_bytes(b"".join(map(step_line, range(1, 21))))
    follower = LogFollower(File(str(path)), GRAMMAR)
    follower.poll(1 << 20)
    with path.open("r+b") as file:  # the same file, as `> run.log` leaves it
        file.truncate()
        file.write(b"".join(step_line(step, 2.0) for step in range(1, steps + 1)))
    for _ in range(3):
        follower.poll(1 << 20)
    found = told(follower)
    assert set(found["segment"]) == {0, 1}
    assert found[found["segment"] == 1]["step"].max() == steps


def test_a_file_that_comes_late_is_read_when_it_is_there(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    follower = LogFollower(File(str(path)), GRAMMAR)
    assert follower.poll(100) == 0
    assert len(follower.fresh()) == 0
    path.write_bytes(step_line(1))
    assert follower.poll(1 << 20) > 0
    assert len(follower.fresh()) > 0


def test_lines_read_from_the_middle_have_no_number_until_it_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    head = b"".join(map(step_line, range(1, 11)))
    path.write_bytes(head + step_line(11))
    follower = LogFollower(File(str(path), len(head)), GRAMMAR, base=None)
    follower.poll(1 << 20)
    assert follower.fresh()["line"].null_count == len(follower.fresh())
    follower.recount(20)
    assert set(follower.fresh()["line"].to_pylist()) <= {21, 22}


def test_what_stands_before_a_place_ends_there(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    head = b"".join(map(step_line, range(1, 11)))
    path.write_bytes(head + step_line(11))
    follower = LogFollower(Part(str(path), len(head)), GRAMMAR)
    while not follower.stream.ended:
        follower.poll(700)
    follower.poll(700)
    assert max(told(follower)["step"].dropna()) == 10


def test_a_pipe_is_read_to_its_end() -> None:
    out, into = os.pipe()
    follower = LogFollower(Pipe(out), GRAMMAR)
    os.write(into, step_line(1) + step_line(2).rstrip(b"\n"))
    os.close(into)
    while not follower.stream.ended:
        follower.poll(1 << 20)
    follower.poll(1)
    assert sorted(told(follower)["step"].dropna().unique()) == [1, 2]


def test_the_last_lines_are_kept_with_their_numbers_and_cut(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_bytes(b"one\ntwo\n" + b"x" * 100_000 + b"\nlast")
    follower = LogFollower(File(str(path)), GRAMMAR)
    follower.poll(1 << 20)
    assert [number for number, _ in follower.lines] == [1, 2, 3]
    assert [len(line) for _, line in follower.lines] == [3, 3, live_log.LONGEST]


def test_a_log_whose_name_is_gone_tells_when_it_was_written_last(tmp_path: Path) -> None:
    """As between the two steps of a rotation: the job still writes to it."""
    log = tmp_path / "run.log"
    log.write_text("a\n", encoding="utf-8")
    stream = File(str(log))
    assert stream.written == 0.0
    assert stream.read(99) == b"a\n"
    log.rename(tmp_path / "run.log.1")
    with (tmp_path / "run.log.1").open("a", encoding="utf-8") as more:
        more.write("b\n")
    os.utime(tmp_path / "run.log.1", (5.0, 7.0))
    assert stream.read(99) == b"b\n"
    assert stream.written == 7.0
    stream.close()


@pytest.mark.parametrize("begin", [b"\x1f\x8b\x08", b"\x89PNG\r\n\x1a\n\0\0"], ids=["gz", "png"])
def test_a_pipe_of_something_else_than_text_is_an_error(begin: bytes) -> None:
    out, into = os.pipe()
    os.write(into, begin + b"\x07" * 50)
    os.close(into)
    stream = Pipe(out)
    while not stream._waiting:
        time.sleep(0.01)
    with pytest.raises(DsprofError, match="standard input"):
        stream.read(99)
    assert (stream.read(99), stream.ended) == (b"", True)
    os.close(out)


def test_a_bar_that_goes_on_in_its_own_line_is_told_before_that_ends(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    bars = b"".join(
        b"\r %2d%%|#   | %d/1000 [00:%02d<05:00,  6.60it/s]" % (n, n, n) for n in range(40)
    )
    path.write_bytes(b"***** Running training *****\n" + bars)
    follower = LogFollower(File(str(path)), GRAMMAR)
    follower.poll(1 << 20)
    assert follower.bar() == (39, 1000)
    assert follower.fresh().num_rows == 0
    watch = Watch([str(path)])
    assert watch.refresh(5).note == "a progress bar stands at 39 of 1,000; no line shows a step yet"
    with path.open("ab") as more:
        more.write(b"\ndone")
    follower.poll(1 << 20)
    assert follower.bar() is None
