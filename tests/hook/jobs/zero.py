"""ZeRO of the stage in argv[2]: a run without the hook and one with it, accumulation 1 and 4."""

from __future__ import annotations

import sys
from typing import Any

import dsprof.hook
from tests.hook.jobs import job

STEPS = 6


def train(engine: Any, accumulation: int) -> list[str]:
    losses = []
    for micro in range(STEPS * accumulation):
        loss = engine(job.batch(micro)).square().mean()
        engine.backward(loss)
        engine.step()
        losses.append(loss.item().hex())
    return losses


def direct(stage: int) -> bool:
    """The same through `loss.backward()`, where this DeepSpeed knows that for the stage."""
    engine = job.engine(stage, 2)
    if not getattr(engine, "_support_torch_style_backward", False):
        return False
    with dsprof.hook.attach(engine, out=job.OUT / "direct"):
        for micro in range(2 * STEPS):
            engine(job.batch(micro)).square().mean().backward()
            engine.step()
    return True


def main() -> None:
    job.start_deepspeed()
    stage = int(sys.argv[2])
    result: dict[str, Any] = {}
    for accumulation in (1, 4):
        plain = train(job.engine(stage, accumulation), accumulation)
        engine = job.engine(stage, accumulation)
        held = set(vars(engine))
        before = job.issued()
        with dsprof.hook.attach(engine, out=job.OUT / f"accumulation-{accumulation}"):
            watched = train(engine, accumulation)
            issued = job.since(before)
        left = sorted(set(vars(engine)) ^ held)
        after = train(engine, accumulation)
        result[str(accumulation)] = {
            "plain": plain, "watched": watched, "issued": issued, "left": left,
            "after": len(after),
        }  # fmt: skip
    result["direct"] = direct(stage)
    job.finish(result)


main()
