"""Is the share of communication true? `python -m benchmarks.exposed`.

Two gloo ranks train a wide network on two rows at a time, and the hook records everything.

DDP alternates between a few steps in which gradients are exchanged and a few under `no_sync`, in
which they are not. The difference between their durations is what communication costs. But
exchanging costs more than waiting: gradients are copied into buckets and back, and gloo's threads
compete with backward for the cores while some of them are in flight. So the comparison for the
waiting alone uses one bucket and no copies, and in both kinds of steps divides the gradients by the
number of ranks, as DDP does.

ZeRO-1 and ZeRO-3 have no such switch. There PyTorch's profiler says how long gloo worked, or was
called, while no operator of the training thread ran.

Everything is repeated, each time by two fresh processes. Needs an interpreter with torch and
deepspeed: this one, or DSPROF_TORCH_PYTHON.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.overhead import ROOT, network, start

WIDTH, DEPTH, ROWS = 1024, 8, 2  # 34 MB of gradients
BLOCK, WARM = 5, 1  # steps of a turn, of which the first ones are not counted
PROFILED = 12

JOBS = ("DDP, no copies", "DDP, one bucket", "DDP", "ZeRO-1", "ZeRO-3")

Step = Callable[[], None]

# --- on the ranks ---------------------------------------------------------------------------


def replicated(bucket: int, *, copies: bool) -> tuple[Any, Any, Step]:
    import torch

    net = torch.nn.parallel.DistributedDataParallel(
        network(WIDTH, DEPTH), bucket_cap_mb=bucket, gradient_as_bucket_view=not copies
    )
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    rows = torch.randn(ROWS, WIDTH)

    def divide(parameter: Any) -> None:
        if not net.require_backward_grad_sync:
            parameter.grad.mul_(0.5)

    if not copies:
        for parameter in net.parameters():
            parameter.register_post_accumulate_grad_hook(divide)

    def step() -> None:
        net(rows).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=copies)  # else the gradients stay where buckets are

    return net, optimizer, step


def in_turns(out: Path, turns: int, bucket: int, *, copies: bool = True) -> dict[str, float]:
    """Share of a step that communication has: by the hook, and by what `no_sync` saves."""
    import dsprof

    start("DDP")
    net, optimizer, step = replicated(bucket, copies=copies)
    found: dict[bool, list[float]] = {True: [], False: []}
    counted = set()
    with dsprof.attach(net, optimizer=optimizer, out=out):
        for number in range(2 * (turns + 1) * BLOCK):
            exchanged = number // BLOCK % 2 == 0
            with contextlib.nullcontext() if exchanged else net.no_sync():
                begin = time.perf_counter()
                step()
                length = time.perf_counter() - begin
            if number >= 2 * BLOCK and number % BLOCK >= WARM:
                found[exchanged].append(length)
                counted |= {number + 1} if exchanged else set()
    whole, alone = (statistics.median(found[kind]) for kind in (True, False))
    told = [row for row in of_steps(out) if row[0] in counted]
    blocked, length = (statistics.median(row[place] for row in told) for place in (1, 2))
    return {"dsprof": blocked / length, "other": 1 - alone / whole, "step": whole}


def of_steps(out: Path) -> list[tuple[int, float, float]]:
    """Of this rank's recording: step, seconds of communication, seconds."""
    import torch.distributed as dist

    from dsprof.recording import RowKind
    from dsprof.recording.layout import ROW, STEP, header_size

    (file,) = out.glob(f"rank-{dist.get_rank():05}.*")
    data = file.read_bytes()
    rows = (data[at : at + ROW] for at in range(header_size(data, ""), len(data), ROW))
    steps = [STEP.unpack(row) for row in rows if row[0] == RowKind.STEP]
    return [(row[2], row[7], row[5] * 1e-9) for row in steps]


def profiled(out: Path, stage: int) -> dict[str, float]:
    """Seconds that ZeRO's communication blocks, of the same steps: by the hook, by the profiler."""
    from torch.profiler import ProfilerActivity, profile

    import dsprof

    job = start(f"ZeRO-{stage}")(net=network(WIDTH, DEPTH), batch=ROWS)
    for _ in range(3):
        job.step()
    uncovered = []
    with dsprof.attach(job.target, out=out):
        for _ in range(PROFILED):
            with profile(activities=[ProfilerActivity.CPU]) as window:
                job.step()
            uncovered.append(alone_on_gloo(window))
    told = of_steps(out)[-PROFILED:]
    return {
        "dsprof": statistics.median(row[1] for row in told),
        "other": statistics.median(uncovered),
        "step": statistics.median(row[2] for row in told),
    }


def alone_on_gloo(window: Any) -> float:
    """Seconds that gloo's spans and calls cover, and the training thread's own operators do not.

    What a call does before it hands over, copying what it sends, is of the call.
    """
    gloo, calls, own = [], [], []
    for event in window.profiler.kineto_results.events():
        span = event.start_ns(), event.start_ns() + event.duration_ns()
        if event.name().startswith("gloo:"):
            gloo.append(span)
        elif event.name().startswith("c10d::"):
            calls.append(span)
        elif event.name().startswith("aten::"):
            own.append(span)
    own = [span for span in own if not any(a <= span[0] and span[1] <= b for a, b in calls)]
    return (covered(gloo + calls + own) - covered(own)) * 1e-9


def covered(spans: list[tuple[int, int]]) -> int:
    total = reached = 0
    for begin, end in sorted(spans):
        total += max(0, end - max(begin, reached))
        reached = max(reached, end)
    return total


def work(job: str, out: Path, turns: int) -> None:
    """One rank."""
    import torch.distributed as dist

    ways = {
        "DDP, no copies": lambda: in_turns(out, turns, 1000, copies=False),
        "DDP, one bucket": lambda: in_turns(out, turns, 1000),
        "DDP": lambda: in_turns(out, turns, 25),
        "ZeRO-1": lambda: profiled(out, 1),
        "ZeRO-3": lambda: profiled(out, 3),
    }
    (out / f"found-{int(os.environ['RANK'])}.json").write_text(json.dumps(ways[job]()))
    dist.barrier()
    dist.destroy_process_group()


# --- beside them ----------------------------------------------------------------------------


def launched(job: str, turns: int) -> tuple[list[dict[str, float]], str]:
    """What both ranks found, and the verdict of a report on the recording."""
    python = os.environ.get("DSPROF_TORCH_PYTHON", sys.executable)
    launcher = [python, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [*launcher, str(Path(__file__)), "--on-rank", job, folder, "--turns", str(turns)],
            env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
            capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"{job} failed:\n{(done.stdout + done.stderr)[-3000:]}")
        found = [json.loads(file.read_text()) for file in sorted(Path(folder).glob("found-*"))]
        return found, verdict(folder)


def verdict(folder: str) -> str:
    """Of the recording, in which half of DDP's steps exchange nothing."""
    import dsprof

    findings = dsprof.load(folder).findings
    return findings[0].rule if findings else "none"


def main() -> None:
    known = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks.exposed")
    known.add_argument("--repeats", type=int, default=5)
    known.add_argument("--turns", type=int, default=12)
    known.add_argument("--job", choices=JOBS, action="append")
    known.add_argument("--on-rank", nargs=2, help=argparse.SUPPRESS)
    args = known.parse_args()
    if args.on_rank:
        work(args.on_rank[0], Path(args.on_rank[1]), args.turns)
        return
    print(f"{'job':<17}{'rank':>4}{'ms a step':>11}{'dsprof':>9}{'other':>9}{'apart':>9}  verdict")
    for job in args.job or JOBS:
        share = job.startswith("DDP")  # in percent; of the others milliseconds
        shown = 100 if share else 1e3
        apart = []
        for _ in range(args.repeats):
            ranks, said = launched(job, args.turns)
            for rank, one in enumerate(ranks):
                off = one["dsprof"] - one["other"] if share else one["dsprof"] / one["other"]
                apart.append(off * 100 if share else off)
                print(
                    f"{job:<17}{rank:>4}{one['step'] * 1e3:11.1f}{one['dsprof'] * shown:9.1f}"
                    f"{one['other'] * shown:9.1f}{apart[-1]:9.2f}  {said}", flush=True,
                )  # fmt: skip
        unit = "points of share" if share else "times"
        said = f"{job}: median {statistics.median(apart):.2f} {unit}"
        print(f"{said}, {min(apart):.2f} to {max(apart):.2f}", flush=True)


if __name__ == "__main__":
    main()
