"""What only a machine with a GPU can show: `python -m benchmarks.on_gpu`, one GPU, torch with CUDA.

Each part prints what it measured. Nothing here has been run on a GPU yet. Once it has, the figures
belong in the docs, with the name of the machine and this command.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import dsprof.hook
from dsprof import gpu
from dsprof.analysis.gaps import gaps
from dsprof.hook.on_gpu.cuda import Marks, device
from dsprof.run import Run, load

WAITS = ("cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize")


class Job:
    """A model whose step takes as long as `depth` makes it; `out` of the hook, or none."""

    def __init__(self, depth: int, width: int = 4096) -> None:
        torch.manual_seed(0)
        layers = [torch.nn.Linear(width, width, bias=False) for _ in range(depth)]
        self.model = torch.nn.Sequential(*layers).cuda().bfloat16()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-4)
        self.batch = torch.randn(4096, width, device="cuda", dtype=torch.bfloat16)

    def step(self, cycles: int = 0) -> torch.Tensor:
        """`cycles`: for how long a kernel spins between backward and the optimizer."""
        loss: torch.Tensor = self.model(self.batch).float().square().mean()
        loss.backward()
        if cycles:
            torch.cuda._sleep(cycles)  # noqa: SLF001 - of torch's tests
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()

    def steps(self, count: int) -> float:
        """Seconds a step, the device's own time."""
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(count):
            self.step()
        torch.cuda.synchronize()
        return (time.perf_counter() - begin) / count

    @contextmanager
    def recorded(self) -> Iterator[Path]:
        with (
            tempfile.TemporaryDirectory() as out,
            dsprof.hook.attach(self.model, optimizer=self.optimizer, out=out),
        ):
            yield Path(out)


def say(what: str, value: object) -> None:
    print(f"{what:60} {value}")


def microseconds(action: Callable[[], object], times: int = 2000) -> str:
    begin = time.perf_counter()
    for _ in range(times):
        action()
    return f"{(time.perf_counter() - begin) / times * 1e6:.2f} us"


def marks() -> None:
    told = device()
    assert told
    laid = Marks(told.cuda)
    first = laid.mark()
    say("a mark (capture asked, stream asked, event recorded)", microseconds(laid.mark))
    last = laid.mark()
    torch.cuda.synchronize()
    say("is_past", microseconds(lambda: laid.is_past(last)))
    say("since", microseconds(lambda: laid.since(first, last)))


def counters() -> None:
    told = device()
    assert told
    boards = gpu.boards()
    say("torch's UUID is one of NVML's", told.uuid in {board.uuid for board in boards})
    begin = time.perf_counter()
    samples = boards[0].sample(time.perf_counter_ns())
    say("first sample of one GPU", f"{(time.perf_counter() - begin) * 1e3:.2f} ms")
    sample = boards[0].sample
    say("later samples", microseconds(lambda: sample(time.perf_counter_ns()), 50))
    say("unknown", sorted(set(dsprof.events.GPU) - {one.name for one in samples}))


def waits() -> None:
    """The same steps without the hook and with it: the host must not wait more often."""
    job = Job(8)

    def counted() -> dict[str, int]:
        with torch.profiler.profile() as profile:
            for _ in range(20):
                job.step()
        return {row.key: row.count for row in profile.key_averages() if row.key in WAITS}

    job.steps(5)
    say("host waits of 20 steps without the hook", counted())
    with job.recorded():
        job.steps(5)
        say("with it", counted())


def capture() -> None:
    job = Job(4)
    with job.recorded() as out:
        job.steps(3)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            job.model(job.batch)
        for _ in range(3):
            graph.replay()
            job.step()
        torch.cuda.synchronize()
    say("a graph is captured and replayed with the hook on", "yes")
    assert not out.exists()


def exposed() -> None:
    """A collective on a side stream behind a spinning kernel: its stall is communication."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29555", "RANK": "0"}
    dist.init_process_group("nccl", world_size=1, rank=0)
    job, side = Job(2), torch.cuda.Stream()
    small = torch.zeros(1024, device="cuda")
    with job.recorded() as out:
        for _ in range(10):
            with torch.cuda.stream(side):
                torch.cuda._sleep(20_000_000)  # noqa: SLF001 - a kernel that spins, of torch's tests
                dist.all_reduce(small)
            job.model.register_forward_pre_hook(lambda *_: side_waited(side))
            job.step()
            job.model._forward_pre_hooks.clear()  # noqa: SLF001
        torch.cuda.synchronize()
        run = load(out)
        report(run)
    dist.destroy_process_group()


def side_waited(side: Any) -> None:
    torch.cuda.current_stream().wait_stream(side)


def report(run: Run) -> None:
    stalls = run.phases[run.phases["name"] == "stream_wait"]
    say("stall of the computing stream, ms a step", list((stalls["seconds"] * 1e3).round(2)))
    say("phases on", run.meta.get("phases_on"))


def moments() -> None:
    """Between which phases the device did something else, while the host was ahead of it."""
    job, cycles = Job(8), 20_000_000
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    torch.cuda._sleep(cycles)  # noqa: SLF001
    end.record()
    torch.cuda.synchronize()
    say("the kernel spins, ms", round(begin.elapsed_time(end), 2))
    with job.recorded() as out:
        for _ in range(20):
            job.step(cycles)
        torch.cuda.synchronize()
        job.steps(5)
        run = load(out)
        found = gaps(run.moments(run.steps.iloc[5:15]))
    say("longest gap of the recording lies between", found.index[0])
    say("and takes, ms a step", round(found["seconds"].iloc[0] * 1e3, 2))


def steps() -> None:
    """Pairs of blocks, each without and with the hook; the median ratio."""
    for depth in (12, 60, 240):
        job, ratios = Job(depth), []
        plain = job.steps(5)
        for _ in range(20):
            plain = job.steps(20)
            with job.recorded():
                ratios.append(job.steps(20) / plain)
        say(
            f"step of {plain * 1e3:.1f} ms, with the hook", f"{statistics.median(ratios):.4f} of it"
        )


def main() -> None:
    if not torch.cuda.is_available():
        raise SystemExit("no GPU here")
    torch.cuda.init()
    say("machine", torch.cuda.get_device_name())
    for part in (marks, counters, waits, capture, exposed, moments, steps):
        part()


if __name__ == "__main__":
    main()
