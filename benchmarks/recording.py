"""What a recording costs to write, how fast it is read, and how late a follower sees a step.

`python -m benchmarks.recording [--rows N] [--json]`. Writing is measured as CPU time of the
thread, both hot (one step after the other) and cold (32 MB are read in between, so that nothing is
left in the core's caches: the worst case of a real step). Reading is the best of three, per second
of CPU time.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from statistics import median, quantiles
from typing import Any

import numpy as np

from dsprof.recording import Recordings, Writer, read_folder
from dsprof.recording.bulk import read_bulk
from dsprof.run.table import frame_of, tidy

#: Spans and collectives of one optimizer step.
STEPS = {"ZeRO-1": (9, 4), "ZeRO-3": (30, 24)}
COLD = np.ones(32 << 20, np.uint8)  # larger than the caches that a core has to itself

PACED = """
import sys, time
from dsprof.recording import Writer
writer = Writer.create(sys.argv[1], {"rank": 0})
name = writer.name("forward")
for step in range(1, 10**9):
    time.sleep(0.005)
    end = time.perf_counter_ns()
    writer.span(name, end - 1000, end, step)
    writer.step(step, end - 1000, end)
    writer.flush()
"""


class Job:
    """Writes steps as a hook would."""

    def __init__(self, folder: str, spans: int, calls: int) -> None:
        self.writer = Writer.create(folder, {"rank": 0, "host": "bench", "world": 8})
        forward = self.writer.name("forward", 0, "compute")
        self.ids = forward, self.writer.name("all_gather", forward), self.writer.name("world")
        self.loss = self.writer.name("loss")
        self.spans, self.calls = spans, calls

    def step(self, number: int) -> None:
        writer, (phase, call, group) = self.writer, self.ids
        begin = time.perf_counter_ns()
        for _ in range(self.spans):
            writer.span(phase, begin, begin + 1000, number, 0)
        for _ in range(self.calls):
            writer.in_flight(call, number, begin)
            writer.collective(call, group, begin, begin, 500, number, 0, 1 << 20, 1, number)
            writer.in_flight(0)
        writer.metric(self.loss, 1.0, number, 0, 0, begin)
        writer.step(number, begin, begin + 2000)
        writer.flush()


def step_cost(folder: str, spans: int, calls: int, between: Callable[[], object]) -> float:
    """Seconds of CPU time that one step's recording takes, median of 300."""
    job = Job(folder, spans, calls)
    costs = []
    for number in range(1, 301):
        between()
        start = time.thread_time_ns()
        job.step(number)
        costs.append((time.thread_time_ns() - start) * 1e-9)
    job.writer.close()
    return median(costs)


def write_costs() -> dict[str, dict[str, float]]:
    found = {}
    for name, (spans, calls) in STEPS.items():
        rows = spans + calls + 2
        with tempfile.TemporaryDirectory() as folder:
            hot = step_cost(folder, spans, calls, lambda: None)
            cold = step_cost(folder, spans, calls, COLD.sum)
        found[name] = {
            "rows": rows,
            "hot_us_per_step": hot * 1e6,
            "cold_us_per_step": cold * 1e6,
            "hot_us_per_row": hot * 1e6 / rows,
            "cold_us_per_row": cold * 1e6 / rows,
        }
    return found


def read_rates(rows: int) -> dict[str, float]:
    """Millions of rows a CPU second: to the pyarrow table, on to the frame of a Run, and to the
    columns that a report is made of."""
    best = {"table": 0.0, "frame": 0.0, "columns": 0.0}
    with tempfile.TemporaryDirectory() as folder:
        job = Job(folder, 30, 18)
        for number in range(1, rows // 50 + 1):
            job.step(number)
        job.writer.close()
        for _ in range(3):
            start = time.process_time()
            table = read_folder(folder)
            read = time.process_time()
            tidy(frame_of(table))
            whole = time.process_time()
            best["table"] = max(best["table"], len(table) / (read - start) / 1e6)
            best["frame"] = max(best["frame"], len(table) / (whole - start) / 1e6)
            start = time.process_time()
            bulk = read_bulk([folder])
            columns = time.process_time() - start
            best["columns"] = max(best["columns"], bulk.rows / columns / 1e6)
    return best


def follow_latency(steps: int = 400, poll: float = 0.02) -> dict[str, float]:
    """Seconds from the end of a step in one process until another one has its row."""
    late: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        with subprocess.Popen([sys.executable, "-c", PACED, folder]) as process:
            recordings = Recordings([folder])
            while len(late) < steps:
                found = recordings.follow().to_pandas()
                now = time.time()
                ends = found.loc[found["name"] == "step_seconds", "at"]
                late += [now - at.timestamp() for at in ends.dt.tz_localize("UTC")]
                time.sleep(poll)
            process.kill()
        recordings.close()
    return {"poll": poll, "median": median(late), "p99": quantiles(late, n=100)[98]}


def measured(rows: int) -> dict[str, Any]:
    return {
        "machine": f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, "
        f"Python {platform.python_version()}",
        "write": write_costs(),
        "read": read_rates(rows),
        "follow": follow_latency(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks.recording")
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    found = measured(arguments.rows)
    if arguments.json:
        print(json.dumps(found, indent=1))
        return
    print(found["machine"])
    for name, cost in found["write"].items():
        print(
            f"write  {name}, {cost['rows']} rows a step: hot {cost['hot_us_per_step']:.0f} us "
            f"({cost['hot_us_per_row']:.2f} a row), cold {cost['cold_us_per_step']:.0f} us "
            f"({cost['cold_us_per_row']:.2f} a row)"
        )
    print(f"read   {found['read']['table']:.1f} M rows/CPU-s into pyarrow", end=", ")
    print(f"{found['read']['frame']:.1f} M rows/CPU-s into the frame of a Run", end=", ")
    print(f"{found['read']['columns']:.1f} M rows/CPU-s into columns, as for a report")
    print(f"follow median {found['follow']['median'] * 1e3:.0f} ms", end=", ")
    print(f"p99 {found['follow']['p99'] * 1e3:.0f} ms (polled every 20 ms)")


if __name__ == "__main__":
    main()
