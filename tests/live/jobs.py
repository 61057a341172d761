"""Jobs that tests watch: real recordings written step by step, by this process or another."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from dsprof.recording import Writer

ROOT = Path(__file__).parents[2]
MS = 1_000_000


class Job:
    """Ranks whose steps take `step` ms: forward and backward, then an all-reduce.

    Who is `slow` is that many ms late in its forward, or before it if that is not `timed`; the
    others wait for it.
    """

    def __init__(
        self, folder: Path, world: int, *, keep_bytes: int = 256 << 20, **header: Any
    ) -> None:
        self.step = 0
        self.writers = [
            Writer.create(
                folder,
                {"rank": rank, "world": world, "host": f"node-{rank // 8}"} | header,
                keep_bytes=keep_bytes,
            )
            for rank in range(world)
        ]
        self._at = time.perf_counter_ns()

    def run(
        self, steps: int, slow: dict[int, int] | None = None, ms: int = 100, *, timed: bool = True
    ) -> None:
        late = max((slow or {}).values(), default=0)
        for _ in range(steps):
            self.step += 1
            for rank, writer in enumerate(self.writers):
                own = (slow or {}).get(rank, 0)
                write_step(writer, self.step, self._at, ms, own=own, late=late, timed=timed)
            self._at += (ms + late) * MS

    def close(self) -> None:
        for writer in self.writers:
            writer.close()


def write_step(
    writer: Writer,
    step: int,
    at: int,
    ms: int,
    own: int = 0,
    late: int = 0,
    *,
    timed: bool = True,
) -> None:
    """One step of `ms` + `late` ms: 40 % forward, 40 % backward, the rest waiting and reducing.

    `own` more ms are of its forward, or of nothing that is timed.
    """
    forward = writer.name("forward", 0, "compute")
    backward = writer.name("backward", 0, "compute")
    reduce = writer.name("all_reduce", backward)
    middle = at + (4 * ms // 10 + own) * MS
    end = at + (ms + late) * MS
    blocked = end - middle - 4 * ms // 10 * MS
    writer.span(forward, at if timed else at + own * MS, middle, step)
    writer.span(backward, middle, end, step)
    writer.collective(
        reduce,
        writer.name("world"),
        end - blocked,
        end - blocked,
        blocked,
        step,
        -1,
        4 << 20,
        1,
        step,
    )
    writer.metric(writer.name("loss"), 1 / step, step)
    seconds = ((end - at - blocked) * 1e-9, blocked * 1e-9, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    writer.step(step, at, end, seconds, 1)
    writer.flush()


_ALONE = """
import socket, sys, time
from pathlib import Path
from dsprof.recording import Writer
from tests.live.jobs import write_step
folder, rank, world = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
writer = Writer.create(folder, {"rank": rank, "world": world, "host": socket.gethostname()})
step = 0
while True:
    step += 1
    write_step(writer, step, time.perf_counter_ns(), 50)
    time.sleep(0.05)
"""


def alone(folder: Path, rank: int, world: int) -> subprocess.Popen[bytes]:
    """A process that records one rank until it is killed."""
    return subprocess.Popen(
        [sys.executable, "-c", _ALONE, str(folder), str(rank), str(world)], cwd=ROOT
    )
