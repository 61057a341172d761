"""Where a process stands whose file cannot be mapped: the cell in the file stays empty."""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dsprof.errors import DsprofError
from dsprof.recording import Recording, Writer, launches, read, ring
from dsprof.recording.layout import OVER, STANDING
from tests.recording.recorded import MS, header


def ago(seconds: float) -> int:
    return time.perf_counter_ns() - int(seconds * 1000) * MS


@pytest.fixture
def writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Writer]:
    monkeypatch.setattr(ring, "file_system", lambda _: "nfs4")
    writer = Writer.create(tmp_path, header(host=socket.gethostname()))
    writer.span(writer.name("forward", 0, "compute"), ago(18), ago(17), 1)
    writer.flush()
    writer.ring.cell[2] = writer.name("backward", 0, "compute") | ago(16) & -(OVER << 1)
    writer.in_flight(writer.name("all_reduce"), 7, ago(15))
    yield writer
    writer.close()


def place(reader: Recording) -> tuple[Any, Any]:
    reader.follow()
    known = reader.facts
    phase, call = known["phase"] or {}, known["in_flight"] or {}
    return phase.get("name"), call.get("name")


def test_it_is_known_from_the_row_that_tells_what_it_stands_in(writer: Writer) -> None:
    reader = Recording(writer.path)
    assert place(reader) == (None, None)
    writer.stand(ago(14), 10.0, "wait (torch/work.py)")
    writer.flush()
    assert place(reader) == place(Recording(writer.path)) == ("backward", "all_reduce")
    phase, call = reader.phase(), reader.in_flight()
    assert phase is not None
    assert call is not None
    assert call["seq"] == 7
    assert (call["at"] - phase["at"]) / MS == pytest.approx(1000, abs=100)


def test_it_is_no_longer_known_once_training_goes_on(writer: Writer) -> None:
    reader = Recording(writer.path)
    writer.stand(ago(14), 10.0, "wait (torch/work.py)")
    writer.gpu(writer.name("power"), 300.0, 1, 0, writer.name("GPU-0"), ago(5))
    writer.flush()
    assert place(reader) == ("backward", "all_reduce")
    writer.span(writer.name("step", 0, "optimizer"), ago(4), ago(3), 1)
    writer.flush()
    assert place(reader) == place(Recording(writer.path)) == (None, None)


def test_of_a_process_that_has_ended_since_it_is_not_told(writer: Writer) -> None:
    writer.stand(ago(14), 10.0, "save (./train.py:9)")
    writer.close()
    assert place(Recording(writer.path)) == (None, None)


def stands_in(file: Path) -> str:
    reader = Recording(file)
    reader.follow()
    assert reader.facts["stands"] == bool(reader.stands_in())
    return reader.stands_in()


@pytest.mark.parametrize("maps", [True, False])
def test_what_it_stands_in_is_told_while_it_stands_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, maps: bool
) -> None:
    """Not once it is elsewhere: out of a collective, in the phase around that."""
    if not maps:
        monkeypatch.setattr(ring, "file_system", lambda _: "nfs4")
    writer = Writer.create(tmp_path, header())
    writer.in_flight(writer.name("all_reduce"), 7, ago(15))
    writer.stand(time.perf_counter_ns() - 10_000 * MS, 10.0, "wait (torch/work.py)")
    writer.flush_beside()
    assert stands_in(writer.path) == "wait (torch/work.py)"
    writer.in_flight(0)
    if not maps:
        writer.stand(time.perf_counter_ns(), 0.0, "")
    writer.flush_beside()
    assert stands_in(writer.path) == ""
    assert place(Recording(writer.path))[1] is None
    writer.close()


@pytest.mark.parametrize(
    ("lasted", "ago", "is_known"),
    [(10, 5, True), (10, 30, False), (300, 60, True), (300, 90, False)],
)
def test_what_it_has_not_told_again_in_time_no_longer_holds(
    writer: Writer, lasted: int, ago: int, *, is_known: bool
) -> None:
    """It may stand in code by now that keeps Python's lock, so that nobody can look."""
    writer.stand(time.perf_counter_ns() - (lasted + ago) * 1000 * MS, lasted, "f (./a.py:1)")
    writer.flush_beside()
    assert bool(stands_in(writer.path)) == is_known
    assert (place(Recording(writer.path))[1] is not None) == is_known


def test_it_holds_until_its_process_ended_however_long_ago_that_was(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = time.perf_counter_ns() - 500_000 * MS
    writer.stand(begun, 10.0, "f (./a.py:1)")
    writer.flush_beside()
    assert stands_in(writer.path) == ""
    ends = time.time_ns() - 485_000 * MS
    monkeypatch.setattr(read, "killed_at", lambda _: launches.Gone(ends, 9))
    assert stands_in(writer.path) == "f (./a.py:1)"


def test_where_a_process_stands_is_told_without_a_row_of_training(writer: Writer) -> None:
    """These wait for training's own thread: where they cannot be written, that is told there."""
    writer.span(writer.name("step", 0, "optimizer"), ago(2), ago(1), 1)
    writer.stand(ago(15), 10.0, "f (./a.py:1)")
    writer.flush_beside()
    names = [row["name"] for row in Recording(writer.path).follow().to_pylist()]
    assert STANDING in names
    assert "step" not in names
    writer.flush()
    assert "step" in [row["name"] for row in Recording(writer.path).follow().to_pylist()]


def test_a_full_disk_that_another_thread_meets_leaves_room_for_last_words(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> Any:
        return 0, OSError(errno.ENOSPC, "No space left on device")

    spare = writer.ring.spare
    with monkeypatch.context() as here:
        here.setattr(ring, "_put", full)
        writer.stand(ago(15), 10.0, "f (./a.py:1)")
        with pytest.raises(DsprofError, match="No space left"):
            writer.flush_beside()
    assert (writer.ring.spare, writer.ring.failed) == (spare, False)
    writer.problem("recording-stopped", "full")
    writer.flush()
    rows = Recording(writer.path).follow().to_pylist()
    assert [row["text"] for row in rows if row["name"] == "recording-stopped"] == ["full"]


def test_the_last_of_a_disk_is_left_to_training(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert writer.ring.has_room()
    disk = SimpleNamespace(f_bavail=ring.ENOUGH // 4096, f_frsize=4096)
    monkeypatch.setattr("os.statvfs", lambda _: disk)
    assert not writer.ring.has_room()


def test_the_cell_in_the_file_counts_where_it_is_written(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, header())
    assert writer.ring.keeps_cell
    writer.in_flight(writer.name("all_reduce"), 7, ago(15))
    writer.stand(ago(14), 10.0, "wait (torch/work.py)")
    writer.in_flight(writer.name("broadcast"), 8, ago(12))
    writer.flush()
    assert place(Recording(writer.path))[1] == "broadcast"
    writer.close()


def test_times_that_no_clock_has_are_no_place(writer: Writer) -> None:
    for at in (2**63 - 1, -(2**63)):
        writer.stand(at, 10.0, "f (./a.py:1)")
    writer.flush_beside()
    assert stands_in(writer.path) == ""
