"""ZeRO-1 with the hook, which fails in the way that argv[2] names; training must not notice."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

import dsprof.hook
from dsprof.hook.spans import Timeline
from tests.hook.jobs import job

STEPS, AT = 8, 4
FULL = OSError(28, "No space left on device")


def fail(*_: Any, **__: Any) -> None:
    raise ZeroDivisionError("planted")


def full(*_: Any, **__: Any) -> None:
    raise FULL


def plant(way: str) -> None:
    """Break the hook in the middle of a run."""
    if way == "exception":
        Timeline.block = fail  # type: ignore[method-assign]
    elif way == "disk":
        os.pwrite = full  # type: ignore[assignment]
    elif way == "kill" and job.rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)


def folder_of(way: str) -> Path:
    if way != "folder":
        return job.OUT / "run"
    blocked = job.OUT / "a file"
    blocked.touch()
    return blocked / "run"


def batches(way: str) -> Any:
    data = TensorDataset(torch.stack([job.batch(step)[0] for step in range(64)]))
    return iter(DataLoader(data, batch_size=8, num_workers=2 if way == "workers" else 0))


def main() -> None:
    way = sys.argv[2]
    job.start_deepspeed()
    engine = job.engine(1, 1)
    first = dsprof.hook.attach(engine, out=folder_of(way))
    again = dsprof.hook.attach(engine, out=folder_of(way))
    losses = []
    loader = batches(way)
    for step in range(STEPS):
        if step == AT:
            plant(way)
        (vectors,) = next(loader)
        loss = engine(vectors).square().mean()
        engine.backward(loss)
        engine.step()
        losses.append(loss.item().hex())
    if way == "checkpoint":
        engine.save_checkpoint(str(job.OUT / "checkpoint"))
        engine.load_checkpoint(str(job.OUT / "checkpoint"))
    job.finish({"losses": losses, "same": first is again, "folder": first.folder})


main()
