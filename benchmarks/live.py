"""What watching costs: `python -m benchmarks.live [--ranks 512] [--seconds 120] [--minutes 30]
[--log-gb 5] [--torch PYTHON]`; 0 leaves a part out.

Cost: a simulator writes real recordings, one for each of `--ranks`, at two steps per second,
with the rows that a rank on a GPU records. Meanwhile the real program draws on a terminal of
160 x 48 that this process holds. CPU time and memory are the kernel's figures for both its
processes, the one that draws and the one that watches. The answer time of a key is the time until
words are drawn that only the requested screen has; keys are pressed at random moments.

Memory: then `--minutes` of steps are written in accelerated time: ten steps at once, and the
next ten as soon as the program shows the tenth. Memory counts as flat if a line fitted to the
second half rises by less than 20 MB per simulated hour: left open for a night of twelve hours, the
program then takes at most 240 MB more.

Large log: it is repetitive text, larger than what is read at once, just written and
therefore in the page cache.

Delay: `--torch` names an interpreter with torch. A late rank and a death are planted in a real
job of two ranks, and the time until they are on the screen is measured.

Needs 4 GB of disk for 512 ranks, plus the size of the log.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import chain
from pathlib import Path

from benchmarks.terminal import Program
from dsprof.recording import Writer

RATE = 2.0  # steps per second of each rank
KEEP = 4 << 20  # bytes of a rank's recording: the ring turns in the first minutes

Result = tuple[str, str, str, bool]


class Ranks:
    """Recordings that grow: eight spans, four collectives and a loss a step and rank."""

    def __init__(self, folder: str, count: int) -> None:
        self.writers = [
            Writer.create(
                folder, {"rank": r, "world": count, "host": f"node-{r // 8:03}"}, keep_bytes=KEEP
            )
            for r in range(count)
        ]
        self.step = 0
        for rank, writer in enumerate(self.writers):
            writer.config("gpu", f"GPU-{rank}")
            writer.config("gpu_memory_bytes", 80.0 * (1 << 30))
            writer.flush()

    def write(self) -> None:
        self.step += 1
        end = time.perf_counter_ns()
        for rank, writer in enumerate(self.writers):
            if rank % 8 == 0 and self.step % 4 == 0:  # a sampler a node, every two seconds
                _sample(writer, self.step, range(rank, min(rank + 8, len(self.writers))))
            _step(writer, self.step, end - 400_000_000, 60_000_000 if rank == 7 else 40_000_000)


def _step(writer: Writer, step: int, at: int, each: int) -> None:
    begin = at
    for name, kind in _PHASES:
        phase = writer.name(name, 0, kind)
        for micro in range(2):
            writer.span(phase, at, at + each, step, micro)
            at += each
    for number in range(4):
        call = writer.name("all_gather", writer.name("forward", 0, "compute"))
        writer.collective(
            call, writer.name("world"), at, at, 1_000_000, step, -1, 1 << 22, 1, number
        )
    writer.metric(writer.name("loss"), 1 / step, step, 0, 0, at)
    for name in _MEMORY:
        writer.memory(writer.name(name), (40 << 30) + step % 7, step, at)
    writer.step(step, begin, at, (0.2, 0.05, 0.0, 0.02, 0.01, 0.0, 0.0, 0.02), 2)
    writer.flush()


def _sample(writer: Writer, step: int, ranks: Iterable[int]) -> None:
    for rank in ranks:
        uuid = writer.name(f"GPU-{rank}")
        for name in _COUNTERS:
            writer.gpu(writer.name(name), 50.0 + random.random(), step, 0, uuid)


_MEMORY = ("host_process", "allocated", "max_allocated", "reserved", "max_reserved")
_COUNTERS = ("utilization", "memory_utilization", "power", "temperature", "temperature_memory",
             "clock_sm", "clock_memory", "throttled_power", "throttled_thermal",
             "throttled_hardware", "pcie_sent", "pcie_received")  # fmt: skip
_PHASES = (("data", "data"), ("forward", "compute"), ("backward", "compute"), ("step", "optimizer"))


def simulate(folder: str, count: int) -> None:
    """Write for ever, every rank at its rate."""
    ranks = Ranks(folder, count)
    due = time.monotonic()
    while True:
        ranks.write()
        due += 1 / RATE
        time.sleep(max(0.0, due - time.monotonic()))


@contextmanager
def simulated(count: int) -> Iterator[str]:
    """The folder of a job of so many ranks that goes on."""
    with tempfile.TemporaryDirectory() as folder:
        writer = subprocess.Popen([sys.executable, "-m", "benchmarks.live", "--simulate", folder,
                                   "--ranks", str(count)])  # fmt: skip
        time.sleep(2)
        try:
            yield folder
        finally:
            writer.kill()
            writer.wait()


_KEYS = ((b"2", b"late by"), (b"1", b"severity"))  # of each screen a word of its own


def many_ranks(count: int, seconds: float) -> Iterator[Result]:
    answers: list[float] = []
    memory: list[int] = []
    with simulated(count) as folder, closing(Program(folder)) as program:
        program.wait_for(b"RUNNING", 60)
        program.draw(20)  # settle
        cpu, begun = program.cpu, time.monotonic()
        while time.monotonic() - begun < seconds:
            program.draw(random.uniform(0.5, 3.0))
            answers.append(program.answer(*_KEYS[len(answers) % 2]))
            memory.append(program.memory)
        share = (program.cpu - cpu) / (time.monotonic() - begun)
    what = f"{count} ranks, {seconds:.0f} s"
    yield f"{what}: CPU of one core", f"{share:.0%}", "< 50 %", share < 0.5
    slow = statistics.quantiles(answers, n=20)[-1] if len(answers) > 1 else answers[0]
    middle = statistics.median(answers)
    yield (f"{what}: a key's answer, median and p95", f"{middle * 1e3:.0f} ms, {slow * 1e3:.0f} ms",
           "p95 < 200 ms", slow < 0.2)  # fmt: skip
    yield _under_bar(f"{what}: memory at most", max(memory))


def _under_bar(what: str, most: int) -> Result:
    return what, f"{most / 1e6:.0f} MB", "< 400 MB", most < 400e6


def slow_line(count: int, seconds: float = 30) -> Iterator[Result]:
    """What a line must carry while nobody presses a key."""
    with simulated(count) as folder, closing(Program(folder, size=(24, 80))) as program:
        program.wait_for(b"per step", 60)
        program.draw(10)
        drawn = program.bytes_in(seconds) / seconds
    yield f"{count} ranks, 80 x 24: drawn a second", f"{drawn:,.0f} B", "< 4 KB", drawn < 4096


def long_run(count: int, minutes: float) -> Iterator[Result]:
    """The memory of the program while `minutes` of steps are written as fast as it shows them."""
    hours: list[float] = []
    memory: list[int] = []
    with tempfile.TemporaryDirectory() as folder:
        ranks = Ranks(folder, count)
        begun = time.monotonic()
        with closing(Program(folder)) as program:
            while ranks.step < minutes * 60 * RATE:
                for _ in range(_AT_ONCE):
                    ranks.write()
                if program.shows(rb"step %s\b" % f"{ranks.step:,}".encode(), 120) is None:
                    raise SystemExit(f"step {ranks.step:,} does not show, but {program.last}")
                hours.append(ranks.step / RATE / 3600)
                memory.append(program.memory)
                if sys.stderr.isatty():
                    print(f"step {ranks.step:,}: {memory[-1] / 1e6:.0f} MB", file=sys.stderr)
        took = time.monotonic() - begun
    what = f"{count} ranks, {minutes:.0f} simulated min"
    tenths = " ".join(f"{m / 1e6:.0f}" for m in _tenths(memory))
    print(f"{what} in {took / 60:.1f} min: {minutes * 60 / took:.1f} times as fast")
    print(f"MB at the tenths: {tenths}", flush=True)
    yield _under_bar(f"{what}: memory at most", max(memory))
    half = len(memory) // 2
    rise = statistics.linear_regression(hours[half:], [m / 1e6 for m in memory[half:]]).slope
    yield f"{what}: rise in the second half", f"{rise:+.0f} MB/h", "< 20 MB/h", rise < 20


def _tenths(values: Sequence[int]) -> Iterator[int]:
    return (values[max(0, len(values) * part // 10 - 1)] for part in range(1, 11))


_AT_ONCE = 10  # steps, five seconds of a run


def real_job(python: str) -> Iterator[Result]:
    """How soon a late rank and a death in a job of two ranks are on the screen."""
    train = Path(__file__).parents[1] / "tests/live/train.py"
    with tempfile.TemporaryDirectory() as place:
        run = Path(place) / "run"
        job = subprocess.Popen(
            [python, "-m", "dsprof.hook.entering.launch", run,
             python, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2",
             train, place],
            env=os.environ | {"PYTHONPATH": str(train.parents[2]), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        try:
            with closing(Program(str(run))) as program:
                program.shows(b"per step", 120)
                program.press(b"2")
                program.draw(15)
                (Path(place) / "plan").write_text("slow")
                late = program.shows(b"for rank 1: ", 60)
                (file,) = run.glob("rank-00001.*.dsprof")
                os.kill(int(file.name.split(".")[1]), signal.SIGKILL)
                died = program.shows(b"rank 1 died", 60)
        finally:
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()
    for what, seconds, bar in (("late", late, 5.0), ("killed", died, 10.0)):
        yield (f"two real ranks: one is {what}, until it shows",
               "never" if seconds is None else f"{seconds:.1f} s", f"< {bar:.0f} s",
               seconds is not None and seconds < bar)  # fmt: skip


def large_log(size: int) -> Iterator[Result]:
    """Wall seconds count; what of them is CPU time says how busy the machine was."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "run.log"
        steps = _write_log(log, size)
        with closing(Program(str(log))) as program:
            tail = program.wait_for(f"step {steps:,}".encode(), 60)
            first = program.cpu
            judged = program.wait_for(b"per step", 60)
            later = program.cpu
            while program.shows(b"still to read", 5) is not None:
                pass
            past = time.monotonic() - program.begun - 5
    what = f"a log of {size / 1e9:.1f} GB"
    yield (f"{what}: its last step is on the screen", _seconds(tail, first), "< 2 s",
           tail is not None and tail < 2)  # fmt: skip
    yield f"{what}: figures and verdict", _seconds(judged, later), "", judged is not None
    yield f"{what}: all of it is read", _seconds(past, None), "", True


def _seconds(wall: float | None, cpu: float | None) -> str:
    if wall is None:
        return "never"
    return f"{wall:.2f} s" + ("" if cpu is None else f" ({cpu:.2f} s CPU)")


def _write_log(path: Path, size: int) -> int:
    """Steps with timers between lines that say nothing; how many."""
    filler = b"".join(b"[2026-01-02 03:04:05] worker %d: nothing to see\n" % n for n in range(200))
    step = 0
    with path.open("wb", buffering=1 << 20) as file:
        while file.tell() < size:
            step += 1
            file.write(filler)
            file.write(
                b"[2026-01-02 03:04:05,000] [INFO] [logging.py:96:log_dist] [Rank 0] step=%d, "
                b"skipped=0, lr=[0.001], mom=[(0.9, 0.999)]\nsteps: %d loss: 1.0000 "
                b"iter time (s): 0.500 samples/sec: 16.000\n" % (step, step)
            )
    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks.live")
    parser.add_argument("--ranks", type=int, default=512)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--torch", help="an interpreter that has torch")
    parser.add_argument("--log-gb", type=float, default=5.0)
    parser.add_argument("--simulate", help=argparse.SUPPRESS)
    wanted = parser.parse_args()
    if wanted.simulate:
        simulate(wanted.simulate, wanted.ranks)
    parts: list[Iterable[Result]] = [
        many_ranks(wanted.ranks, wanted.seconds) if wanted.ranks and wanted.seconds else (),
        slow_line(2) if wanted.seconds else (),
        large_log(int(wanted.log_gb * 1e9)) if wanted.log_gb else (),
        real_job(wanted.torch) if wanted.torch else (),
        long_run(wanted.ranks, wanted.minutes) if wanted.ranks and wanted.minutes else (),
    ]
    missed = False
    for what, measured, bar, ok in chain.from_iterable(parts):
        load = f"load {os.getloadavg()[0]:.1f}"
        print(
            f"{what:<54} {measured:>20}   {bar:<14} {'ok' if ok else 'MISS':<4} {load}", flush=True
        )
        missed |= not ok
    sys.exit(missed)


if __name__ == "__main__":
    main()
