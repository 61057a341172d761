"""DeepSpeed that loads its own checkpoint: in a new engine, behind `attach`, or in the same one."""

from __future__ import annotations

from typing import Any

import dsprof.hook
from tests.hook.jobs import job

SAVED, LATER, BEHIND = 3, 4, 2  # steps up to the checkpoint, behind it, and when it is loaded


def train(engine: Any, steps: int) -> None:
    for step in range(steps):
        engine.backward(engine(job.batch(step)[0]).square().mean())
        engine.step()


def main() -> None:
    job.start_deepspeed()
    checkpoint = str(job.out() / "checkpoint")
    engine = job.engine(1, 1)
    with dsprof.hook.attach(engine, out=job.out() / "rollback"):
        train(engine, SAVED)
        engine.save_checkpoint(checkpoint)
        train(engine, LATER)
        engine.load_checkpoint(checkpoint)
        train(engine, BEHIND)
    engine.global_steps = 0
    with dsprof.hook.attach(engine, out=job.out() / "set"):
        train(engine, SAVED)
        engine.global_steps = 0
        train(engine, LATER)
    again = job.engine(1, 1)
    with dsprof.hook.attach(again, out=job.out() / "resume"):
        again.load_checkpoint(checkpoint)
        train(again, BEHIND)
    checkpoint += " of ZeRO-3"
    whole = job.engine(3, 1)
    train(whole, SAVED)
    whole.save_checkpoint(checkpoint)
    sharded = job.engine(3, 1)
    with dsprof.hook.attach(sharded, out=job.out() / "resume sharded"):
        sharded.load_checkpoint(checkpoint)
        train(sharded, BEHIND)
    left = {"step", "load_checkpoint", "backward"} & (set(vars(again)) | set(vars(engine)))
    job.finish({"left": sorted(left), "counts": [engine.global_steps, again.global_steps]})
