"""What a fresh process costs in CPU and wall seconds, and what it prints."""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True)
class Cost:
    """Seconds of one run, its children included, and its standard output."""

    cpu: float
    wall: float
    out: str = ""

    def rate(self, size: int) -> float:
        """Megabytes (1e6) per second of CPU time."""
        return size / 1e6 / self.cpu


def cpu_seconds(*whose: int) -> float:
    """User and system time of this process (RUSAGE_SELF) or its ended children, or both."""
    return sum(used.ru_utime + used.ru_stime for used in map(resource.getrusage, whose))


def run(command: Sequence[str | bytes | Path], ok: Sequence[int] = (0,)) -> Cost:
    """Runs the command to its end; `ok` lists the exit codes that are no failure."""
    start, before = time.perf_counter(), cpu_seconds(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, cwd=ROOT, check=False)
    wall = time.perf_counter() - start
    cpu = cpu_seconds(resource.RUSAGE_CHILDREN) - before
    if done.returncode not in ok:
        raise RuntimeError(f"{command!r} failed:\n{done.stderr.decode(errors='replace')[-2000:]}")
    return Cost(cpu, wall, done.stdout.decode(errors="replace"))


def reading(*arguments: str | Path) -> dict[str, Any]:
    """What a fresh `benchmarks.reading` process says about reading those files."""
    command = [sys.executable, "-m", "benchmarks.reading", *map(str, arguments)]
    return dict(json.loads(run(command).out))


def ripgrep(log: Path, needles: Sequence[bytes]) -> Cost:
    """`rg -c -F -j1`: counting the lines that hold any of the needles, one thread."""
    literals = [part for needle in needles for part in (b"-e", needle)]
    beside = Path(sys.executable).with_name("rg")
    program = beside if beside.exists() else Path("rg")
    flags = ("-c", "-F", "-j1", "--no-config", "-a")
    return run([program, *flags, *literals, "--", log], ok=(0, 1))


def line_count(log: Path) -> Cost:
    return run(["wc", "-l", log])


def at_once(*contenders: Callable[[], Any]) -> list[Any]:
    """Each contender's result, all of them at work at the same time."""
    with ThreadPoolExecutor(len(contenders)) as pool:
        return [job.result() for job in [pool.submit(contender) for contender in contenders]]


def interleaved(rounds: int, *contenders: Callable[[], Any]) -> list[list[Any]]:
    """Each contender's results, taking turns so that all meet the same noise."""
    turns = [[contender() for contender in contenders] for _ in range(rounds)]
    return [list(results) for results in zip(*turns, strict=True)]


def median_ratio(above: Sequence[float], below: Sequence[float]) -> float:
    """The median of the ratios within each round."""
    return statistics.median(a / b for a, b in zip(above, below, strict=True))
