"""ZeRO 0 to 3: a run without the hook and one with it, accumulation 1 and 4."""

from __future__ import annotations

from pathlib import Path
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


def direct(stage: int, out: Path) -> bool | None:
    """The same through `loss.backward()`: whether this DeepSpeed knows of that; None: it fails.

    Before it did, stage 0 alone trains so, and no rank hears of another's gradients.
    """
    engine = job.engine(stage, 2)
    knows: bool | None = getattr(engine, "_support_torch_style_backward", None)
    if knows is False or (knows is None and stage):
        return None
    with dsprof.hook.attach(engine, out=out / "direct"):
        for micro in range(2 * STEPS):
            engine(job.batch(micro)).square().mean().backward()
            engine.step()
    return bool(knows)


def both_ways(stage: int, accumulation: int, out: Path) -> dict[str, Any]:
    plain = train(job.engine(stage, accumulation), accumulation)
    engine = job.engine(stage, accumulation)
    held = set(vars(engine))
    before = job.issued()
    with dsprof.hook.attach(engine, out=out / f"accumulation-{accumulation}"):
        watched = train(engine, accumulation)
        issued = job.since(before)
    left = sorted(set(vars(engine)) ^ held)
    after = train(engine, accumulation)
    return {
        "plain": plain, "watched": watched, "issued": issued, "left": left, "after": len(after)
    }  # fmt: skip


def main() -> None:
    job.start_deepspeed()
    result: dict[str, Any] = {}
    for stage in range(4):
        out = job.out() / f"stage-{stage}"
        result[str(stage)] = {str(n): both_ways(stage, n, out) for n in (1, 4)}
        result[str(stage)]["direct"] = direct(stage, out)
    job.finish(result)
