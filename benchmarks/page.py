"""Measure how long a large page takes: `python -m benchmarks.page [--whole] [--folder DIR]`.

The run is synthetic: 100,000 steps and 64 ranks. Making the page is measured as CPU time of this
process. Opening it is measured as wall-clock time, the best of several, next to the load of the
machine at that time: on a busy machine it shows what the machine did, not what the page does.

`--whole` also writes that run and reads it with `dsprof report`, in three forms:

- 64 recordings (about 4 GB), the form with data of every rank;
- the one log (about 0.1 GB) that such a job leaves, in which rank 0 and the last rank print every
  step, with the least and the greatest time over all ranks;
- 64 log files (about 0.7 GB), one per rank, which is more than a job prints.

The recordings are written by the hook's own `Writer`, one write per step. Each step and rank has
nine rows: four spans (data, forward, backward, step), a collective that blocks in backward, loss,
learning rate, the hook's own cost, and the step itself. They have no samples of memory. `--steps`
makes everything shorter, `--form` chooses a form.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks import cost
from benchmarks.bench import Result
from dsprof.page import render_page
from dsprof.recording import Unit, Writer
from tests.page.conftest import ALL_POSITIONS
from tests.page.runs import huge

STEPS, RANKS = 100_000, 64
MAKING, OPENING, REPORTING = 5.0, 3.0, 15.0  #: seconds
SIZE = 10_000_000  #: bytes
ROUNDS = 3
CORES = 2
DATA = 1_000_000  #: ns until the first batch is there


def made(page: Path) -> Iterator[Result]:
    """CPU time of making the page of a loaded run, and its size."""
    run = huge(STEPS, RANKS)
    _ = run.findings  # they belong to the loaded run
    start = time.process_time()
    page.write_text(render_page(run), encoding="utf-8")
    cpu, size = time.process_time() - start, page.stat().st_size
    yield _within("page made from a loaded run, CPU time", cpu, MAKING)
    yield Result("size", f"{size / 1e6:.2f} MB", f"< {SIZE / 1e6:g} MB", size < SIZE)


def opened(page: Path) -> Iterator[Result]:
    """Until a step in the middle of the run is found by number and shown."""
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    if program is None:
        sys.exit("needs Debian's chromium (apt-get install chromium-headless-shell)")
    quiet = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", ALL_POSITIONS]
    with sync_playwright() as tools:
        browser = tools.chromium.launch(executable_path=program, args=quiet)
        rounds = [_open(browser, page) for _ in range(ROUNDS)]
        browser.close()
    clock, own = (min(times) for times in zip(*rounds, strict=True))
    load = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    yield _within(f"opened until a step is shown, clock ({load})", clock, OPENING)
    yield Result("of that on the page's own thread", f"{own:.2f} s")


def _open(browser: object, page: Path) -> tuple[float, float]:
    """Seconds of the clock, and of the page's thread."""
    tab = browser.new_page(viewport={"width": 1400, "height": 900})  # type: ignore[attr-defined]
    tools = tab.context.new_cdp_session(tab)
    tools.send("Performance.enable", {"timeDomain": "threadTicks"})
    start = time.perf_counter()
    tab.goto(page.as_uri())
    tab.wait_for_selector("html[data-ready]")
    tab.fill("form.tools input[name=step]", str(STEPS // 2))
    tab.keyboard.press("Enter")
    tab.wait_for_selector(f"#drawer h2:has-text('Step {STEPS // 2:,}')")
    clock = time.perf_counter() - start
    told = {m["name"]: m["value"] for m in tools.send("Performance.getMetrics")["metrics"]}
    tab.close()
    return clock, float(told["TaskDuration"])


def reported(folder: Path, form: str, steps: int) -> Iterator[Result]:
    """`dsprof report` of the run, to the page, in a fresh process."""
    files = folder / f"{form}-{steps}"
    if not (files / "whole").exists():
        files.mkdir(parents=True, exist_ok=True)
        FORMS[form](files, steps)
        (files / "whole").touch()
    size = sum(file.stat().st_size for file in files.iterdir())
    page = folder / "whole.html"
    command = [sys.executable, "-m", "dsprof", "report", str(files), "-o", str(page)]
    one = cost.run(command)
    told = f"{form}, {RANKS} ranks, {steps:,} steps, {size / 1e9:.2f} GB"
    load = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    yield _within(f"report of {told}, clock ({load})", one.wall, REPORTING)
    yield _within(f"the same, CPU time over {CORES} cores", one.cpu / CORES, REPORTING)
    size = page.stat().st_size
    yield Result("its page", f"{size / 1e6:.2f} MB", f"< {SIZE / 1e6:g} MB", size < SIZE)


def _times(rank: int, steps: int) -> np.ndarray:
    """Seconds of forward, backward, reduction and update of every step, shape (steps, 4)."""
    made_of = np.random.default_rng(rank)
    slow = 1.3 if rank == RANKS // 4 else 1.0
    times: np.ndarray = made_of.gamma(40, 1 / 40, (steps, 4)) * [0.1, 0.2, 0.15, 0.05] * slow
    return times


def _recordings(folder: Path, steps: int) -> None:
    for rank in range(RANKS):
        _record(folder, rank, steps)


def _record(folder: Path, rank: int, steps: int) -> None:
    """Nine rows a step, as a hook records them, each step handed over as it ends."""
    about = {"rank": rank, "host": f"node{rank // 8}", "world": RANKS}
    writer = Writer.create(str(folder), about)
    data = writer.name("data", 0, "data")
    forward, backward = (writer.name(word, 0, "compute") for word in ("forward", "backward"))
    reduce_, update = writer.name("all_reduce", backward), writer.name("step", 0, "optimizer")
    group, loss, lr = (writer.name(word) for word in ("world", "loss", "lr"))
    begin = time.perf_counter_ns()
    for step, times in enumerate((_times(rank, steps) * 1e9).astype(np.int64).tolist(), 1):
        there, back, told, end = (begin + sum(times[:n]) for n in range(1, 5))
        writer.span(data, begin, begin + DATA, step, 0)
        writer.span(forward, begin + DATA, there, step, 0)
        writer.span(backward, there, told, step, 0)
        writer.collective(reduce_, group, back, back, times[2], step, 0, 1 << 20, 1, step)
        writer.span(update, told, end, step, 0)
        writer.metric(loss, 1.0 + 1.0 / step, step, 0, 0, end)
        writer.metric(lr, 1e-4, step, 0, 0, end)
        writer.metric(writer.name("overhead"), 2e-5, step, Unit.SECONDS)
        writer.step(step, begin, end)
        writer.flush()
        begin = end
    writer.close()


_SETUP = """\
[2026-11-21 08:00:00,000] [INFO] [comm.py:753:mpi_discovery] Discovered MPI settings of \
world_rank=0, local_rank=0, world_size={ranks}, master_addr=10.0.0.1, master_port=29500
[2026-11-21 08:00:01,000] [INFO] [logging.py:96:log_dist] [Rank 0] DeepSpeed info: \
version=0.14.4, git-hash=unknown, git-branch=unknown
"""
_STEP = """\
{now},101] [INFO] [logging.py:96:log_dist] [Rank 0] step={step}, skipped=0, lr=[0.0001], \
mom=[[0.9, 0.95]]
{now},102] [INFO] [logging.py:96:log_dist] [Rank 0] time (ms) | fwd_microstep: {fwd:.2f} | \
bwd_microstep: {bwd:.2f} | bwd_inner_microstep: {inner:.2f} | \
bwd_allreduce_microstep: {reduce:.2f} | step_microstep: {update:.2f}
{now},102] [INFO] [logging.py:96:log_dist] [Rank 0] time (ms) | fwd: {fwd:.2f} | bwd: {bwd:.2f} | \
bwd_inner: {inner:.2f} | bwd_allreduce: {reduce:.2f} | step: {update:.2f}
 iteration {step:8d}/{steps:8d} | consumed samples: {samples:12d} | \
elapsed time per iteration (ms): {all:.1f} | learning rate: 1.000E-04 | global batch size:   512 | \
lm loss: {loss:.6E} | loss scale: 1.0 | grad norm: 0.900 | \
number of skipped iterations:   0 | number of nan iterations:   0 | \
samples per second: {rate:.3f} | TFLOPs: 55.00 |
(min, max) time across ranks (ms):
    forward-backward ...............................: ({least:.2f}, {most:.2f})
    batch-generator ................................: (0.40, 0.90)
    optimizer ......................................: ({update:.2f}, {slow:.2f})
"""


def _log(folder: Path, steps: int) -> None:
    """What Megatron-DeepSpeed prints in every step: DeepSpeed on rank 0, Megatron on the last."""
    begin = np.datetime64("2026-11-21T08:01:00")
    with (folder / "job.log").open("w") as file:
        file.write(_SETUP.format(ranks=RANKS))
        for step, times in enumerate((_times(0, steps) * 1e3).tolist(), 1):
            fwd, inner, reduce_, update = times
            now = str(begin + step // 2).replace("T", " ")
            both = fwd + inner + reduce_
            told = {
                "now": f"[{now}", "step": step, "steps": steps, "samples": 512 * step,
                "fwd": fwd, "inner": inner, "bwd": inner + reduce_, "reduce": reduce_,
                "update": update, "slow": 1.01 * update, "least": 0.99 * both, "most": 1.02 * both,
                "all": both + update + 1, "rate": 512e3 / (both + update + 1), "loss": 3 + 5 / step,
            }  # fmt: skip
            file.write(_STEP.format(**told))


def _logs(folder: Path, steps: int) -> None:
    for rank in range(RANKS):
        _log_of(folder, rank, steps)


def _log_of(folder: Path, rank: int, steps: int) -> None:
    """Timers of every step as DeepSpeed prints them; rank 0 also prints the steps."""
    with (folder / f"rank{rank}.log").open("w") as file:
        for step, times in enumerate((_times(rank, steps) * 1e3).tolist(), 1):
            forward, inner, reduce_, update = times
            file.write(
                f"[Rank {rank}] time (ms) | fwd: {forward:.2f} | bwd: {inner + reduce_:.2f} | "
                f"bwd_inner: {inner:.2f} | bwd_allreduce: {reduce_:.2f} | step: {update:.2f}\n"
            )
            if rank == 0:
                file.write(f"[Rank 0] step={step}, skipped=0, lr=[0.001], mom=[[0.9, 0.999]]\n")


FORMS = {"recordings": _recordings, "log": _log, "logs": _logs}


def _within(what: str, seconds: float, bar: float) -> Result:
    return Result(what, f"{seconds:.2f} s", f"< {bar:g} s", seconds < bar)


def main() -> int:
    """Prints every result; exit code 1 if one misses its bar."""
    choice = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks.page")
    choice.add_argument("--whole", action="store_true", help="also the report of the whole run")
    choice.add_argument("--form", choices=FORMS, help="only this form of the report")
    choice.add_argument("--steps", type=int, default=STEPS, help="of the synthetic run")
    choice.add_argument("--folder", type=Path, help="where files are created and kept")
    asked = choice.parse_args()
    with tempfile.TemporaryDirectory() as passing:
        folder = (asked.folder or Path(passing)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        page = folder / "page.html"
        missed = 0
        parts = [] if asked.form else [made(page), opened(page)]
        forms = [asked.form] if asked.form else list(FORMS) if asked.whole else []
        parts += [reported(folder, form, asked.steps) for form in forms]
        for part in parts:
            for result in part:
                print(result, flush=True)
                missed += result.ok is False
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
