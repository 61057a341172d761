"""Where a process stands whose file cannot be mapped: the cell in the file stays empty."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dsprof.recording import Recording, Writer, ring
from dsprof.recording.layout import OVER
from tests.recording.recorded import MS, header

BEGUN, CALLED = 4_000 * MS, 5_000 * MS


@pytest.fixture
def writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Writer]:
    monkeypatch.setattr(ring, "file_system", lambda _: "nfs4")
    writer = Writer.create(tmp_path, header())
    writer.span(writer.name("forward", 0, "compute"), 2_000 * MS, 3_000 * MS, 1)
    writer.flush()
    writer.ring.cell[2] = writer.name("backward", 0, "compute") | BEGUN & -(OVER << 1)
    writer.in_flight(writer.name("all_reduce"), 7, CALLED)
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
    writer.stand(CALLED + MS, 10.0, "wait (torch/work.py)")
    writer.flush()
    assert place(reader) == place(Recording(writer.path)) == ("backward", "all_reduce")
    phase, call = reader.phase(), reader.in_flight()
    assert phase is not None
    assert call is not None
    assert call["seq"] == 7
    assert (call["at"] - phase["at"]) / MS == pytest.approx((CALLED - BEGUN) / MS, abs=3)


def test_it_is_no_longer_known_once_training_goes_on(writer: Writer) -> None:
    reader = Recording(writer.path)
    writer.stand(CALLED + MS, 10.0, "wait (torch/work.py)")
    writer.gpu(writer.name("power"), 300.0, 1, 0, writer.name("GPU-0"), CALLED + 9 * MS)
    writer.flush()
    assert place(reader) == ("backward", "all_reduce")
    writer.span(writer.name("step", 0, "optimizer"), CALLED + 10 * MS, CALLED + 11 * MS, 1)
    writer.flush()
    assert place(reader) == place(Recording(writer.path)) == (None, None)


def test_of_a_process_that_has_ended_since_it_is_not_told(writer: Writer) -> None:
    writer.stand(CALLED + MS, 10.0, "save (./train.py:9)")
    writer.close()
    assert place(Recording(writer.path)) == (None, None)


def test_the_cell_in_the_file_counts_where_it_is_written(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, header())
    writer.in_flight(writer.name("all_reduce"), 7, CALLED)
    writer.stand(CALLED + MS, 10.0, "wait (torch/work.py)")
    writer.in_flight(writer.name("broadcast"), 8, CALLED + 2 * MS)
    writer.flush()
    assert place(Recording(writer.path))[1] == "broadcast"
    writer.close()
