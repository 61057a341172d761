"""Hosts whose clocks were set apart by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dsprof.recording import Writer, writer
from dsprof.recording.bulk import read_bulk
from dsprof.recording.table import Array
from tests.recording.recorded import MS, header

STEPS = 40
HOUR = 3_600_000 * MS


def record(
    folder: Path,
    rank: int,
    host: str,
    monkeypatch: pytest.MonkeyPatch,
    ahead: int,
    steps: int = STEPS,
    **more: int,
) -> None:
    """Steps of 100 ms that end within 2 ms of the other ranks', by a clock that is `ahead` ns."""
    late = np.random.default_rng(rank).integers(-MS, MS, steps + 1)
    begins = np.arange(steps + 1) * 100 * MS
    write(folder, rank, host, monkeypatch, ahead, begins, begins + 100 * MS + late, **more)


def write(
    folder: Path,
    rank: int,
    host: str,
    monkeypatch: pytest.MonkeyPatch,
    ahead: int,
    begins: Array,
    ends: Array,
    **more: int,
) -> None:
    """Steps that begin and end then, from step 1 on, by a clock that is `ahead` ns."""
    monkeypatch.setattr(writer, "clocks", lambda: (0, 10**18 + ahead, 1))
    made = Writer.create(folder, header(rank, host=host, **more))
    for step in range(1, len(begins)):
        made.step(step, int(begins[step]), int(ends[step]))
    made.close()


def told(folder: Path) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = read_bulk([folder]).facts["clocks"]
    return found


def test_clocks_are_as_far_apart_as_the_ends_of_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = {"worker-1": 0, "worker-2": 350 * MS, "worker-3": -7_000 * MS}
    for rank in range(6):
        host = f"worker-{rank // 2 + 1}"
        record(tmp_path, rank, host, monkeypatch, planted[host])
    found = told(tmp_path)
    assert list(found) == ["worker-1", "worker-2", "worker-3"]
    assert found.pop("worker-1") == {"ahead": 0.0, "error": 0.0}
    for host, one in found.items():
        assert one["ahead"] == pytest.approx(planted[host] * 1e-9, abs=0.001)
        assert 0 < one["error"] < 0.003


def test_of_one_host_or_of_a_few_steps_nothing_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(tmp_path / "one", 0, "worker-1", monkeypatch, 0)
    record(tmp_path / "one", 1, "worker-1", monkeypatch, 50 * MS)
    assert told(tmp_path / "one") == {}
    for steps in (9, 10):
        record(tmp_path / str(steps), 0, "worker-1", monkeypatch, 0)
        record(tmp_path / str(steps), 1, "worker-2", monkeypatch, 50 * MS, steps)
    assert told(tmp_path / "9") == {}
    assert told(tmp_path / "10")["worker-2"]["ahead"] == pytest.approx(0.05, abs=0.002)


def test_hosts_end_steps_at_once_and_need_not_begin_them_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begins = np.arange(STEPS + 1) * 100 * MS
    ends = begins + 100 * MS
    write(tmp_path, 0, "worker-1", monkeypatch, 0, begins, ends)
    write(tmp_path, 1, "worker-2", monkeypatch, 0, begins + 40 * MS, ends)
    assert told(tmp_path)["worker-2"] == {"ahead": 0.0, "error": 0.0}


def test_the_error_is_half_of_what_nine_in_ten_steps_scatter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begins = np.arange(STEPS + 1) * 100 * MS
    ends = begins + 100 * MS
    write(tmp_path, 0, "worker-1", monkeypatch, 0, begins, ends)
    late = np.arange(STEPS + 1) % 2 * 4 * MS
    write(tmp_path, 1, "worker-2", monkeypatch, 0, begins, ends + late)
    about = pytest.approx(0.002, abs=1e-6)
    assert told(tmp_path)["worker-2"] == {"ahead": about, "error": about}


def test_the_last_launch_of_several_hosts_tells_how_far_their_clocks_are_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for restart, apart in enumerate((900, 50, 0)):
        later = restart * 3_600_000
        record(tmp_path, 0, "worker-1", monkeypatch, later * MS, restart=restart)
        if apart:
            ahead = (later + apart) * MS
            record(tmp_path, 1, "worker-2", monkeypatch, ahead, restart=restart)
    assert told(tmp_path)["worker-2"]["ahead"] == pytest.approx(0.05, abs=0.002)


def test_a_host_that_ended_no_step_of_the_others_is_not_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(tmp_path, 0, "worker-1", monkeypatch, 0)
    made = Writer.create(tmp_path, header(1, host="worker-2"))
    made.close()
    assert told(tmp_path) == {}


def recorded_with_a_set_clock(folder: Path, rank: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of 100 ms; the wall clock is an hour ahead when the recording ends."""
    readings = iter([(100 * MS, 10**18, 1), (5_000 * MS, 10**18 + 4_900 * MS + HOUR, 1)])
    monkeypatch.setattr(writer, "clocks", lambda: next(readings))
    made = Writer.create(folder, header(rank, host=f"worker-{rank + 1}"))
    for step in range(1, STEPS + 1):
        made.step(step, step * 100 * MS, (step + 1) * 100 * MS)
    made.close()


def test_a_clock_that_was_set_stretches_no_step_and_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(tmp_path, 0, "worker-1", monkeypatch, 0)
    recorded_with_a_set_clock(tmp_path, 1, monkeypatch)
    bulk = read_bulk([tmp_path])
    assert bulk.facts["clocks"] == {
        "worker-1": {"ahead": 0.0, "error": 0.0},
        "worker-2": {"set": pytest.approx(3600)},
    }
    late = bulk.processes[1]
    ends = late.recording.clock.utc(late.steps["begin"] + late.steps["duration"])
    assert set(np.diff(ends)) == {100 * MS}
    assert late.recording.clock.last == 10**18 + 4_900 * MS + HOUR
