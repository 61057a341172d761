"""What became of recorded processes, as their recordings and this machine tell."""

from __future__ import annotations

import os
import signal
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from dsprof.live.processes import deaths, look_at, process_of
from dsprof.recording import Recording, launches
from dsprof.recording.alive import pid_namespace
from dsprof.recording.layout import SINCE
from tests.live.jobs import Job


def test_a_process_that_had_stopped_writing_long_before_anybody_looked_does_not_run(
    tmp_path: Path,
) -> None:
    Job(tmp_path, 1).run(1)
    process = process_of(Recording(next(tmp_path.glob("*.dsprof"))))
    long_ago = datetime.now(UTC) - timedelta(minutes=10)
    process.grown = long_ago.timestamp() - 30  # a file system may tell late of what is mapped
    rows = {
        "line": [1], "at": [long_ago.replace(tzinfo=None)], "name": ["loss"], "kind": ["metric"],
    }  # fmt: skip
    process.took(pa.table(rows))
    process.look(time.time())
    assert (process.grown, process.state) == (long_ago.timestamp(), "silent")
    process.reached = True
    process.took(pa.table(rows))
    process.look(time.time())
    assert process.state == "running"


def test_a_process_that_only_samples_gpus_is_silent(tmp_path: Path) -> None:
    """A thread of it does, every two seconds, while training stands still."""
    job = Job(tmp_path, 1)
    job.run(1)
    writer = job.writers[0]
    later = time.perf_counter_ns() + 600 * 10**9
    writer.gpu(writer.name("power"), 300.0, 1, 0, writer.name("GPU-0"), later)
    writer.flush()
    process = process_of(Recording(next(tmp_path.glob("*.dsprof"))))
    rows = process.recording.follow()
    process.took(rows)
    process.read_up()
    process.look(time.time())
    assert process.state == "silent"
    grown = process.grown
    process.took(rows.filter(pc.equal(rows["kind"].cast(pa.string()), "gpu")))
    assert process.grown == grown


@pytest.mark.parametrize(("since", "state"), [(0.0, "ended"), (-3600.0, "silent")])
def test_a_command_that_ended_well_long_before_says_nothing_of_how_its_job_ends(
    tmp_path: Path, since: float, state: str
) -> None:
    """As one that only starts the job and returns: `sbatch`, or `&` in a script."""
    job = Job(tmp_path, 1, launch="one")
    job.run(1)
    (tmp_path / launches.FOLDER).mkdir()
    process = process_of(Recording(next(tmp_path.glob("*.dsprof"))))
    process.pid, now = 1 << 30, time.time()  # it is gone
    (tmp_path / launches.FOLDER / "one.ended").write_text(f"{int((now + since) * 1e9)} 0")
    process.look(now + 100)
    assert process.state == state


@pytest.mark.parametrize(
    ("ended_by", "told"), [(signal.SIGTERM, "killed-by-launcher"), (signal.SIGABRT, "signal")]
)
def test_a_process_that_was_asked_to_end_is_none_that_died(
    tmp_path: Path, ended_by: int, told: str
) -> None:
    """Of a job that was stopped while it hung, the rank that hung is told, not the first to go."""
    Job(tmp_path, 1).run(1)
    path = next(tmp_path.glob("*.dsprof"))
    process, now = process_of(Recording(path)), time.time()
    process.pid, process.reached = 1 << 30, True  # it is gone
    (tmp_path / launches.FOLDER).mkdir()
    launches.killed(path, int(now * 1e9), ended_by)
    look_at([process], now + 100)
    assert process.state == "died"
    assert deaths([process])["name"].to_pylist() == [told]


def test_who_was_asked_to_end_is_no_reason_for_what_killed_another_at_the_same_moment(
    tmp_path: Path,
) -> None:
    """A launcher ends the others so soon that no order is seen."""
    Job(tmp_path, 2).run(1)
    (tmp_path / launches.FOLDER).mkdir()
    ranks, now = (
        [process_of(Recording(path)) for path in sorted(tmp_path.glob("*.dsprof"))],
        time.time(),
    )
    for process, ended_by in zip(ranks, (signal.SIGTERM, signal.SIGKILL), strict=True):
        process.pid = 1 << 30  # it is gone
        launches.killed(Path(process.recording.path), int(now * 1e9), ended_by)
    look_at(ranks, now + 100)
    assert [process.victim for process in ranks] == [True, False]


def test_who_is_surely_gone_does_not_run_however_lately_it_wrote(tmp_path: Path) -> None:
    Job(tmp_path, 1, pid=1 << 22, pids=pid_namespace(), host=os.uname().nodename).run(1)
    process = process_of(Recording(next(tmp_path.glob("*.dsprof"))))
    process.look(process.grown + 2)
    assert process.state == "silent"


def test_a_death_is_told_of_whom_a_header_gives_a_rank_that_is_none(tmp_path: Path) -> None:
    Job(tmp_path, 1, rank=1 << 40).run(1)
    path = next(tmp_path.glob("*.dsprof"))
    process, now = process_of(Recording(path)), time.time()
    process.pid = 1 << 30  # it is gone
    (tmp_path / launches.FOLDER).mkdir()
    launches.killed(path, int(now * 1e9), signal.SIGTERM)
    look_at([process], now + 100)
    assert deaths([process])["rank"].to_pylist() == [None]


def test_a_process_that_stands_still_is_silent_and_the_line_is_told_that_it_stands_in(
    tmp_path: Path,
) -> None:
    job = Job(tmp_path, 1)
    job.run(1)
    writer, now = job.writers[0], time.perf_counter_ns()
    writer.ring.cell[2] = writer.name("data", 0, "data") | now & SINCE
    writer.flush()
    process = process_of(Recording(next(tmp_path.glob("*.dsprof"))))
    process.took(process.recording.follow())
    process.read_up()
    grown = process.grown
    writer.span(writer.name("forward", 0, "compute"), now - 10**9, now, 1)  # was held back
    writer.flush()
    writer.stand(now, 10.0, "read (lib/io.py) < load (./data.py:7)")
    writer.flush_beside()
    process.took(process.recording.follow())
    process.look(time.time() + 600)
    assert process.grown == pytest.approx(grown, abs=0.5)
    assert process.state == "silent"
    assert process.where == "data, load (data.py:7)"
    writer.ring.cell[2] = writer.name("forward", 0, "compute") | (now + 10**9) & SINCE
    writer.flush()
    process.took(process.recording.follow())
    process.look(time.time() + 600)
    assert process.where == "forward"
