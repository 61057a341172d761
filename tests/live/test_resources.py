"""Memory and GPUs on the screen: how full, how long it lasts, what holds a clock down."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dsprof.live import panes, text
from dsprof.live.grid import Row
from dsprof.live.picture import Picture
from dsprof.live.resources import gpus_of, memory_of
from dsprof.live.watch import Watch
from dsprof.recording.layout import Unit
from tests.findings.plants import run_of
from tests.live.jobs import Job
from tests.live.screens import picture

GIB = 1 << 30


def watched(folder: Path, *, growth: int = 0, gpus: bool = True) -> Picture:
    """Two ranks with a GPU of 80 GiB each; rank 1 grows so many bytes a step of 100 ms."""
    job = Job(folder, 2)
    for rank, writer in enumerate(job.writers):
        writer.config("gpu", f"GPU-{rank}")
        writer.config("gpu_memory_bytes", 80.0 * GIB)
    for step in range(1, 31):
        job.run(1)
        for rank, writer in enumerate(job.writers):
            held = (20 + 10 * rank) * GIB + rank * growth * step
            writer.memory(writer.name("allocated"), held, step)
            writer.memory(writer.name("reserved"), held + GIB, step)
            if gpus and rank == 0:  # one rank of a node samples all of its GPUs
                _sample(writer, step)
            writer.flush()
    return Watch([str(folder)]).refresh(10)


def _sample(writer: object, step: int) -> None:
    for rank in range(2):
        uuid = writer.name(f"GPU-{rank}")  # type: ignore[attr-defined]
        for name, value, unit in (
            ("utilization", 95.0, Unit.VALUE),
            ("power", 650.0 + rank, Unit.VALUE),
            ("clock_sm", 1980.0, Unit.VALUE),
            ("memory_used", (40.0 + rank) * GIB, Unit.BYTES),
            ("throttled_power", float(rank), Unit.VALUE),
            ("throttled_thermal", 0.0, Unit.VALUE),
        ):
            writer.gpu(writer.name(name), value, step, int(unit), uuid)  # type: ignore[attr-defined]


def cells(picture: Picture) -> dict[object, dict[str, str]]:
    columns, rows = panes.memory(picture)

    def named(row: Row) -> dict[str, str]:
        return {c.title: cell.text for c, cell in zip(columns, row.cells, strict=True)}

    return {row.key: named(row) for row in rows}


def test_each_gpu_is_shown_beside_the_rank_that_uses_it(tmp_path: Path) -> None:
    shown = cells(watched(tmp_path))
    assert list(shown) == [1, 0]  # the fullest first
    assert shown[1]["device"] == "41.0 GiB"
    assert (shown[0]["power"], shown[1]["power"]) == ("650 W", "651 W")
    assert shown[0]["clock"] == "1,980 MHz"
    assert (shown[0]["throttled by"], shown[1]["throttled by"]) == ("", "power limit")


def test_gpus_that_no_rank_uses_are_not_shown_as_one() -> None:
    row = {"kind": "gpu", "step": 1}
    told = ((0, "GPU-a", 90.0), (None, "GPU-b", 1.0), (None, "GPU-c", 2.0))
    rows = [row | {"name": "power", "rank": r, "text": gpu, "value": w} for r, gpu, w in told]
    gpus = gpus_of(run_of(rows))
    assert sorted((gpu.rank is None, gpu.values["power"]) for gpu in gpus) == [
        (False, 90.0),
        (True, 1.0),
        (True, 2.0),
    ]
    lent = [{"kind": "memory", "name": "allocated", "step": 1, "bytes": GIB}]
    seen = replace(picture(), memory=tuple(memory_of(run_of(lent), ())), gpus=tuple(gpus))
    assert len(cells(seen)) == 4  # beside memory of a rank that is not told


def test_no_more_is_shown_as_allocated_than_as_reserved() -> None:
    told = (("reserved", 1, 2.0 * GIB), ("allocated", 9, 3.0 * GIB))
    rows = [{"kind": "memory", "name": name, "step": at, "bytes": held} for name, at, held in told]
    (row,) = memory_of(run_of(rows), ())
    assert (row.allocated, row.reserved) == (3 * GIB, None)


def test_a_rank_that_only_tells_of_flushes_of_its_cache_has_no_row() -> None:
    told = {"kind": "memory", "name": "cache_flushes", "step": 1, "count": 3.0}
    assert memory_of(run_of([told]), ()) == []


def test_what_all_of_a_host_use_is_not_told_as_memory_of_a_process() -> None:
    told = (("allocated", 2.0 * GIB), ("host_used", 300.0 * GIB))
    rows = [{"kind": "memory", "name": name, "step": 1, "bytes": held} for name, held in told]
    seen = replace(picture(), memory=tuple(memory_of(run_of(rows), ())))
    assert seen.memory[0].process is None
    assert "  rank ?: allocated 2.00 GiB, in use on its host 300 GiB" in list(text.lines(seen))
    ((_, shown),) = cells(seen).items()
    assert (shown["allocated"], shown["host used"]) == ("2.00 GiB", "300 GiB")
    assert "process" not in shown


def test_memory_that_grows_is_said_to_be_full_at_the_pace_of_now(tmp_path: Path) -> None:
    picture = watched(tmp_path, growth=GIB // 10, gpus=False)
    (row, other) = picture.memory
    assert row.per_step == pytest.approx(GIB / 10)
    assert row.full == pytest.approx(46.0 / 0.1 * 0.1, rel=0.01)  # 34 GiB of 80 are reserved
    assert (other.per_step, other.full) == (0, None)
    assert panes.safe(picture) == "rank 1 is full in 46.0 s if it grows on as now"


def test_a_gpu_does_not_fill_as_the_memory_of_its_process_grows(tmp_path: Path) -> None:
    """As with an allocator that is not PyTorch's: what it holds is unknown."""
    job = Job(tmp_path, 1)
    (writer,) = job.writers
    writer.config("gpu", "GPU-0")
    writer.config("gpu_memory_bytes", 80.0 * GIB)
    for step in range(1, 31):
        job.run(1)
        writer.memory(writer.name("host_process"), step * GIB, step)
        _sample(writer, step)
        writer.flush()
    (row,) = Watch([str(tmp_path)]).refresh(10).memory
    assert row.per_step == pytest.approx(GIB)
    assert row.full is None


def test_memory_that_lasts_tells_of_the_fullest_rank(tmp_path: Path) -> None:
    assert panes.safe(watched(tmp_path)) == "rank 1 is fullest: 51 % of 80.0 GiB"


def test_without_a_limit_nothing_is_said_to_be_safe(tmp_path: Path) -> None:
    job = Job(tmp_path, 1)
    job.writers[0].memory(job.writers[0].name("allocated"), 5.0, 1)
    job.run(3)
    assert panes.safe(Watch([str(tmp_path)]).refresh(10)) == "the size of a GPU's memory is unknown"


def test_a_job_without_a_gpu_is_told_nothing_of_the_size_of_one(tmp_path: Path) -> None:
    job = Job(tmp_path, 1)
    job.writers[0].memory(job.writers[0].name("host_process"), 5.0, 1)
    job.run(3)
    picture = Watch([str(tmp_path)]).refresh(10)
    assert [row.process for row in picture.memory] == [5.0]
    assert not panes.safe(picture)
