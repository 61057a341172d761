"""A recording may end anywhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsprof.errors import DsprofError
from dsprof.recording import Recording, Recordings, RowKind, Writer
from dsprof.recording.layout import PAGE, ROW
from tests.recording.recorded import events, follow, frame, header, record

STEPS = 3


def test_a_file_cut_at_any_byte_gives_the_rows_before_the_cut(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path / "whole", header())
    writer.span(writer.name("forward"), 10, 20, 1)
    writer.collective(writer.name("all_reduce"), 0, 10, 20, 30, 1)
    writer.metric(writer.name("loss"), 1.0, 1)
    writer.step(1, 10, 20)
    writer.close()
    path = writer.path
    data = path.read_bytes()
    whole = events(path)
    cut = tmp_path / path.name
    for size in range(PAGE, len(data) + 1):
        cut.write_bytes(data[:size])
        rows = (size - PAGE) // ROW
        assert len(events(cut)) == (whole["line"] <= rows).sum(), size


def test_a_file_cut_inside_its_header_holds_nothing(tmp_path: Path) -> None:
    path = record(tmp_path, STEPS)
    data = path.read_bytes()
    for size in (1, 7, 8, 20, 63, 64, 65, 200, PAGE - 1):
        path.write_bytes(data[:size])
        with pytest.raises(DsprofError, match="cut inside its header"):
            Recording(path)
        assert len(events(tmp_path)) == 0  # among others it is no fault of the run
    path.write_bytes(b"")
    assert len(events(tmp_path)) == 0


def test_a_follower_sees_each_row_once_whatever_pieces_a_file_grows_by(tmp_path: Path) -> None:
    path = record(tmp_path / "whole", STEPS)
    data, whole = path.read_bytes(), events(path)
    for piece in (1, 7, 63, 64, 65, 1000):
        growing = tmp_path / f"{piece}-{path.name}"
        growing.write_bytes(data[:PAGE])
        recording = Recording(growing)
        lines = list(frame(recording.follow())["line"])
        with growing.open("ab", buffering=0) as file:
            for at in range(PAGE, len(data), piece):
                file.write(data[at : at + piece])
                if at % 5 == 0:
                    lines += list(frame(recording.follow())["line"])
        lines += list(frame(recording.follow())["line"])
        assert lines == list(whole["line"])
        assert recording.ended
        recording.close()


def test_zeros_of_a_machine_that_lost_power_end_the_reading(tmp_path: Path) -> None:
    path = record(tmp_path, STEPS)
    data = path.read_bytes()
    whole = events(path)
    for rows in (0, 1, 17):
        size = PAGE + rows * ROW
        path.write_bytes(data[:size] + bytes(len(data) - size))
        assert len(events(path)) == (whole["line"] <= rows).sum()


def test_zeros_that_become_rows_are_read_then(tmp_path: Path) -> None:
    """A network file system may show the length before the bytes."""
    path = record(tmp_path, STEPS)
    data = path.read_bytes()
    whole = events(path)
    half = PAGE + 17 * ROW
    path.write_bytes(data[:half] + bytes(len(data) - half))
    recordings = Recordings([tmp_path])
    lines = list(follow(recordings)["line"])
    path.write_bytes(data)
    lines += list(follow(recordings)["line"])
    assert lines == list(whole["line"])


def test_a_long_text_that_is_cut_is_missing_and_comes_when_it_is_whole(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, header())
    writer.problem("exception", "x" * 1000)
    writer.close()
    path = writer.path
    data = path.read_bytes()
    path.write_bytes(data[: PAGE + 5 * ROW])
    recordings = Recordings([tmp_path])
    assert len(follow(recordings).query("kind == 'problem'")) == 0
    path.write_bytes(data)
    assert list(follow(recordings).query("kind == 'problem'")["text"]) == ["x" * 1000]


def test_garbage_rows_do_no_harm(tmp_path: Path) -> None:
    path = record(tmp_path, STEPS)
    data = bytearray(path.read_bytes())
    for place in range(PAGE, len(data), ROW):
        kind = data[place]
        data[place : place + ROW] = bytes([kind]) + bytes((place + i) % 256 for i in range(1, ROW))
    path.write_bytes(data)
    found = events(path)
    kinds = [data[place] for place in range(PAGE, len(data), ROW)]
    assert (found["line"] > 0).sum() == sum(
        RowKind.SPAN <= kind <= RowKind.CONFIG for kind in kinds
    )
