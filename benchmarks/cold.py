"""What the hook adds to a ZeRO-1 step between the calls of training: `python -m benchmarks.cold`.

An engine that does nothing replaces DeepSpeed's, and collectives that do nothing replace gloo's,
so that only the hook takes time. A small network is trained between any two calls, because in a
real step caches are cold there. Each number is the time that the hook adds to one call, before and
after it. Other checkouts, given as paths, are measured in turns with this one.

Needs torch. The figures are wall-clock time: over many calls, other processes hardly affect the
lower quartile. The checkout from which this is started may seem up to 30 us a step slower, so
compare in both orders.
"""

from __future__ import annotations

import argparse
import importlib
import os
import random
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from time import perf_counter_ns as now
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import ProcessGroup, Work
from torch.testing._internal.distributed.fake_pg import FakeStore

HERE = str(Path(__file__).parent.parent)
WARM = 10
SPANS = ("forward", "backward", "_backward_prologue", "_backward_epilogue", "step")
CALLS = ("allreduce", "_allgather_base")

Told = dict[str, list[int]]


class Inside:
    """When the innermost call was reached, and left."""

    begin = end = 0


def doing(name: str) -> Callable[..., Any]:
    """A method that does what the engine's `inner` has for it, and notes when."""

    def call(self: Any, *_: Any) -> None:
        begin = now()
        self.inner.get(name, int)()
        Inside.begin, Inside.end = begin, now()

    return call


class Optimizer:
    step = doing("step")

    def __init__(self) -> None:
        self.inner: dict[str, Callable[[], Any]] = {}
        self.param_groups = [{"lr": 1e-3}]


class DeepSpeedEngine:
    """As much of one as the hook asks for."""

    __module__ = "deepspeed.runtime.engine"

    def __init__(self) -> None:
        self.optimizer, self.inner = Optimizer(), dict[str, Callable[[], Any]]()
        self.global_steps = self.skipped_steps = 0
        self.dp_world_size = 2
        self.norm = torch.tensor(1.5)
        self.config: dict[str, Any] = {}

    def get_global_grad_norm(self) -> torch.Tensor:
        return self.norm

    def fp16_enabled(self) -> bool:
        return False

    bfloat16_enabled = fp16_enabled

    def train_batch_size(self) -> int:
        return 32

    def train_micro_batch_size_per_gpu(self) -> int:
        return 16

    def gradient_accumulation_steps(self) -> int:
        return 1

    def save_checkpoint(self) -> None: ...

    load_checkpoint = save_checkpoint


class Job:
    """A step of ZeRO-1: its calls, each behind work that empties the caches."""

    def __init__(self) -> None:
        self.told: Told = defaultdict(list)
        layers = [torch.nn.Linear(256, 256) for _ in range(4)]
        self.net, self.rows = torch.nn.Sequential(*layers), torch.randn(16, 256)
        self.group: Any = dist.distributed_c10d._get_default_group()  # noqa: SLF001
        self.engine = DeepSpeedEngine()
        self.engine.inner |= {"backward": self.backward, "step": self.optimize}

    def train(self) -> torch.Tensor:
        loss = self.net(self.rows).square().mean()
        loss.backward()
        return loss

    def call(self, owner: Any, name: str, *args: Any) -> Any:
        self.train()
        begin = now()
        result = getattr(owner, name)(*args)
        end = now()
        call = f"{type(owner).__name__}.{name}"
        self.told[f"{call}, there"].append(Inside.begin - begin)
        self.told[f"{call}, back"].append(end - Inside.end)
        return result

    def reduce(self, name: str, *tensors: Any) -> None:
        self.call(self.call(self.group, name, *tensors, None), "wait")

    def backward(self) -> None:
        self.call(self.engine, "_backward_prologue")
        self.reduce("allreduce", [torch.zeros(9)])
        self.call(self.engine, "_backward_epilogue")

    def optimize(self) -> None:
        self.reduce("allreduce", [torch.zeros(1)])
        self.call(self.engine.optimizer, "step")
        self.reduce("_allgather_base", torch.zeros(8), torch.zeros(4))
        self.engine.global_steps += 1

    def step(self) -> None:
        self.call(self.engine, "forward")
        self.call(self.engine, "backward", self.train())
        self.call(self.engine, "step")


def stand_in() -> None:
    """Collectives that are over at once."""
    os.environ |= {"RANK": "0", "WORLD_SIZE": "2"}
    dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())

    def issue(*_: Any) -> Any:
        Inside.begin = now()
        work = _Work()
        Inside.end = now()
        return work

    def wait(*_: Any) -> bool:
        Inside.begin = Inside.end = now()
        return True

    for name in SPANS:
        setattr(DeepSpeedEngine, name, doing(name))
    for name in CALLS:
        setattr(ProcessGroup, name, issue)
    Work.wait = wait


class _Work(Work):  # type: ignore[misc]
    """What a collective gives to wait for."""


_LOADED: dict[str, dict[str, Any]] = {}


def use(checkout: str) -> Any:
    """`dsprof.hook.attach` of that checkout, which `import dsprof` means from now on."""
    ours = [name for name in sys.modules if name.partition(".")[0] == "dsprof"]
    for name in ours:
        del sys.modules[name]
    sys.modules.update(_LOADED.get(checkout, {}))
    sys.path.insert(0, checkout)
    try:
        for part in ("hook", "hook.recorder", "hook.modules", "hook.pipeline", "recording.read"):
            importlib.import_module(f"dsprof.{part}")
        kind: Any = importlib.import_module("dsprof.hook.models.deepspeed")
    finally:
        sys.path.remove(checkout)
    kind.config = lambda _: {"framework": "deepspeed"}
    ours = [name for name in sys.modules if name.partition(".")[0] == "dsprof"]
    _LOADED[checkout] = {name: sys.modules[name] for name in ours}
    return sys.modules["dsprof.hook"].attach


def measured(checkouts: list[str], rounds: int, steps: int) -> dict[str, Told]:
    """Of each checkout, and of none, the nanoseconds of each call there and back."""
    found: dict[str, Told] = {name: defaultdict(list) for name in ("none", *checkouts)}
    order = random.Random(0)
    with tempfile.TemporaryDirectory() as out:
        for round_ in range(rounds + 1):
            for name in order.sample(list(found), len(found)):
                job = Job()
                handle = None if name == "none" else use(name)(job.engine, out=out)
                for _ in range(WARM):
                    job.step()
                job.told.clear()
                for _ in range(steps):
                    job.step()
                if handle:
                    handle.detach()
                for call, lengths in job.told.items():
                    found[name][call] += lengths if round_ else []
    return found


def main() -> None:
    known = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks.cold")
    known.add_argument("checkouts", nargs="*", type=Path, help="other checkouts to compare with")
    known.add_argument("--rounds", type=int, default=10)
    known.add_argument("--steps", type=int, default=40, help="steps per round")
    args = known.parse_args()
    torch.set_num_threads(1)
    stand_in()
    checkouts = [HERE, *(str(path.resolve()) for path in args.checkouts)]
    found = measured(checkouts, args.rounds, args.steps)
    print(
        f"load average {os.getloadavg()[0]:.1f}; us a call more than without: lower quartile, mean"
    )
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for call, bare in found["none"].items():
        number = len(bare) / args.rounds / args.steps  # calls a step
        line = f"{call:<40}x{number:<4.0f}"
        for one in checkouts:
            more = [a - b for a, b in zip(typical(found[one][call]), typical(bare), strict=True)]
            line += "".join(f"{part:9.1f}" for part in more)
            sums[one] = [a + number * b for a, b in zip(sums[one], more, strict=True)]
        print(line)
    print(f"{'a step':<45}" + "".join(f"{part:9.1f}" for one in checkouts for part in sums[one]))


def typical(lengths: list[int]) -> tuple[float, float]:
    """Lower quartile, and mean without the slowest twentieth, which something else put off; us."""
    ranked = sorted(lengths)[: len(lengths) * 19 // 20]
    return statistics.quantiles(lengths)[0] / 1e3, statistics.fmean(ranked) / 1e3


if __name__ == "__main__":
    main()
