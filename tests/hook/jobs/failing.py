"""ZeRO-1 with the hook, which fails in each way in turn; training must not notice.

argv[2:] are the ways. What a way says on standard error goes to a file of its own.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch.utils.data import DataLoader, TensorDataset

import dsprof.hook
from dsprof.hook.spans import Timeline
from dsprof.recording.ring import End
from tests.hook.jobs import job

STEPS, AT = 8, 4
FULL = OSError(28, "No space left on device")


def fault(way: str) -> contextlib.AbstractContextManager[Any]:
    """What breaks the hook in the middle of a run, and is mended behind it."""
    if way == "exception":
        return patch.object(Timeline, "block", side_effect=ZeroDivisionError("planted"))
    if way == "disk":
        return full_disk()
    if way == "kill" and job.rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return contextlib.nullcontext()


@contextlib.contextmanager
def full_disk() -> Iterator[None]:
    """No room behind what is mapped, and none to be had."""
    with contextlib.ExitStack() as faults:
        faults.enter_context(patch.object(End, "store", return_value=False))
        for call in ("posix_fallocate", "pwrite"):
            faults.enter_context(patch.object(os, call, side_effect=FULL))
        yield


@contextlib.contextmanager
def stderr_to(path: Path) -> Iterator[None]:
    """Also what C++ and child processes write."""
    kept = os.dup(2)
    with path.open("w") as file:
        sys.stderr.flush()
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)


def folder_of(way: str, out: Path) -> Path:
    if way != "folder":
        return out / "run"
    blocked = out / "a file"
    blocked.touch()
    return blocked / "run"


def batches(way: str) -> Any:
    data = TensorDataset(torch.stack([job.batch(step)[0] for step in range(64)]))
    return iter(DataLoader(data, batch_size=8, num_workers=2 if way == "workers" else 0))


def train(way: str, out: Path) -> dict[str, Any]:
    engine = job.engine(1, 1)
    first = dsprof.hook.attach(engine, out=folder_of(way, out))
    again = dsprof.hook.attach(engine, out=folder_of(way, out))
    losses = []
    loader = batches(way)
    with contextlib.ExitStack() as broken:
        for step in range(STEPS):
            if step == AT:
                broken.enter_context(fault(way))
            (vectors,) = next(loader)
            loss = engine(vectors).square().mean()
            engine.backward(loss)
            engine.step()
            losses.append(loss.item().hex())
    if way == "checkpoint":
        engine.save_checkpoint(str(out / "checkpoint"))
        engine.load_checkpoint(str(out / "checkpoint"))
    first.detach()
    return {"losses": losses, "same": first is again, "folder": first.folder}


def main() -> None:
    job.start_deepspeed()
    result = {}
    for way in sys.argv[2:]:
        out = job.out() / way
        out.mkdir(exist_ok=True)
        with stderr_to(out / f"stderr-{job.rank()}"):
            result[way] = train(way, out)
    job.finish(result)
