"""What became of recorded processes, as their recordings and this machine tell."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa

from dsprof.live.processes import process_of
from dsprof.recording import Recording
from tests.live.jobs import Job


def test_a_process_that_had_stopped_writing_long_before_anybody_looked_does_not_run(
    tmp_path: Path,
) -> None:
    Job(tmp_path, 1).run(1)
    process = process_of(Recording(next(tmp_path.glob("*.dsprof"))))
    long_ago = datetime.now(UTC) - timedelta(minutes=10)
    process.grown = long_ago.timestamp() - 30  # a file system may tell late of what is mapped
    rows = {"line": [1], "at": [long_ago.replace(tzinfo=None)], "name": ["loss"]}
    process.took(pa.table(rows))
    process.look(time.time())
    assert (process.grown, process.state) == (long_ago.timestamp(), "silent")
    process.reached = True
    process.took(pa.table(rows))
    process.look(time.time())
    assert process.state == "running"
