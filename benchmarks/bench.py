"""Measure how fast and how exactly logs are read: `python -m benchmarks.bench [--quick]`.

The machine is noisy: every figure is CPU time where possible, and every ratio is measured within
one round, in which the contenders take turns, each in a fresh process.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import cost, engine, exact
from benchmarks.data import Logs
from benchmarks.dialects import DIALECTS

SHARES = (0.02, 0.2, 0.8)
#: Numbers that must not be; `unplaced` ones are right but at a wrong step.
VALUES = ("missing", "wrong", "invented")
#: Share of metric lines → times slower than ripgrep: the bar, the aim.
SLOWER = {0.02: (3.0, 2.5), 0.2: (15.0, 11.0), 0.8: (35.0, 25.0)}
#: Wall time of one process, of that of two, on two processors of one's own.
SAVED = 1.8


@dataclass(frozen=True)
class Result:
    """One line of the table; a result without `ok` is told, not judged."""

    what: str
    measured: str
    bar: str = ""
    ok: bool | None = None

    def __str__(self) -> str:
        verdict = {True: "ok", False: "MISS", None: ""}[self.ok]
        return f"{self.what:<54} {self.measured:>26}   {self.bar:<28} {verdict}"


def speed(logs: Logs, share: float, rounds: int) -> Iterator[Result]:
    """CPU time of reading one log, beside `rg -c` with the same needles and `wc -l`."""
    log, title = logs.share(share), f"{share:.0%} metric lines"
    literals, size = engine.needles(), log.stat().st_size
    read, grep, count = cost.interleaved(
        rounds,
        lambda: cost.reading(log),
        lambda: cost.ripgrep(log, literals).cpu,
        lambda: cost.line_count(log).cpu,
    )
    cpu = [one["cpu"] for one in read]
    slower, bar = cost.median_ratio(cpu, grep), SLOWER[share]
    yield Result(f"{title}: read", f"{size / 1e6 / statistics.median(cpu):.0f} MB/s of CPU time")
    yield Result(
        f"{title}: times slower than rg -c",
        f"{slower:.1f}",
        f"<= {bar[0]:g} (aim {bar[1]:g})",
        slower <= bar[0],
    )
    yield Result(f"{title}: times slower than wc -l", f"{cost.median_ratio(cpu, count):.0f}")
    yield memory(title, read)


def memory(title: str, read: list[dict[str, Any]]) -> Result:
    """Peak memory beyond what the events themselves and the imports take."""
    beyond = statistics.median(one["peak"] - one["imports"] - one["frame"] for one in read) / 1e6
    frame = read[0]["frame"] / 1e6
    return Result(
        f"{title}: memory beyond the frames",
        f"{beyond:.0f} MB (frames {frame:.0f} MB)",
        "<= 250 MB",
        beyond <= 250,
    )


def exactness(log: Path, title: str, judged: tuple[str, ...] = VALUES) -> Iterator[Result]:
    """Every record of the truth found with its numbers, and no other; faults to stderr."""
    faults = vars(exact.compare(truth_of(log), cost.reading(log, "--found")["found"]))
    for name in judged:
        for fault in faults[name][:5]:
            print(f"  {title}: {name} {fault.count}: {fault.text}", file=sys.stderr)
    counts = [sum(fault.count for fault in faults[name]) for name in judged]
    right, zeros = not any(counts), "/".join("0" * len(counts))
    yield Result(f"{title}: {'/'.join(judged)}", "/".join(map(str, counts)), zeros, right)


def steps_told(logs: Logs) -> Iterator[Result]:
    """Each dialect alone: its numbers, and the steps they belong to."""
    for dialect in DIALECTS:
        yield from exactness(logs.dialect(dialect), dialect, (*VALUES, "unplaced"))


def truth_of(log: Path) -> dict[str, Any]:
    return dict(json.loads(log.with_name(log.name + ".truth.json").read_text()))


def two_processes(logs: Logs, rounds: int) -> Iterator[Result]:
    """Wall time of one process against two, at 20 % metric lines.

    Beside it what the machine allows: two readers that share nothing, at the same time, against
    one alone. Where these save less than 2, as on a machine whose two processors are not wholly its
    own, the bar is as much lower. And what the busier one of the two processes has to do: the wall
    time that two processors of one's own would leave.
    """
    log = logs.share(0.2)
    one, two, apart = cost.interleaved(
        rounds,
        lambda: cost.reading(log),
        lambda: cost.reading(log, "--processes", "2"),
        lambda: cost.at_once(lambda: cost.reading(log), lambda: cost.reading(log)),
    )
    alone = [read["wall"] for read in one]
    most = cost.median_ratio(alone, [max(r["wall"] for r in both) / 2 for both in apart])
    yield Result("two readers that share nothing: what two can save", f"{most:.2f} x")
    busier = [max(read["own"], read["cpu"] - read["own"]) for read in two]
    share = cost.median_ratio([read["cpu"] for read in one], busier)
    yield Result("two processes: CPU time of the busier one saved", f"{share:.2f} x")
    gain = cost.median_ratio(alone, [read["wall"] for read in two])
    bar = SAVED * min(1, most / 2)
    yield Result("two processes: wall time saved", f"{gain:.2f} x", f">= {bar:.2f} x", gain >= bar)


def compressed(logs: Logs, rounds: int) -> Iterator[Result]:
    """CPU time of the plain log against its gzipped copy."""
    plain = logs.share(0.2)
    packed = logs.packed(plain, "gz")
    flat, gz = cost.interleaved(
        rounds, lambda: cost.reading(plain)["cpu"], lambda: cost.reading(packed)["cpu"]
    )
    share = cost.median_ratio(flat, gz)
    yield Result("gz: rate, of the plain log's", f"{share:.2f}", ">= 0.8", share >= 0.8)


def without_line_breaks(logs: Logs, rounds: int) -> Iterator[Result]:
    """A progress bar's output (only carriage returns) and a log that lost all its breaks."""
    log = logs.bars()
    cpu = statistics.median(cost.reading(log)["cpu"] for _ in range(rounds))
    rate = log.stat().st_size / 1e6 / cpu
    yield Result("no line break (tqdm): read", f"{rate:.0f} MB/s", "> 500 MB/s", rate > 500)
    yield from exactness(log, "no line break (tqdm)")
    log = logs.one_line()
    read = cost.reading(log)
    rate = log.stat().st_size / 1e6 / read["cpu"]
    yield Result("one line of 100 MB: read", f"{rate:.0f} MB/s")
    yield memory("one line of 100 MB", [read])
    yield from exactness(log, "one line of 100 MB")


def same_frames(logs: Logs) -> Iterator[Result]:
    """Plain, gz, zst, byte ranges and a growing file give one and the same table."""
    log = logs.small()
    packed = [logs.packed(log, form) for form in ("gz", "zst")]
    for way, difference in cost.reading(log, "--same-as", *packed).items():
        yield Result(f"same events: {way}", difference or "identical", "identical", not difference)


def many_steps(logs: Logs) -> Iterator[Result]:
    """100,000 logged steps from the file to the findings, a whole process."""
    log = logs.steps()
    done = cost.run([sys.executable, "-m", "dsprof", "report", log])
    size = log.stat().st_size / 1e6
    yield Result(
        f"100,000 steps ({size:.0f} MB): report",
        f"{done.cpu:.1f} s of CPU, {done.wall:.1f} s",
        "< 10 s",
        done.cpu < 10,
    )


def speeds(logs: Logs, rounds: int) -> Iterator[Result]:
    for share in SHARES:
        yield from speed(logs, share, rounds)


def values(logs: Logs) -> Iterator[Result]:
    for share in SHARES:
        yield from exactness(logs.share(share), f"{share:.0%} metric lines")


def measurements(logs: Logs, rounds: int) -> dict[str, Callable[[], Iterator[Result]]]:
    return {
        "speed": lambda: speeds(logs, rounds),
        "values": lambda: values(logs),
        "steps": lambda: steps_told(logs),
        "processes": lambda: two_processes(logs, rounds),
        "gz": lambda: compressed(logs, rounds),
        "breaks": lambda: without_line_breaks(logs, rounds),
        "same": lambda: same_frames(logs),
        "report": lambda: many_steps(logs),
    }


def main() -> int:
    known = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks.bench")
    known.add_argument("--quick", action="store_true", help="64 MiB logs instead of 1 GiB")
    known.add_argument("--rounds", type=int, default=3)
    known.add_argument("--data", type=Path, default=Path(__file__).parent / "data")
    known.add_argument("--only", default="", help="comma-separated: speed, values, steps, ...")
    args = known.parse_args()
    every = measurements(Logs(args.data, quick=args.quick), args.rounds)
    missed = 0
    for name in args.only.split(",") if args.only else every:
        for result in every[name]():
            print(result, flush=True)
            missed += result.ok is False
    print(f"{missed} missed" if missed else "every bar is held")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
