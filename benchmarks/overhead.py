"""What each way of measuring adds to a step: `python -m benchmarks.overhead`.

The same job runs on two gloo ranks in blocks of steps, alternately without and with the
measurement; each pair of neighbouring blocks gives one difference. Medians are printed with the
95 % interval from order statistics. Needs an interpreter with torch, deepspeed and, for its rows,
traceml-ai: this one, or DSPROF_TORCH_PYTHON.

CPU time is what counts here: "thread" is the training thread alone, "process" includes the
background threads. Wall time of two ranks on two busy cores is mostly noise, and is printed for
completeness. On a CPU, synchronising the device costs nothing: what `wall_clock_breakdown` and the
comms logger cost on a GPU is not in these figures.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import unittest.mock
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
WIDTH, DEPTH, BATCH = 256, 4, 16
WARM = 3  # steps after a switch that are not measured
OF_TORCH = ("torch.profiler", "traceml")
OF_DEEPSPEED = ("wall_clock_breakdown", "comms_logger", *OF_TORCH)
JOBS = {
    "ZeRO-1": ("dsprof", "clocks alone", *OF_DEEPSPEED),
    "ZeRO-3": ("dsprof", "clocks alone", *OF_DEEPSPEED),
    "DDP": ("dsprof", "clocks alone", *OF_TORCH),
}
CLOCKS: dict[str, Callable[[], float]] = {
    "thread": time.thread_time,
    "process": time.process_time,
    "wall": time.perf_counter,
}

# --- on the ranks ---------------------------------------------------------------------------


@dataclass
class Job:
    """A training step, and what may be measured of it."""

    step: Callable[[], None]
    target: Any
    optimizer: Any = None


def network(width: int = WIDTH, depth: int = DEPTH) -> Any:
    import torch

    torch.manual_seed(0)
    layers = [torch.nn.Linear(width, width) for _ in range(depth)]
    return torch.nn.Sequential(*layers, torch.nn.Linear(width, 1))


def engine(stage: int, net: Any = None, batch: int = BATCH, **settings: Any) -> Job:
    import deepspeed
    import torch

    net = net or network()
    config = {
        "train_micro_batch_size_per_gpu": batch,
        "optimizer": {"type": "Adam", "params": {"lr": 1e-3, "torch_adam": True}},
        "zero_optimization": {"stage": stage},
        "steps_per_print": 10**9,
        **settings,
    }
    made = deepspeed.initialize(model=net, model_parameters=net.parameters(), config=config)[0]
    rows = torch.randn(batch, net[0].in_features)

    def step() -> None:
        made.backward(made(rows).square().mean())
        made.step()

    return Job(step, made)


def stepping(net: Any, optimizer: Any, rows: Any) -> Callable[[], None]:
    """A step of training by hand, on the same rows each time."""

    def step() -> None:
        net(rows).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def replicated() -> Job:
    import torch

    net = torch.nn.parallel.DistributedDataParallel(network())
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    return Job(stepping(net, optimizer, torch.randn(BATCH, WIDTH)), net, optimizer)


def start(name: str) -> Callable[..., Job]:
    """Join the process group; how to make the job."""
    import torch.distributed as dist

    if name == "DDP":
        dist.init_process_group("gloo")
        return replicated
    import deepspeed

    # Else DeepSpeed compiles a shared-memory collective: half a minute of g++ at the first run.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed(dist_backend="gloo")
    return partial(engine, int(name[-1]))


@contextlib.contextmanager
def measured(job: Job, way: str, out: Path) -> Iterator[Callable[[], None]]:
    """The job's step while it is measured in that way."""
    step = job.step
    with contextlib.ExitStack() as stack:
        if way == "dsprof":
            import dsprof

            stack.enter_context(dsprof.attach(job.target, optimizer=job.optimizer, out=out))
        elif way == "clocks alone":
            stack.enter_context(clocks_alone(job, out))
        elif way == "comms_logger":
            import deepspeed.comm

            deepspeed.comm.configure(enabled=True, prof_all=True, verbose=False)
            stack.callback(deepspeed.comm.configure, enabled=False)
        elif way == "torch.profiler":
            from torch.profiler import ProfilerActivity, profile

            stack.enter_context(profile(activities=[ProfilerActivity.CPU]))
        elif way == "traceml":
            step = partial(traced, job)
        yield step


@contextlib.contextmanager
def clocks_alone(job: Job, out: Path) -> Iterator[None]:
    """Wrappers at the places where dsprof has its own, which read the clock at both ends and
    keep nothing: less than this no hook in Python can cost."""
    import dsprof
    from dsprof.hook.guard import Guard

    class Clocks(Guard):
        def __call__(self, action: Callable[..., Any]) -> Callable[..., Any]:
            return super().__call__(action) if self.what == "attaching" else nothing

        def around(self, raw: Callable[..., Any], *_: Any) -> Callable[..., Any]:
            return between_clocks(raw)

        ahead = behind = around  # type: ignore[assignment]  # whatever follows the function

    with unittest.mock.patch("dsprof.hook.attach.Guard", Clocks):
        handle = dsprof.attach(job.target, optimizer=job.optimizer, out=out)
    try:
        yield
    finally:
        handle.detach()


def nothing(*_: Any) -> None:
    """What is called beside training: an optimizer's hooks, a final callback of autograd."""


def between_clocks(raw: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        time.perf_counter_ns()
        try:
            return raw(*args, **kwargs)
        finally:
            time.perf_counter_ns()

    return call


def traced(job: Job) -> None:
    import traceml_ai as traceml

    with traceml.trace_step(job.target):
        job.step()


def block(step: Callable[[], None], steps: int) -> dict[str, float]:
    """Seconds per step, by each clock."""
    for _ in range(WARM):
        step()
    before = {name: clock() for name, clock in CLOCKS.items()}
    for _ in range(steps):
        step()
    return {name: (clock() - before[name]) / steps for name, clock in CLOCKS.items()}


def work(name: str, way: str, out: Path, pairs: int, steps: int) -> None:
    """One rank: pairs of blocks, in an order that all ranks draw alike."""
    import torch.distributed as dist

    if way == "traceml":
        import traceml_ai as traceml

        traceml.init(mode="auto")
    make = start(name)
    plain = make()
    other = make(wall_clock_breakdown=True) if way == "wall_clock_breakdown" else plain
    order, found = random.Random(0), []
    for pair in range(pairs + 1):
        sides: dict[bool, dict[str, float]] = {}
        for on in order.sample([True, False], 2):
            with measured(other if on else plain, way if on else "none", out) as step:
                sides[on] = block(step, steps)
        if pair:  # the first one fills caches
            found.append({"plain": sides[False], "measured": sides[True]})
    if dist.get_rank() == 0:
        (out / "found.json").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


# --- beside them ----------------------------------------------------------------------------


def launched(name: str, way: str, pairs: int, steps: int) -> tuple[list[Any], dict[str, float]]:
    """The pairs of one job and way; for dsprof, also what it says of itself."""
    python = os.environ.get("DSPROF_TORCH_PYTHON", sys.executable)
    launcher = [python, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    script = [str(Path(__file__)), "--on-rank", name, way]
    with tempfile.TemporaryDirectory() as folder:
        script += [folder, str(pairs), str(steps)]
        if way == "traceml":
            program, *arguments = script
            rival = Path(python).with_name("traceml")
            if not rival.exists():
                sys.exit(f"{rival} is missing: {python} -m pip install traceml-ai==0.5.0")
            launcher = [str(rival), "run", "--nproc-per-node", "2",
                        "--logs-dir", folder, program, "--args"]  # fmt: skip
            script = arguments
        done = subprocess.run(
            [*launcher, *script],
            env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
            capture_output=True, text=True, timeout=900, check=False,
        )  # fmt: skip
        result = Path(folder) / "found.json"
        if not result.exists():  # gloo may abort at its own end, when all is measured
            raise RuntimeError(f"{name} with {way} failed:\n{(done.stdout + done.stderr)[-3000:]}")
        own = own_account(Path(folder)) if way == "dsprof" else {}
        return json.loads(result.read_text()), own


def own_account(folder: Path) -> dict[str, float]:
    """Of both ranks' recordings: rows per step, and the seconds that each step says it cost."""
    from dsprof.recording import RowKind, read_rows

    kinds = (RowKind.SPAN, RowKind.COLLECTIVE, RowKind.STEP)
    rows = sum(len(read_rows(kind, folder)["step"]) for kind in kinds[:2])
    steps = len(read_rows(RowKind.STEP, folder)["step"])
    metrics = read_rows(RowKind.METRIC, folder).to_pandas()
    cost = metrics[metrics["name"] == "overhead"]["value"]
    quarter, half = cost.quantile(0.25), cost.median()
    return {"rows": rows / steps, "cost": float(half), "low": float(quarter)}


def interval(values: list[float]) -> tuple[float, float, float]:
    """Median, and the 95 % interval of it by order statistics (normal approximation)."""
    ranked, half = sorted(values), 0.98 * len(values) ** 0.5
    low = max(0, round(len(values) / 2 - half))
    high = min(len(values) - 1, round(len(values) / 2 + half))
    return statistics.median(values), ranked[low], ranked[high]


def row(name: str, way: str, pairs: int, steps: int) -> str:
    found, own = launched(name, way, pairs, steps)
    plain = statistics.median(pair["plain"]["thread"] for pair in found)
    cells = [f"{name:<8}{way:<22}{plain * 1e3:8.2f}"]
    for clock in CLOCKS:
        more = [(pair["measured"][clock] - pair["plain"][clock]) * 1e3 for pair in found]
        middle, low, high = interval(more)
        cells.append(f"{middle:+8.3f} [{low:+.3f}, {high:+.3f}]".rjust(28))
    return "".join(cells) + _told(own)


def _told(own: dict[str, float]) -> str:
    if not own:
        return ""
    each = own["cost"] / (own["rows"] + 1)  # the step has a row of its own
    return (
        f"   {own['rows']:.1f} spans and calls a step; by its own account, median "
        f"{own['cost'] * 1e3:.3f} ms a step, {each * 1e6:.1f} us each; lower quartile "
        f"{own['low'] * 1e3:.3f} ms"
    )


def main() -> None:
    known = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks.overhead")
    known.add_argument("--pairs", type=int, default=20)
    known.add_argument("--steps", type=int, default=25, help="steps per block")
    known.add_argument("--job", choices=JOBS, action="append")
    known.add_argument("--way", help="only this way of measuring")
    known.add_argument("--on-rank", nargs=5, help=argparse.SUPPRESS)
    args = known.parse_args()
    if args.on_rank:
        name, way, out, pairs, steps = args.on_rank
        work(name, way, Path(out), int(pairs), int(steps))
        return
    print(f"{args.pairs} pairs of blocks of {args.steps} steps; ms per step, 95 % interval")
    head = ("thread CPU more", "process CPU more", "wall more")
    print(f"{'job':<8}{'measured by':<22}{'CPU':>8}" + "".join(word.rjust(28) for word in head))
    for name in args.job or JOBS:
        for way in JOBS[name]:
            if args.way in {None, way}:
                print(row(name, way, args.pairs, args.steps), flush=True)


if __name__ == "__main__":
    main()
